"""The command line, and the agent of this project judged by it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conformance.cli import command
from tests.conformance.test_reports import junit


def kit(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(command, words, env=environment, catch_exceptions=False)


def _without_what_passed(result: Result) -> str:
    return "\n".join(line for line in result.output.splitlines() if " ✓ " not in line)


@pytest.mark.servers
def test_the_agent_of_this_project_holds_all_that_it_claims(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("html", "junit", "json", "script")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    result = kit("--self-test", "--acceptor", "127.0.0.1:0", "--hostile", *options)
    assert result.exit_code == 0, _without_what_passed(result)
    assert "every claimed profile holds" in result.output

    found = json.loads(files["json"].read_text())
    assert found["good"] is True
    assert {"core", "confirm", "tasks", "commands"} <= found["profiles"].keys()
    assert len(found["requirements"]) > 300
    suites = junit(files["junit"].read_text())
    assert [suite.get("name") for suite in suites] == list(found["profiles"])
    assert len(list(suites.iter("testcase"))) == len(found["requirements"])
    page = files["html"].read_text()
    assert "<h2>Without a check</h2>" in page
    assert "Randomness cannot be proved by a sample." in page
    assert "<script" not in page
    assert "src=" not in page
    assert ">>> " in files["script"].read_text()


@pytest.mark.servers
@pytest.mark.thorough
def test_it_holds_on_its_own_server_too_through_a_client_that_nobody_here_wrote() -> None:
    result = kit("--self-test")
    assert result.exit_code == 0, result.output
    assert "every claimed profile holds" in result.output
    assert "through slixmpp" in result.output


@pytest.mark.servers
def test_what_is_expected_to_be_broken_and_is_not_fails_the_profile(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.toml"
    baseline.write_text("[[expected]]\nid = 'EXE-003'\nreason = 'arrays come later'\n")
    way = ("--self-test", "--acceptor", "127.0.0.1:0")
    result = kit(*way, "EXE-003", "EXE-004", "--baseline", str(baseline))
    assert result.exit_code == 1, result.output
    assert "EXE-003 kept, though the baseline expects otherwise" in result.output
    assert "arrays come later" in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Name the TARGET"),
        (["agent.example"], "Choose one way to the target"),
        (["agent.example", "--jid", "a@b", "--component", "c"], "Choose one way to the target"),
        (["--self-test", "--jid", "a@b"], "brings its own server"),
        (["--self-test", "nonsense"], "'nonsense' is no profile"),
        (["agent.example", "--acceptor", "5275"], "--acceptor is HOST:PORT"),
        (["agent.example", "--jid", "a@b"], "The environment variable PASSWORD is not set"),
        (["agent.example", "--component", "c"], "The environment variable SECRET is not set"),
        (["a", "--jid", "a@b", "--second-jid", "c@d"], "--second-jid needs --second-password-env"),
        (["--self-test", "--baseline", "/no/such/file"], "No such file"),
    ],
)
def test_a_wrong_command_line_says_how_to_mend_it(words: list[str], says: str) -> None:
    result = kit(*words, SECRET="x" if "5275" in words else "", PASSWORD="")
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_the_list_names_what_observes_each() -> None:
    result = kit("--list", "params")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines] == [f"EXE-00{n}" for n in range(2, 9)]
    assert "execute.arrays" in result.output


def test_help_has_examples_and_exit_codes() -> None:
    result = kit("--help")
    assert "Examples:" in result.output
    assert "Exit codes:" in result.output
