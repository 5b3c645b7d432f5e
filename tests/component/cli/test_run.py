import importlib.util
import signal
from pathlib import Path

import pytest

from component.app.process import event_loop
from component.cli.frame import ExitCode
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.servers.agent_process import AgentProcess
from tests.servers.talk import execute, output

LOOP_SKILL = '''
import trio
from component.skills import skill

@skill(read_only=True)
async def loop() -> str:
    """Tell which event loop this runs on."""
    return "trio" if trio.lowlevel.in_trio_run() else "asyncio"
'''


@pytest.mark.parametrize(
    ("backend", "number"), [("trio", signal.SIGTERM), ("asyncio", signal.SIGINT)]
)
def test_run_serves_until_a_signal_stops_it(
    embedded: Embedded, tmp_path: Path, backend: str, number: signal.Signals
) -> None:
    (tmp_path / "own.py").write_text(LOOP_SKILL)
    service = AgentProcess(
        embedded, tmp_path, backend=backend, skills__modules=["./own.py"], log__level="info"
    )
    with service, embedded.login() as juliet:
        line = service.wait_log("connected")
        assert (line["host"], line["port"]) == ("127.0.0.1", embedded.port)
        for domain in (embedded.component_domain, f"assistant@{embedded.component_domain}"):
            assert output(juliet.iq(domain, execute("loop"), "set")) == backend
            assert output(juliet.iq(domain, execute("echo", text="hello"), "set")) == "hello"
        service.send(number)
        assert service.wait() == ExitCode.OK
        # All that a quiet day leaves in the log.
        assert [entry["event"] for entry in service.log()] == ["starting", "connected", "stopping"]


def test_uvloop_is_used_with_asyncio_only() -> None:
    """trio refuses an option that it does not know."""
    assert event_loop("trio") == {}
    there = importlib.util.find_spec("uvloop") is not None
    assert event_loop("asyncio") == {"use_uvloop": there}


def test_run_warns_of_ignored_settings_and_of_agents_without_a_model(
    embedded: Embedded, tmp_path: Path
) -> None:
    later = '[skills]\nweb_search = "${NOT_SET_AT_ALL}"\n'
    toml = f'{embedded.agent_toml()}{later}[[agents]]\nname = "clerk"\n'
    with AgentProcess(embedded, tmp_path, toml=toml) as service:
        for warning in (
            "not supported by this release and ignored: skills.web_search",
            "agents are declared in [[agents]], but they need a model: add [llm]",
        ):
            assert service.wait_log(warning)["level"] == "warning"
        service.connected()
        assert service.stop() == ExitCode.OK


# What stops the start: sentences on stderr, and an exit code that says whose fault it is.


def refusal(command: RunCommand, *arguments: str, **settings: object) -> tuple[int, list[str]]:
    result = command("run", *arguments, **settings)
    assert result.stdout == ""
    return result.exit_code, result.stderr.splitlines()


def test_run_refuses_a_missing_configuration_file(command: RunCommand) -> None:
    code, (line,) = refusal(command, "--config", "nosuch.toml")
    assert code == ExitCode.CONFIG
    assert line.startswith("error: nosuch.toml: does not exist; `xmpp-agent init` creates")


def test_run_names_each_mistake_in_the_file_and_the_environment(command: RunCommand) -> None:
    path = Path("agent.toml")
    path.write_text(path.read_text() + "hots = 1\n")
    code, lines = refusal(command, server__port="many")
    assert code == ExitCode.CONFIG
    assert sorted(lines) == [
        "error: agent.toml, line 6: server.hots is not a setting; did you mean server.host?",
        "error: environment: XMPP_AGENT_SERVER__PORT must be a whole number",
    ]


def test_run_names_each_invalid_entry_of_the_policy(command: RunCommand) -> None:
    code, lines = refusal(
        command,
        agent__allowed_jids=["juliet@localhost/phone", "a@b@c/d"],
        agent__allowed_domains=["localhost", "*"],
    )
    assert code == ExitCode.CONFIG
    assert len(lines) == 3
    (phone,) = [line for line in lines if "phone" in line]
    assert phone.startswith("error: agent.allowed_jids: 'juliet@localhost/phone': It has a ")
    assert phone.endswith("Write 'juliet@localhost'.")


def test_run_refuses_a_pattern_among_the_admins(command: RunCommand) -> None:
    code, (line,) = refusal(command, agent__admins=["*"])
    assert code == ExitCode.CONFIG
    assert line == "error: agent.admins: '*': Name each admin in full."


def test_run_refuses_a_missing_avatar(command: RunCommand) -> None:
    code, (line,) = refusal(command, agent__avatar="none.png")
    assert code == ExitCode.CONFIG
    assert line == "error: agent.avatar: none.png cannot be read: No such file or directory."


def test_run_refuses_a_missing_skill_module(command: RunCommand) -> None:
    code, (line,) = refusal(command, skills__modules=["nosuch_skills"])
    assert code == ExitCode.CONFIG
    assert line.startswith("error: There is no module nosuch_skills: install it")


def test_run_refuses_two_skills_of_the_same_name(command: RunCommand) -> None:
    Path("own.py").write_text(
        "from component.skills import skill\n\n@skill(inline=True)\n"
        'def echo(text: str) -> str:\n    """Say it again."""\n    return text\n'
    )
    code, (line,) = refusal(command, skills__modules=["./own.py"])
    assert code == ExitCode.CONFIG
    assert "echo" in line


def test_run_refuses_a_file_in_place_of_the_data_directory(command: RunCommand) -> None:
    Path("data").write_text("")
    code, (line,) = refusal(command)
    assert code == ExitCode.FAILURE
    assert line.startswith(
        "error: The data directory needs data, which cannot be created or opened:"
    )
    assert "there is a file where a directory should be" in line


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_run_refuses_a_model_without_its_key(command: RunCommand, backend: str) -> None:
    model = {"llm__provider": "anthropic", "llm__model": "claude-opus-5"}
    code, (line,) = refusal(command, backend=backend, **model)
    assert code == ExitCode.CONFIG
    assert line.startswith("error: llm.api_key is missing, which anthropic needs: write api_key = ")
    assert '"${ANTHROPIC_API_KEY}"' in line


def test_run_refuses_a_local_model_without_its_file(command: RunCommand) -> None:
    model = {"llm__provider": "local", "llm__model": "nosuch.gguf"}
    code, (line,) = refusal(command, **model)
    assert code == ExitCode.CONFIG
    assert line == "error: llm: the model nosuch.gguf cannot be opened: No such file or directory"


def test_run_names_each_scope_member_with_an_invalid_address(command: RunCommand) -> None:
    path = Path("agent.toml")
    path.write_text(
        path.read_text() + '[[memory.scopes]]\nname = "kitchen"\nmembers = ["a b@@c", "d/e@f"]\n'
    )
    code, lines = refusal(command)
    assert code == ExitCode.CONFIG
    assert len(lines) == 2
    assert all(line.startswith("error: memory.scopes.kitchen.members: '") for line in lines)
