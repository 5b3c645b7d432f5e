"""Questions of the command line, in a real terminal: how they are answered, declined and left."""

from pathlib import Path

import pytest

from component.app.features import load
from component.cli.frame import ExitCode
from tests.component.cli.pseudoterminal import END_OF_INPUT, INTERRUPT, PseudoTerminal
from tests.servers.agent_process import PROGRAM, environment

MENU = '''
from typing import Annotated, Literal

import msgspec

from xmpp_agent import Context, Denied, skill


class Choice(msgspec.Struct):
    dish: Literal["soup", "salad"]
    portions: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    extras: list[str] = []


@skill(read_only=True)
async def lunch(day: str, context: Context) -> str:
    """Ask what to order."""
    try:
        choice = await context.ask("What do you take?", Choice)
    except Denied:
        return "Nothing was ordered."
    return f"{day}: {choice.portions} {choice.dish} {choice.extras}"
'''
CALL = ("skills", "call", "menu.py:lunch", "day=Monday")
INIT = ("init", "--output", "made/agent.toml")
KILL = ("agents", "kill", "researcher")
WHERE = {
    "a skill's question": (CALL, "dish (one of soup, salad): "),
    "a missing parameter": (CALL[:3], "day (text): "),
    "a setting": (INIT, "Domain of the agent, such as agent.example.com: "),
    "a confirmation": (KILL, "Kill researcher? [y/N]: "),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "menu.py").write_text(MENU)
    (tmp_path / "agent.toml").write_text(
        '[server]\ncomponent_domain = "agent.example.com"\ncomponent_secret = "x"\n'
    )
    return tmp_path


def typing(*words: str) -> PseudoTerminal:
    return PseudoTerminal(PROGRAM, *words, env={**environment(), "NO_COLOR": "1"})


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("where", WHERE)
def test_ctrl_c_ends_a_command_at_a_question(where: str) -> None:
    words, question = WHERE[where]
    with typing(*words) as terminal:
        terminal.types(INTERRUPT, after=question)
        assert terminal.ends() == ExitCode.INTERRUPTED
    assert f"{question}^C\nInterrupted.\n" in terminal.shown


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("where", ["a missing parameter", "a setting", "a confirmation"])
def test_the_end_of_the_input_ends_a_command_with_a_sentence(where: str) -> None:
    words, question = WHERE[where]
    with typing(*words) as terminal:
        terminal.types(END_OF_INPUT, after=question)
        assert terminal.ends() == ExitCode.FAILURE
    label = question.removesuffix(": ")
    assert f"\nerror: The input ended without an answer to: {label}.\n" in terminal.shown


@pytest.mark.usefixtures("here")
def test_the_end_of_the_input_declines_a_question_of_a_skill() -> None:
    with typing(*CALL) as terminal:
        terminal.types(END_OF_INPUT, after="What do you take? (Ctrl-D declines)\ndish")
        assert terminal.ends() == ExitCode.OK
    assert "\nDeclined.\nNothing was ordered.\n" in terminal.shown


@pytest.mark.usefixtures("here")
def test_each_answer_to_a_skill_is_checked_when_it_is_entered() -> None:
    with typing(*CALL[:3]) as terminal:
        terminal.types("\n", after="day (text): ")
        terminal.until("An answer is needed.")
        terminal.types("Monday\n", after="day (text): ")
        terminal.types("pizza\n", after="dish (one of soup, salad): ")
        terminal.until("Expected one of soup, salad.")
        terminal.types("soup\n", after="dish (one of soup, salad): ")
        terminal.types("many\n", after="portions (an integer) [1]: ")
        terminal.until("Expected an integer.")
        terminal.types("12\n", after="portions (an integer) [1]: ")
        terminal.until("12 is greater than the maximum of 9.")
        terminal.types("\n", after="portions (an integer) [1]: ")
        terminal.types("bread, salt\n", after="extras (")
        assert terminal.ends() == ExitCode.OK
    assert "Monday: 1 soup ['bread', 'salt']\n" in terminal.shown


def test_each_setting_is_checked_when_it_is_entered(here: Path) -> None:
    with typing(*INIT) as terminal:
        terminal.types("example\n", after="such as agent.example.com: ")
        terminal.until("only one label")
        terminal.types("agent.example.com\n", after="such as agent.example.com: ")
        terminal.types(
            "postfix\n", after="XMPP server (prosody, ejabberd, openfire, other) [prosody]: "
        )
        terminal.until("Expected one of prosody, ejabberd, openfire, other.")
        terminal.types("\n", after="[prosody]: ")
        terminal.types("my host\n", after="Host name of the XMPP server [localhost]: ")
        terminal.until("Expected a host name or an IP address.")
        terminal.types("\n", after="[localhost]: ")
        terminal.types("99999\n", after="components [5347]: ")
        terminal.until("Expected a number from 1 to 65535.")
        terminal.types("5300\n", after="components [5347]: ")
        assert terminal.ends() == ExitCode.OK
    server = load(here / "made" / "agent.toml", {}).server
    assert (server.component_domain, server.host, server.port) == (
        "agent.example.com",
        "localhost",
        5300,
    )


@pytest.mark.usefixtures("here")
def test_a_confirmation_takes_yes_or_no_only() -> None:
    with typing(*KILL) as terminal:
        terminal.types("maybe\n", after="[y/N]: ")
        terminal.until("Expected yes or no.")
        terminal.types("no\n", after="[y/N]: ")
        assert terminal.ends() == ExitCode.FAILURE
    assert "Cancelled: nothing was changed." in terminal.shown


@pytest.mark.usefixtures("here")
def test_an_answer_that_is_not_utf_8_is_asked_for_again() -> None:
    with typing(*CALL[:3]) as terminal:
        terminal.types(b"\xff\n", after="day (text): ")
        terminal.until("Expected text in UTF-8.")
        terminal.types(INTERRUPT, after="day (text): ")
        assert terminal.ends() == ExitCode.INTERRUPTED
