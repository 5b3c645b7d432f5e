"""`xmpp-agent skills list|show|approve|revoke|reject`: configured and installed skills."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component.cli import frame
from component.cli.operator import ServiceCommand, ask_about, print_answer
from component.cli.prompts import confirm_or_exit

if TYPE_CHECKING:
    from component.config import Settings
    from component.policy import Policy
    from component.skills import Registry, Skill


@click.command("list")
@frame.config_option
@click.option(
    "--for",
    "principal",
    metavar="JID",
    help="List the skills that this address may execute. By default, all skills that are not"
    " hidden.",
)
@frame.json_option("Print JSON, including the schemas.")
@click.argument("words", nargs=-1)
def list_skills(config: Path, principal: str | None, as_json: bool, words: tuple[str, ...]) -> None:
    """List all skills, or those that match all WORDS.

    MCP servers, APIs and workers are asked for theirs, whether or not the service runs; one that
    does not answer within ten seconds is named on stderr.

    Skills of directories have a state: `offered`; `changed` if the approved version is offered and
    another one waits; `waiting` for an approval; `revoked`; `failed` with a reason; `missing`.

    \b
    Examples:
      xmpp-agent skills list
      xmpp-agent skills list --for juliet@example.com
      xmpp-agent skills list --json weather | jq '.[].name'
    """
    found, installed = _find(config, principal, words)
    if as_json:
        frame.print_json([*map(_as_json, found), *installed])
        return
    if not found and not installed:
        click.echo("No skill matches." if words or principal else "There are no skills.")
        return
    from component.cli.rows import print_rows  # noqa: PLC0415 - only a table needs it

    if found:
        print_rows([_row(skill) for skill in found])
    if installed:
        click.echo("\nInstalled in directories, or described by others:")
        print_rows([_installed_row(one) for one in installed])


def _find(
    config: Path, principal: str | None, words: tuple[str, ...]
) -> tuple[list["Skill"], list[dict[str, Any]]]:
    import anyio  # noqa: PLC0415

    from component import logs  # noqa: PLC0415
    from component.app.outside_service import not_ready, open_skills  # noqa: PLC0415
    from component.kernel.options import make_policy  # noqa: PLC0415
    from component.policy import PolicyError  # noqa: PLC0415 - --help needs none of it
    from component.skills import DuplicateSkillError, SearchError, SkillLoadError  # noqa: PLC0415

    settings = frame.load_settings(config)
    logs.configure("error", "human")

    async def offered() -> "Registry":
        async with open_skills(settings) as (registry, late):
            for source, reason in late.items():
                click.echo(not_ready(source, reason), err=True)
            return registry

    try:
        policy = make_policy(settings)
        registry = anyio.run(offered, backend=settings.backend)
    except PolicyError as error:
        raise frame.ConfigFault(*map(str, error.entries)) from None
    except (SkillLoadError, DuplicateSkillError) as error:
        raise frame.ConfigFault(str(error)) from None
    may_use = _may_use(policy, principal)
    view = registry.view("one", may_use)
    try:
        names = view.names(" ".join(words))
    except SearchError as error:
        raise frame.Fault(str(error)) from None
    # What others describe is among the skills of their source, unless an admin has to decide.
    decided = {
        one["name"]: one
        for one in _installed(settings)
        if one["directory"] or one["state"] != "offered"
    }
    skills = [skill for name in names if (skill := view.get(name)) is not None]
    return [skill for skill in skills if skill.name not in decided], [
        one
        for name, one in decided.items()
        if may_use(name) and all(word.casefold() in name for word in words)
    ]


def _may_use(policy: "Policy", principal: str | None) -> Callable[[str], bool]:
    from xep.jid import JID, JIDError  # noqa: PLC0415

    if principal is None:
        return lambda _name: True
    try:
        key = policy.view_key(JID.parse(principal).bare)
    except JIDError as error:
        raise frame.Fault(f"{principal!r} is not a JID: {error}") from None
    return lambda name: policy.may_use(key, name)


def _installed(settings: "Settings") -> list[dict[str, Any]]:
    if not (settings.skill_roots or settings.described_sources):
        return []
    found: list[dict[str, Any]] = json.loads(
        bytes(ask_about(settings, "installed-skills", {}).value)
    )
    return found


def _as_json(skill: "Skill") -> dict[str, Any]:
    return {
        "name": skill.name,
        "version": skill.version,
        "title": skill.title,
        "description": skill.description,
        "tags": skill.tags,
        "annotations": {
            "readOnlyHint": skill.annotations.read_only,
            "destructiveHint": skill.annotations.destructive,
            "idempotentHint": skill.annotations.idempotent,
            "openWorldHint": skill.annotations.open_world,
        },
        "inputSchema": skill.input_schema,
        "outputSchema": skill.output_schema,
        "source": skill.source,
        "state": "offered",
    }


def _row(skill: "Skill") -> dict[str, str]:
    marks = skill.annotations
    changes = "destructive" if marks.destructive else "changes things"
    return {
        "skill": skill.name,
        "parameters": ", ".join(
            f"{p.name}{'' if p.required else '?'}" for p in skill.inputs.params
        ),
        "description": skill.description.strip().partition("\n")[0],
        "effects": "reads only" if marks.read_only else changes,
    }


def _installed_row(one: dict[str, Any]) -> dict[str, str]:
    kind = f"{one['kind']}, trusted" if one["trusted"] else one["kind"]
    shown = {"skill": one["name"], "version": one["version"], "kind": kind}
    return shown | {key: one[key] for key in ("state", "reason")}


def _check_installed(settings: "Settings") -> None:
    if not (settings.skill_roots or settings.described_sources):
        raise click.UsageError(
            "The settings name no directories of skills: add [skills] directories."
        )


def _about_one(command: str, name: str, examples: str) -> ServiceCommand:
    outline = f"component.features.installed_skills.commands:{command}"
    return ServiceCommand(
        outline, name, examples, check=_check_installed, as_text=True, group="skills "
    )


show = _about_one("SHOW_SKILL", "show", "weather.today\nweather.today --json | jq -r .digest")
revoke = _about_one("REVOKE_SKILL", "revoke", "weather.today")
reject = _about_one("REJECT_SKILL", "reject", "weather.today")


@click.command()
@click.argument("name")
@click.option(
    "--trusted",
    is_flag=True,
    help="Run it inside the service, where nothing limits it. Only for Python skills whose author"
    " you trust.",
)
@click.option(
    "--digest",
    default="",
    metavar="DIGEST",
    help="Approve only this content: the beginning of the digest that `skills show` prints.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@frame.json_option()
@frame.config_option
def approve(name: str, trusted: bool, digest: str, yes: bool, as_json: bool, config: Path) -> None:
    """Offer an installed skill, with the capabilities that it declares.

    What runs is the content that was shown; a later change has to be approved again.

    \b
    Examples:
      xmpp-agent skills approve weather.today
      xmpp-agent skills approve --yes --digest 4f1c09aa weather.today
    """
    settings = frame.load_settings(config)
    if not yes:
        if not frame.interactive():
            raise click.UsageError(
                "There is no terminal to ask for confirmation: look at the skill with"
                f" `xmpp-agent skills show {name}`, and add --yes."
            )
        found = ask_about(settings, "show-skill", {"name": name})
        click.echo(found.text, err=True)
        confirm_or_exit(f"Approve {name}?")
        # What was shown is approved, even if a file has changed meanwhile.
        digest = digest or json.loads(bytes(found.value))["digest"]
    _check_installed(settings)
    params = {"name": name, "digest": digest, "trusted": trusted}
    print_answer(ask_about(settings, "approve-skill", params), as_json=as_json, as_text=True)
