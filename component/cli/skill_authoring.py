"""`xmpp-agent skills new|call|test`: for the authors of skills. No server is needed."""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from component.cli import frame
from component.cli.frame import (
    ExitCode,
    Fault,
    config_option,
    json_option,
    print_json,
)

if TYPE_CHECKING:
    from component.skills.outputs import Part, SkillResult
    from component.skills.skill import Skill


_TEMPLATES: Final = Path(__file__).with_name("templates")
"""The directory of the texts of new skills. `@NAME@` stands for the name of the skill."""
_KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "python": {"skill.toml": "manifest.toml", "main.py": "main.py.txt"},
    "wasm-rust": {"skill.toml": "manifest.toml", "main.rs": "main.rs"},
    "wasm-c": {"skill.toml": "manifest.toml", "main.c": "main.c"},
    "rest": {"skill.toml": "rest.toml", "tests/cases.toml": "rest_cases.toml"},
}
"""The files of a new skill of each kind, and their templates."""
_BUILDS: Final[Mapping[str, str]] = {
    "wasm-rust": "rustc --edition 2021 --target wasm32-wasip1 -O main.rs -o skill.wasm",
    "wasm-c": "clang --target=wasm32-wasi -O2 main.c -o skill.wasm",
}
"""The command that builds each kind that has to be built."""


def new_files(kind: str, name: str) -> dict[str, str]:
    """Return the files of a new skill of a kind."""
    schemas = {"python": (), "rest": ("schema.toml", "language.toml")}.get(kind, ("schema.toml",))
    values = {
        "@NAME@": name,
        "@SCHEMA@": "".join(map(_template, schemas)),
        "@KIND@": "python" if kind == "python" else "wasm",
        "@ENTRY@": "main.py" if kind == "python" else "skill.wasm",
    }
    templates = dict(_KINDS[kind])
    templates.setdefault("tests/cases.toml", "cases.toml")
    made = {}
    for path, template in templates.items():
        text = _template(template)
        for mark, value in values.items():
            text = text.replace(mark, value)
        made[path] = text
    return made


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(_KINDS)),
    default="python",
    show_default=True,
    help="What the skill is written in, and runs as.",
)
@click.option(
    "--directory",
    "-d",
    type=click.Path(path_type=Path),
    help="Directory to write it into.  [default: the name]",
)
def new(name: str, kind: str, directory: Path | None) -> None:
    """Write a new skill into a directory: a manifest, code and a test.

    A skill of the kind rest needs no code: its manifest has an HTTP request.

    \b
    Examples:
      xmpp-agent skills new weather
      xmpp-agent skills new weather.today --directory skills/weather
      xmpp-agent skills new weather --kind wasm-rust
    """
    from component.skills.manifest import ManifestError, read_manifest  # noqa: PLC0415

    target = Path(name) if directory is None else directory
    files = new_files(kind, name)
    try:
        read_manifest(files["skill.toml"])
    except ManifestError as error:
        raise click.UsageError(str(error)) from None
    try:
        if target.exists() and any(target.iterdir()):
            raise Fault(f"{target} is not empty: choose another directory with --directory.")
        for path, text in files.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fault(f"{target} cannot be written: {error.strerror or error}.") from None
    click.echo(f"Wrote {', '.join(files)} to {target}. Next:")
    where = target if target.is_absolute() else f"./{target}"
    if kind in _BUILDS:
        click.echo(f"  (cd {target} && {_BUILDS[kind]})")
    click.echo(f"  xmpp-agent skills test {where}")
    if kind == "rest":
        click.echo("  (write the request of your API into skill.toml)")
    else:
        click.echo(f"  xmpp-agent skills call {where} who=Romeo")


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
@json_option()
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
    of a configured skill; without a configuration, of a built-in one. Questions of the skill, and
    parameters that are missing, are asked for on the terminal; without one, answers to questions
    are read from standard input, a line each. The exit code is 1 if the skill reports an error.

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

    async def run() -> SkillResult:
        return await _call(name, config, texts, json_params, principal, trusted=trusted)

    made = anyio.run(run, backend="trio")
    _print(made, as_json=as_json)
    if made.is_error:
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
    from component.cli.local_skills import TerminalHost, opened  # noqa: PLC0415
    from component.skills.calling import Threads  # noqa: PLC0415
    from component.skills.calling import call as call_skill  # noqa: PLC0415
    from component.skills.context import Context  # noqa: PLC0415
    from component.skills.errors import CALL_ERRORS, InvalidParam, SkillFailed  # noqa: PLC0415
    from component.skills.params import prepare  # noqa: PLC0415

    fault: Fault | None = None
    async with opened(name, config, trusted=trusted) as skill:
        try:
            arguments = prepare(skill, texts, json_params or await _missing(skill, texts))
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
            if isinstance(cause, Fault):  # of the terminal
                fault = cause
            else:
                fault = Fault(str(error) if cause is None else f"{type(cause).__name__}: {cause}")
                fault.__cause__ = cause
        except CALL_ERRORS as error:
            fault = Fault(str(error))
    assert fault is not None, "it has returned otherwise"
    raise fault


