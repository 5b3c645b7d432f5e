"""`xmpp-agent skills new|call|test`: what authors do, without a server and a configuration."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from component.cli.frame import ExitCode
from component.cli.group import group
from tests.logs import restored_logs

MENU = '''
from typing import Literal

import msgspec

from xmpp_agent import Context, Output, SkillError, skill


class Choice(msgspec.Struct):
    dish: Literal["soup", "salad"]
    portions: int = 1


@skill(read_only=True)
async def lunch(day: str, context: Context, portions: int = 1) -> str:
    """Say what there is."""
    await context.progress(0.5, "reading the menu")
    if day == "Sunday":
        raise SkillError("Closed on Sundays.")
    if day == "Monday":
        raise KeyError("a fault")
    if day == "?":
        choice = await context.ask("What do you take?", Choice)
        return f"{choice.portions} {choice.dish}"
    return f"{portions} soup"


@skill(read_only=True)
def dinner() -> tuple[Output, ...]:
    """Say what there is."""
    return Output("soup", name="first"), Output("[1]", "application/json", "second")
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "menu.py").write_text(MENU)
    with restored_logs():
        yield tmp_path


def skills(*arguments: str, code: int = ExitCode.OK, said: str = "") -> Result:
    result = CliRunner().invoke(group, ["skills", *arguments], input=said)
    assert result.exit_code == code, result.output
    return result


@pytest.mark.usefixtures("here")
def test_a_new_skill_is_tested_and_called() -> None:
    done = skills("new", "weather")
    assert "xmpp-agent skills test ./weather" in done.stdout
    tested = skills("test", "./weather")
    assert tested.stdout.count("ok") == 2
    assert "can be offered" in tested.stdout
    assert skills("call", "./weather", "who=unknown", code=1).stderr == "The name is unknown.\n"
    skills("new", "weather", code=1)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", ["wasm-rust", "wasm-c"])
def test_a_new_skill_that_has_to_be_built_says_how(kind: str) -> None:
    assert "skill.wasm)" in skills("new", "weather", "--kind", kind, "-d", "here").stdout
    assert "which the directory lacks" in skills("test", "here", code=1).stderr


@pytest.mark.usefixtures("here")
def test_a_new_request_is_tested_without_its_server() -> None:
    assert "main.py" not in skills("new", "weather", "--kind", "rest").stdout
    tested = skills("test", "./weather").stdout
    assert tested.startswith("ok greets by name\nok says what the API says\n")
    assert tested.endswith("weather can be offered.\n")


@pytest.mark.usefixtures("here")
def test_a_name_that_no_skill_can_have() -> None:
    assert "no usable name" in skills("new", "a b", code=2).stderr
    assert not Path("a b").exists()


def test_a_failing_case_is_shown(here: Path) -> None:
    skills("new", "weather")
    cases = here / "weather" / "tests" / "cases.toml"
    cases.write_text(
        '[[case]]\nname = "one"\nparams = { who = "Romeo" }\ntext = "Bye"\n'
        '[[case]]\nname = "two"\nparams = { who = 3 }\n'
        '[[case]]\nname = "three"\nparams = { who = "Romeo" }\ncontains = "Romeo"\n'
        '[[case]]\nname = "four"\nparams = { who = "unknown" }\n'
    )
    shown = skills("test", "weather", code=1).stdout.splitlines()
    assert "expected the text 'Bye', not 'Hello, Romeo!'" in shown[0]
    assert "who" in shown[1]
    assert shown[2] == "ok three"
    assert "The name is unknown." in shown[3]
    cases.write_text("[[cases]]\n")
    assert "unknown field `cases`" in skills("test", "weather", code=1).stderr


def test_python_tests_of_the_author_need_trust(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # They need none of the plugins of these tests, and those take a second to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    skills("new", "weather")
    (here / "weather" / "tests" / "test_main.py").write_text(
        "from main import greet\nfrom xmpp_agent.testing import call\n\n"
        "def test_greets() -> None:\n"
        '    assert call(greet, {"who": "Romeo"}).outputs[0].text == "Hello, Romeo!"\n'
    )
    assert "not run: test_main.py" in skills("test", "weather").stderr
    skills("test", "--trusted", "weather")
    (here / "weather" / "tests" / "test_main.py").write_text("def test_fails():\n    assert 0\n")
    skills("test", "--trusted", "weather", code=1)


@pytest.mark.usefixtures("here")
def test_a_skill_of_a_file() -> None:
    called = skills("call", "menu.py:lunch", "day=Friday", "portions=2")
    assert called.stdout == "2 soup\n"
    assert called.stderr == " 50% reading the menu\n"
    assert "lunch, dinner" in skills("call", "menu.py", "day=Friday", code=1).stderr
    assert "no skill called 'x'" in skills("call", "menu.py:x", code=1).stderr
    assert "KeyError: 'a fault'" in skills("call", "menu.py:lunch", "day=Monday", code=1).stderr
    assert "Closed" in skills("call", "menu.py:lunch", "day=Sunday", code=1).stderr
    wrong = skills("call", "menu.py:lunch", "day=Friday", "portions=x", code=1).stderr
    assert "expected an integer" in wrong
    assert "day, portions?" in wrong
    missing = skills("call", "menu.py:lunch", "portions=2", code=1).stderr
    assert "Parameters are missing: day." in missing
    assert "write it like" in skills("call", "menu.py:lunch", "day", code=2).stderr
    assert skills("call", "./menu.py:dinner").stdout.splitlines() == [
        "first (text/plain):",
        "soup",
        "second (application/json):",
        "[1]",
    ]


@pytest.mark.usefixtures("here")
def test_skills_call_prints_its_outputs_as_json() -> None:
    found = json.loads(skills("call", "--json", "menu.py:dinner").stdout)
    assert [one["text"] for one in found["outputs"]] == ["soup", "[1]"]
    assert not found["isError"]
    found = json.loads(
        skills("call", "--json", "menu.py:lunch", "--params", '{"day": "Sunday"}', code=1).stdout
    )
    assert found["isError"]


@pytest.mark.usefixtures("here")
def test_without_a_terminal_the_answers_are_lines_of_standard_input() -> None:
    called = skills("call", "menu.py:lunch", "day=?", said="soup\n3\n")
    assert called.stdout == "3 soup\n"
    assert "dish (one of soup, salad): \nportions (an integer) [1]: \n" in called.stderr
    # A wrong line ends it: the next one answers the next question.
    wrong = skills("call", "menu.py:lunch", "day=?", said="pizza\n3\n", code=1).stderr
    assert "error: dish (one of soup, salad): Expected one of soup, salad.\n" in wrong
    ended = skills("call", "menu.py:lunch", "day=?", said="soup\n", code=1).stderr
    assert "The input ended without an answer to: portions" in ended
    assert "write a line for each of these to standard input: dish, portions." in ended


@pytest.mark.usefixtures("here")
def test_a_built_in_skill_needs_no_configuration() -> None:
    assert skills("call", "echo", "text=hello").stdout == "hello\n"
    assert "no skill called 'nothing'" in skills("call", "nothing", code=1).stderr
