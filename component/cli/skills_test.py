"""`xmpp-agent skills test`: checks a skill of a directory, and runs its tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from component.cli.exit_codes import ExitCode
from component.cli.frame import Fault

if TYPE_CHECKING:
    from component.skill_directories.cases import CaseOutcome


@click.command("test")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--trusted",
    is_flag=True,
    help="Run the skill without confining it, and the Python tests in tests/ with pytest.",
)
def test(directory: Path, trusted: bool) -> None:
    """Check the skill of a directory as an approval does, and run its tests.

    The cases in tests/cases.toml run as the service runs the skill. Python tests (tests/test_*.py)
    are code of the author, so they run with --trusted only.

    \b
    Examples:
      xmpp-agent skills test ./weather
      xmpp-agent skills test --trusted ./weather
    """
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415

    logs.configure("info", "human")
    found: list[CaseOutcome] = []

    async def run() -> None:
        found.extend(await _cases(directory, trusted=trusted))

    anyio.run(run, backend="trio")
    for one in found:
        mark = click.style("ok", fg="green") if not one.problem else click.style("failed", fg="red")
        click.echo(f"{mark:<6} {one.name}" + (f": {one.problem}" if one.problem else ""))
    failed = any(one.problem for one in found)
    files = sorted((directory / "tests").glob("test_*.py"))
    if files and trusted:
        failed = _pytest(directory, files) or failed
    elif files:
        click.echo(f"not run: {', '.join(each.name for each in files)} (add --trusted)", err=True)
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILURE)
    click.echo(f"{directory} can be offered.")


async def _cases(directory: Path, *, trusted: bool) -> Sequence[CaseOutcome]:
    from component.cli.local_skills import directory_skill  # noqa: PLC0415
    from component.skill_directories.cases import (  # noqa: PLC0415
        ScriptedNetwork,
        read_cases,
        run_case,
    )
    from component.skill_directories.host_functions import Services  # noqa: PLC0415
    from component.skills.errors import SkillLoadError  # noqa: PLC0415
    from component.skills.manifest import ManifestError  # noqa: PLC0415

    try:
        cases = read_cases(directory)
        network = ScriptedNetwork()
        services = Services(gates=network.gate)
        async with directory_skill(directory, trusted=trusted, services=services) as skill:
            return [await run_case(skill, case, network) for case in cases]
    except (SkillLoadError, ManifestError) as error:
        raise Fault(str(error)) from error


def _pytest(directory: Path, files: Sequence[Path]) -> bool:
    """Run the tests of the author; return whether one failed."""
    if importlib.util.find_spec("pytest") is None:
        raise Fault("The Python tests need pytest: pip install pytest.")
    names = [str(each.relative_to(directory)) for each in files]
    # `-m` adds the current directory to the path, so tests import main.py.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, cwd=directory, check=False)  # noqa: S603 - with --trusted only
    return done.returncode != 0
