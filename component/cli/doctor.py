"""`xmpp-agent doctor`: check the setup and say how to correct it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from component.cli.frame import Fault, config_option, json_option, load_settings

if TYPE_CHECKING:
    from component.config import Settings
    from component.kernel.check import Check

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "failed": ("failed", "red")}


@click.command()
@config_option
@json_option("Print JSON, one object per check.")
@click.option("--repair", is_flag=True, help="Remove other users' permissions from the files.")
def doctor(config: Path, as_json: bool, repair: bool) -> None:
    """Check the configuration, the data directory and the connection to the XMPP server.

    This includes the policy, skills, language models, file permissions, memory, personas and
    metrics. Models are not asked to generate text, so the check costs nothing.

    Stop the service first: its connection cannot be checked while it runs. The exit code is 0 if
    every check passes, otherwise 1.

    \b
    Examples:
      xmpp-agent doctor --config agent.toml
      xmpp-agent doctor --json | jq 'select(.verdict != "ok")'
    """
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415
    from component.kernel.check import Check  # noqa: PLC0415

    settings = load_settings(config)
    # The checks report their own errors.
    logs.configure("error", settings.log.format)
    _show(Check("configuration", "ok", f"{config} can be read"), as_json)
    failed = anyio.run(_look, settings, as_json, repair, backend=settings.backend)
    if failed:
        raise Fault("1 check failed." if failed == 1 else f"{failed} checks failed.")


async def _look(settings: "Settings", as_json: bool, repair: bool) -> int:
    from component.app.checks import check_all  # noqa: PLC0415

    failed = 0
    async for check in check_all(settings, repair=repair):
        _show(check, as_json)
        failed += check.verdict == "failed"
    return failed


def _show(check: "Check", as_json: bool) -> None:
    if as_json:
        found = {"name": check.name, "verdict": check.verdict, "text": check.text}
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    word, colour = _MARKS[check.verdict]
    mark = click.style(f"{word:<6}", fg=colour, bold=True)
    first, *more = check.text.splitlines()
    click.echo(f"{mark} {check.name:<18} {first}")
    for line in more:
        click.echo(f"{'':<26}{line}")
