"""`xmpp-agent skills list|show|approve|revoke` without a running service, and what doctor says."""

import json
from pathlib import Path
from typing import Any

import anyio

from component.app.schema import SCHEMA
from component.cli.frame import ExitCode
from component.features.installed_skills.descriptions import content_of
from component.features.installed_skills.rows import offered
from component.skill_directories.proposals import Proposal, ProposalFolder
from component.store import Storage
from tests.component.cli.conftest import RunCommand
from tests.component.features.installed_skills.described import SOURCE, described
from tests.component.features.installed_skills.world import install
from tests.component.features.proposals.world import renamed

HERE = {"skills__directories": ["./skills"]}


def listed(command: RunCommand) -> dict[str, dict[str, Any]]:
    result = command("skills", "list", "--json", "greet", **HERE)
    assert result.exit_code == ExitCode.OK, result.output
    return {one["name"]: one for one in json.loads(result.stdout)}


def test_a_skill_is_shown_approved_changed_and_revoked(command: RunCommand) -> None:
    install(Path("skills"), capabilities='network = ["https://api.example.com"]')
    assert listed(command)["greet"]["state"] == "waiting"
    shown = command("skills", "show", "greet", **HERE)
    assert "+ connect to https://api.example.com:443" in shown.stdout
    asks = command("skills", "approve", "greet", **HERE)
    assert asks.exit_code == ExitCode.USAGE
    assert "add --yes" in asks.stderr
    approved = command("skills", "approve", "--yes", "greet", **HERE)
    assert approved.exit_code == ExitCode.OK, approved.output
    assert "greet is offered." in approved.stdout
    assert listed(command)["greet"]["state"] == "offered"
    table = command("skills", "list", **HERE).stdout
    assert "Installed in directories" in table
    digest = json.loads(command("skills", "show", "--json", "greet", **HERE).stdout)["digest"]
    install(Path("skills"), capabilities='memory_read = ["skill"]')
    assert listed(command)["greet"]["state"] == "changed"
    shown = command("skills", "show", "greet", **HERE).stdout
    assert "+ read its own memories of its caller" in shown
    assert "- connect to https://api.example.com:443" in shown
    late = command("skills", "approve", "--yes", "--digest", digest[:12], "greet", **HERE)
    assert late.exit_code == ExitCode.FAILURE
    assert "has changed" in late.stderr
    revoked = command("skills", "revoke", "greet", **HERE)
    assert revoked.exit_code == ExitCode.OK
    assert listed(command)["greet"]["state"] == "revoked"
    again = command("skills", "revoke", "greet", **HERE)
    assert "No skill called 'greet' is approved" in again.stderr


def test_a_broken_skill_says_why(command: RunCommand) -> None:
    directory = install(Path("skills"))
    (directory / "skill.toml").write_text("[skill]\nnam = 1\n")
    (found,) = listed(command).values()
    assert found["state"] == "failed"
    assert "did you mean name?" in found["reason"]
    refused = command("skills", "approve", "--yes", "greet", **HERE)
    assert refused.exit_code == ExitCode.FAILURE
    assert "did you mean name?" in refused.stderr


def test_without_directories_there_is_nothing_to_approve(command: RunCommand) -> None:
    refused = command("skills", "approve", "--yes", "greet")
    assert refused.exit_code == ExitCode.USAGE
    assert "[skills] directories" in refused.stderr


def test_doctor_says_what_cannot_be_loaded(command: RunCommand) -> None:
    install(Path("skills"), "one")
    directory = install(Path("skills"), "two")
    found = command("doctor", **HERE).output
    assert "2 skills are installed" in found
    (directory / "skill.toml").write_text("[skill]\nnam = 1\n")
    assert "two cannot be loaded: skill.toml: " in command("doctor", **HERE).output
    missing = command("doctor", skills__directories=["./nowhere"]).output
    assert "nowhere cannot be read" in " ".join(missing.split())


def test_a_proposal_is_listed_shown_approved_with_its_digest_and_rejected(
    command: RunCommand,
) -> None:
    here = {"skills__proposals__enabled": True}
    folder = ProposalFolder(Path("data/proposed-skills"))
    record = Proposal(principal="juliet@example.com", taints=("web",), description="Do it.")
    for name in ("one", "two"):
        files = renamed(name)
        folder.propose(name, {"skill.toml": files["manifest"]}, record)
    found = json.loads(command("skills", "list", "--json", "one", **here).stdout)
    (reason,) = (one["reason"] for one in found if one["name"] == "one")
    assert reason == "proposed by juliet@example.com; no admin has approved it"
    doctor = " ".join(command("doctor", **here).output.split())
    assert "proposed and not approved: one (by juliet@example.com), two" in doctor
    shown = command("skills", "show", "one", **here).stdout
    assert "WARNING: the model had read texts of strangers (web)" in shown
    assert "----- skill.toml" in shown
    refused = command("skills", "approve", "--yes", "one", **here)
    assert refused.exit_code == ExitCode.FAILURE
    assert "--digest" in refused.stderr
    (digest,) = (line[8:] for line in shown.splitlines() if line.startswith("Digest: "))
    approved = command("skills", "approve", "--yes", "--digest", digest, "one", **here)
    assert approved.exit_code == ExitCode.OK, approved.output
    assert command("skills", "reject", "one", **here).exit_code == ExitCode.FAILURE
    assert "two is deleted." in command("skills", "reject", "two", **here).stdout
    assert "proposed and not approved" not in command("doctor", **here).output


def test_without_proposals_the_directory_need_not_exist(command: RunCommand) -> None:
    found = command("doctor", skills__proposals__enabled=True).output
    assert "cannot be read" not in found
    assert "0 skills are installed" in found


def test_a_changed_description_is_listed_shown_and_approved_with_its_digest(
    command: RunCommand,
) -> None:
    here = {"mcp__clock__command": ["no-such-server"]}

    async def offer(*descriptions: str) -> None:
        async with Storage.open(SCHEMA, Path("data")) as storage:
            for text in descriptions:
                contents = {"greet": content_of(described("greet", text))}
                await offered(storage, SOURCE, contents, hold_first=False)

    def ask(*words: str) -> Any:
        return command("skills", *words, **here)

    anyio.run(offer, "Say hello.")
    assert "new or changed descriptions" not in command("doctor", **here).output
    anyio.run(offer, "Say bye.")
    doctor = " ".join(command("doctor", **here).output.split())
    assert f"The source {SOURCE} has new or changed descriptions" in doctor
    (found,) = json.loads(ask("list", "--json", "greet").stdout)
    assert (found["state"], found["kind"]) == ("changed", SOURCE)
    shown = ask("show", "greet").stdout
    assert "-  Say hello." in shown
    assert "+  Say bye." in shown
    assert "It may use nothing" not in shown
    refused = ask("approve", "--yes", "greet")
    assert refused.exit_code == ExitCode.FAILURE
    assert "digest of what you have read" in refused.stderr
    digest = json.loads(ask("show", "--json", "greet").stdout)["digest"]
    approved = ask("approve", "--yes", "--digest", digest[:12], "greet")
    assert "greet is offered." in approved.stdout
    assert "by operator" in approved.stdout
    assert "greet is not offered any more." in ask("revoke", "greet").stdout
    (found,) = json.loads(ask("list", "--json", "greet").stdout)
    assert found["state"] == "waiting"
