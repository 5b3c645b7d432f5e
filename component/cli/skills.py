"""`xmpp-agent skills`: what the configuration offers, without connecting."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component.cli.frame import ConfigFault, Fault, config_option, load_settings

if TYPE_CHECKING:
    from component.skills import AnySkill


@click.group()
def skills() -> None:
    """Show the skills that are offered."""


@skills.command("list")
@config_option
@click.option(
    "--for",
    "principal",
    metavar="JID",
    help="Only what this address sees and may execute; otherwise all but hidden ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the schemas.")
@click.argument("words", nargs=-1)
def list_skills(config: Path, principal: str | None, as_json: bool, words: tuple[str, ...]) -> None:
    """List the skills, or those in which all WORDS occur.

    \b
    Examples:
      xmpp-agent skills list
      xmpp-agent skills list --for juliet@example.com
      xmpp-agent skills list --json weather | jq '.[].name'
    """
    found = _find(config, principal, words)
    if as_json:
        click.echo(json.dumps([_as_json(skill) for skill in found], indent=2, ensure_ascii=False))
        return
    if not found:
        click.echo("No skill matches." if words or principal else "No skill is offered.")
        return
    _print_table(found)


def _find(config: Path, principal: str | None, words: tuple[str, ...]) -> list["AnySkill"]:
    from component.policy import PolicyError  # noqa: PLC0415 - --help needs none of it
    from component.service import load_skills, make_policy  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SearchError, SkillLoadError  # noqa: PLC0415
    from xep.jid import JID, JIDError  # noqa: PLC0415

    settings = load_settings(config)
    try:
        policy, registry = make_policy(settings), load_skills(settings)
    except PolicyError as error:
        raise ConfigFault(*map(str, error.entries)) from None
    except (SkillLoadError, DuplicateSkillError) as error:
        raise ConfigFault(str(error)) from None
    if principal is None:
        view = registry.view("all", lambda _skill: True)
    else:
        try:
            key = policy.view_key(JID.parse(principal).bare)
        except JIDError as error:
            raise Fault(f"{principal!r} is no JID: {error}") from None
        view = registry.view(key, lambda skill: policy.may_use(key, skill.name))
    try:
        names = view.names(" ".join(words))
    except SearchError as error:
        raise Fault(str(error)) from None
    return [skill for name in names if (skill := view.get(name)) is not None]


def _as_json(skill: "AnySkill") -> dict[str, Any]:
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
        "inputSchema": skill.inputs.schema,
        "outputSchema": skill.outputs.schema,
    }


def _print_table(found: list["AnySkill"]) -> None:
    from rich.table import Table  # noqa: PLC0415 - only a table needs it

    from component.cli.rows import print_table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Skill", "Parameters", "What it does", "Effects"):
        table.add_column(column, overflow="fold")
    for skill in found:
        params = ", ".join(f"{p.name}{'' if p.required else '?'}" for p in skill.inputs.params)
        first = skill.description.strip().partition("\n")[0]
        table.add_row(skill.name, params, first, _effects(skill))
    print_table(table)


def _effects(skill: "AnySkill") -> str:
    marks = skill.annotations
    if marks.read_only:
        return "reads only"
    return "destructive" if marks.destructive else "changes things"
