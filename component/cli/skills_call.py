"""`xmpp-agent skills call`: calls one skill, without a server."""

from __future__ import annotations

import base64
import json as json_module
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component.cli.exit_codes import ExitCode
from component.cli.frame import Fault, config_option

if TYPE_CHECKING:
    from component.skills.outputs import Part, SkillResult


@click.command()
@click.argument("name")
@click.argument("params", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--params", "json_params", metavar="JSON", help="Parameters as a JSON object.")
@click.option(
    "--trusted", is_flag=True, help="Run a Python skill of a directory without confining it."
)
@click.option(
    "--principal",
    default="you@localhost",
    show_default=True,
    metavar="JID",
    help="Address in whose name the skill runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
def call(
    name: str,
    params: tuple[str, ...],
    json_params: str | None,
    trusted: bool,
    principal: str,
    as_json: bool,
    config: Path,
) -> None:
    """Call a skill on this machine; no server is needed.

    NAME is a Python file (with several skills: FILE:SKILL), the directory of a skill, or the name
    of a configured skill; without a configuration, of a built-in one. Questions of the skill are
    asked on the terminal. The exit code is 1 if the skill reports an error.

    \b
    Examples:
      xmpp-agent skills call echo text=hello
      xmpp-agent skills call ./menu.py:lunch.order day=Monday portions=2
      xmpp-agent skills call ./weather --json city=Verona | jq .outputs
    """
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415

    logs.configure("info", "human")
    texts = [_split(each) for each in params]
    made: list[SkillResult] = []

    async def run() -> None:
        made.append(await _call(name, config, texts, json_params, principal, trusted=trusted))

    anyio.run(run, backend="trio")
    _print(made[0], as_json=as_json)
    if made[0].is_error:
        raise click.exceptions.Exit(ExitCode.FAILURE)


async def _call(
    name: str,
    config: Path,
    texts: Sequence[tuple[str, str]],
    json_params: str | None,
    principal: str,
    *,
    trusted: bool,
) -> SkillResult:
    from component.cli.local_skills import opened  # noqa: PLC0415
    from component.cli.terminal_context import TerminalHost  # noqa: PLC0415
    from component.skills.calling import call as call_skill  # noqa: PLC0415
    from component.skills.context import Context  # noqa: PLC0415
    from component.skills.errors import CALL_ERRORS, InvalidParam, SkillFailed  # noqa: PLC0415
    from component.skills.params import prepare  # noqa: PLC0415
    from component.skills.threads import Threads  # noqa: PLC0415

    fault: Fault | None = None
    async with opened(name, config, trusted=trusted) as skill:
        try:
            arguments = prepare(skill, texts, json_params)
            context = Context(
                principal=principal,
                sender=f"{principal}/terminal",
                skill=skill.name,
                agent="assistant",
                host=TerminalHost(),
            )
            return await call_skill(skill, arguments, context, Threads(4, 4).share(principal))
        except InvalidParam as error:
            known = ", ".join(
                f"{one.name}{'' if one.required else '?'}" for one in skill.inputs.params
            )
            fault = Fault(str(error), f"The parameters are: {known or 'none'}.")
        except SkillFailed as error:
            cause = error.__cause__
            fault = Fault(str(error) if cause is None else f"{type(cause).__name__}: {cause}")
            fault.__cause__ = cause
        except CALL_ERRORS as error:
            fault = Fault(str(error))
    assert fault is not None, "it has returned otherwise"
    raise fault


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{text!r} is not a parameter: write it like city=Verona.")
    return key, value


def _print(result: SkillResult, *, as_json: bool) -> None:
    if as_json:
        shown: Mapping[str, Any] = {
            "outputs": [_as_json(each) for each in result.outputs],
            "isError": result.is_error,
            "seconds": round(result.duration, 6),
        }
        click.echo(json_module.dumps(shown, indent=2, ensure_ascii=False))
        return
    echo = partial(click.echo, err=result.is_error)
    for each in result.outputs:
        if len(result.outputs) > 1:
            echo(click.style(f"{each.name or 'output'} ({each.media_type}):", bold=True))
        echo(_as_text(each))
    if not result.outputs:
        click.echo("It returned nothing.", err=True)


def _as_json(part: Part) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": part.name or "output", "type": part.media_type}
    if hasattr(part, "data"):
        return {**shown, "data": base64.b64encode(part.data).decode()}
    return {**shown, "url": part.url} if hasattr(part, "url") else {**shown, "text": part.text}


def _as_text(part: Part) -> str:
    if hasattr(part, "data"):
        return f"[a file of type {part.media_type}, {len(part.data):,} bytes; --json prints it]"
    return part.url if hasattr(part, "url") else part.text
