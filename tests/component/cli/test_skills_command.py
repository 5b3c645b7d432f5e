import json
from pathlib import Path

from component.cli.frame import ExitCode
from tests.component.cli.conftest import RunCommand

RULE = [{"skills": ["conformance.ad*"], "allowed_jids": ["romeo@localhost"]}]


def names(command: RunCommand, *arguments: str, **settings: object) -> list[str]:
    result = command("skills", "list", "--json", *arguments, **settings)
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stderr == ""
    return [skill["name"] for skill in json.loads(result.stdout)]


def test_skills_list_prints_a_table_of_skills(command: RunCommand) -> None:
    result = command("skills", "list", conformance__enabled=True)
    assert result.exit_code == ExitCode.OK
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["Skill", "Parameters", "Description", "Effects"]
    found = {row.split()[0]: row for row in rows if not row.startswith(" ")}
    assert list(found) == sorted(found)
    assert found["echo"].split()[1] == "text"
    assert found["conformance.types"].split()[1:7] == [
        "colour,",
        "flag,",
        "ratio,",
        "words?,",
        "note?,",
        "point?",
    ]
    assert found["echo"].endswith("reads only")
    assert found["conformance.count"].endswith("changes things")
    assert found["conformance.erase"].endswith("destructive")
    assert "\x1b" not in result.output


def test_nothing_is_connected_and_nothing_kept(command: RunCommand) -> None:
    watches = ["watch_create", "watch_list"]
    memory = ["memory_forget", "memory_recall", "memory_search", "memory_store"]
    done = ("delete", "get", "put", "query", "schema", "types")
    objects = [f"object_{what}" for what in done]
    plans = ["plan_pause", "plan_revise", "plan_show", "plan_start"]
    whats = ("add", "list", "pause", "remove", "resume")
    schedules = [f"schedule_{what}" for what in whats]
    assert names(command, server__port=1) == [
        "echo",
        "inbox",
        *memory,
        *objects,
        *plans,
        "pubsub_publish",
        *schedules,
        "time",
        *watches,
    ]
    assert not Path("data").exists()


def test_json_holds_the_schemas(command: RunCommand) -> None:
    result = command("skills", "list", "--json", "newest", conformance__enabled=True)
    assert json.loads(result.stdout) == []
    result = command("skills", "list", "--json", "sum integers", conformance__enabled=True)
    (add,) = json.loads(result.stdout)
    assert add["name"] == "conformance.add"
    assert set(add["inputSchema"]["properties"]) == {"a", "b"}
    assert add["outputSchema"]["type"] == "integer"
    assert add["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


def test_skills_list_for_an_address_shows_only_its_skills(command: RunCommand) -> None:
    settings = {"conformance__enabled": True, "policy__rules": RULE}
    every = names(command, **settings)
    romeo = names(command, "--for", "romeo@localhost", **settings)
    juliet = names(command, "--for", "juliet@localhost/phone", **settings)
    assert set(romeo) - set(juliet) == {"conformance.add"}
    assert romeo == every
    assert "conformance.hidden" not in every
    assert names(command, "--for", "somebody@elsewhere.example", **settings) == []


def test_what_is_not_there_is_said(command: RunCommand) -> None:
    stranger = command("skills", "list", "--for", "somebody@elsewhere.example")
    assert stranger.stdout == "No skill matches.\n"
    assert command("skills", "list", "nosuchword").stdout == "No skill matches.\n"
    assert stranger.exit_code == ExitCode.OK


def test_what_is_no_address(command: RunCommand) -> None:
    result = command("skills", "list", "--for", "a@@b")
    assert result.exit_code == ExitCode.FAILURE
    assert result.stderr.startswith("error: 'a@@b' is not a JID: ")


def test_too_many_words(command: RunCommand) -> None:
    result = command("skills", "list", *(f"word{number}" for number in range(1000)))
    assert result.exit_code == ExitCode.FAILURE
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_configuration_that_cannot_be_kept_to(command: RunCommand) -> None:
    for setting, value in (
        ("agent__allowed_jids", "juliet@localhost/phone"),
        ("skills__modules", "nosuch_skills"),
    ):
        result = command("skills", "list", **{setting: [value]})
        assert result.exit_code == ExitCode.CONFIG
        assert result.stdout == ""