async def _missing(skill: Skill, texts: Sequence[tuple[str, str]]) -> str | None:
    """Ask for the required parameters that were not given, and return them as JSON. Raises Fault
    without a terminal.
    """
    from component.cli.local_skills import ask_for_properties  # noqa: PLC0415

    given = {name for name, _ in texts}
    names = [one.name for one in skill.inputs.params if one.required and one.name not in given]
    if not names:
        return None
    if not frame.interactive():
        raise Fault(
            f"Parameters are missing: {', '.join(names)}. Add them, such as {names[0]}=VALUE."
        )
    return json.dumps(await ask_for_properties(dict(skill.input_schema), names))


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
        print_json(shown)
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
    found = anyio.run(partial(_cases, directory, trusted=trusted), backend="trio")
    for name, problem in found:
        mark = click.style("ok", fg="green") if not problem else click.style("failed", fg="red")
        click.echo(f"{mark:<6} {name}" + (f": {problem}" if problem else ""))
    failed = any(problem for _, problem in found)
    files = sorted((directory / "tests").glob("test_*.py"))
    if files and trusted:
        failed = _pytest(directory, files) or failed
    elif files:
        click.echo(f"not run: {', '.join(each.name for each in files)} (add --trusted)", err=True)
    if failed:
        raise click.exceptions.Exit(ExitCode.FAILURE)
    click.echo(f"{directory} can be offered.")


async def _cases(directory: Path, *, trusted: bool) -> Sequence[tuple[str, str]]:
    from component.cli.local_skills import directory_skill  # noqa: PLC0415
    from component.skill_directories.cases import ScriptedNetwork, read_cases, run_case  # noqa: PLC0415
    from component.skill_directories.host_functions import Services  # noqa: PLC0415
    from component.skills.errors import SkillLoadError  # noqa: PLC0415
    from component.skills.manifest import ManifestError  # noqa: PLC0415

    try:
        cases = read_cases(directory)
        network = ScriptedNetwork()
        services = Services(gates=network.gate)
        async with directory_skill(directory, trusted=trusted, services=services) as skill:
            return [(case.name, await run_case(skill, case, network)) for case in cases]
    except (SkillLoadError, ManifestError) as error:
        raise Fault(str(error)) from error


def _pytest(directory: Path, files: Sequence[Path]) -> bool:
    if importlib.util.find_spec("pytest") is None:
        raise Fault("The Python tests need pytest: pip install pytest.")
    names = [str(each.relative_to(directory)) for each in files]
    # `-m` adds the current directory to the path, so tests import main.py.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, cwd=directory, check=False)  # noqa: S603 - with --trusted only
    return done.returncode != 0
