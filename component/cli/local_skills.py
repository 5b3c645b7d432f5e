"""Skills on this machine, for their authors: no server is needed, and mostly no configuration."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import click
import msgspec

from component import system
from component.cli import frame
from component.cli.frame import Fault, load_settings
from component.cli.prompts import InputEnded, Prompt
from component.skills import errors, operations
from component.skills.form_fields import ABSENT, Property, properties_of
from component.skills.inputs import SchemaInputs, schema_inputs
from component.skills.loading import load_module, skills_of
from component.skills.manifest import FILE, ManifestError

if TYPE_CHECKING:
    from component.config import Settings
    from component.skill_directories.host_functions import Services
    from component.skills.skill import Skill


@asynccontextmanager
async def opened(name: str, config: Path, *, trusted: bool) -> AsyncIterator[Skill]:
    """Yield the skill of a file (`menu.py`, or `menu.py:lunch` if it has several), of a directory,
    or of the configuration, ready to be called. Raises Fault.
    """
    try:
        if await anyio.Path(name).is_dir():
            async with directory_skill(Path(name), trusted=trusted) as skill:
                yield skill
            return
        file, _, wanted = name.rpartition(":") if ".py:" in name else (name, "", "")
        if file.endswith(".py"):
            yield _one(skills_of(load_module(Path(file))), wanted, file)
            return
        async with _configured(name, config, trusted=trusted) as skill:
            yield skill
    except (errors.SkillLoadError, ManifestError, errors.DuplicateSkillError) as error:
        raise Fault(str(error)) from error


@asynccontextmanager
async def directory_skill(
    directory: Path, *, trusted: bool, services: Services | None = None
) -> AsyncIterator[Skill]:
    """Yield the skill of a directory, as the service runs it when it is approved.

    `services` is what the service has for it; by default no credentials and no memory. Raises
    SkillLoadError, ManifestError.
    """
    from component.skill_directories.host_functions import Services  # noqa: PLC0415
    from component.skill_directories.version import opened_skill  # noqa: PLC0415

    if not await anyio.Path(directory / FILE).is_file():
        raise errors.SkillLoadError(f"{directory} has no {FILE}: name the directory of one skill.")
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-skill-") as temporary:
        where = Path.cwd() / directory
        async with opened_skill(
            where, Path(temporary), services or Services(), trusted=trusted
        ) as skill:
            yield skill


@asynccontextmanager
async def _configured(name: str, config: Path, *, trusted: bool) -> AsyncIterator[Skill]:
    """Yield an installed skill, or another one that is configured. Without a configuration, these
    are the built-in ones.
    """
    if not await anyio.Path(config).exists():
        from component.skills.builtin import builtin_skills  # noqa: PLC0415

        yield _one([one for one in builtin_skills() if one.name == name], name, "this program")
        return
    from component.app.outside_service import not_ready, open_skills  # noqa: PLC0415

    settings = await system.in_thread(load_settings, config)
    directory = await system.in_thread(_installed, name, settings)
    if directory is not None:
        async with directory_skill(directory, trusted=trusted) as skill:
            yield skill
        return
    async with open_skills(settings) as (registry, late):
        found = registry.get(name)
        if found is not None:
            yield found
            return
    more = (not_ready(source, reason) for source, reason in late.items())
    raise Fault(f"There is no skill called {name!r} in {config}.", *more)


def _installed(name: str, settings: Settings) -> Path | None:
    from component.skill_directories.content import read_roots  # noqa: PLC0415

    found, _ = read_roots([root.absolute() for root in settings.skill_roots], {})
    return next((one.directory for one in found.values() if one.name == name), None)


def _one(found: Sequence[Skill], wanted: str, where: str) -> Skill:
    named = [one for one in found if not wanted or one.name == wanted]
    if not named:
        raise Fault(f"There is no skill called {wanted!r} in {where}.")
    if len(named) > 1:
        names = ", ".join(one.name for one in named)
        raise Fault(f"{where} has several skills ({names}): write {where}:{named[0].name}.")
    return named[0]


class TerminalHost(operations.PartialHost):
    """Performs operations without a service: steps run and are not recorded, and nothing survives
    the command.
    """

    def __init__(self) -> None:
        self.key = system.token_hex(16)

    def unsupported(self, method: str) -> errors.UsageError:
        """Return the error for what only a service can do."""
        return errors.UsageError(
            f"A skill that uses context.{method} needs a running service: `xmpp-agent demo`."
        )

    async def _do_progress(self, report: operations.ReportProgress) -> None:
        click.echo(f"{report.fraction:4.0%} {report.text}".rstrip(), err=True)

    async def _do_output(self, part: operations.PublishPart) -> None:
        click.echo(part.text, nl=part.last and not part.text.endswith("\n"))

    async def _do_step(self, step: operations.RunStep, work: operations.Work[bytes]) -> bytes:
        return await work(f"{self.key} {step.name}")

    async def _do_ask(self, asked: operations.AskPrincipal) -> bytes:
        schema = msgspec.json.decode(asked.schema, type=dict[str, Any])
        decline = " (Ctrl-D declines)" if frame.interactive() else ""
        click.echo(f"{asked.question}{decline}", err=True)
        try:
            return msgspec.json.encode(await ask_for_object(schema))
        except InputEnded as ended:
            if frame.interactive():
                click.echo("Declined.", err=True)
                raise errors.Denied("declined on the terminal") from None
            names = ", ".join(one.name for one in properties_of(schema))
            raise Fault(
                f"{ended} Answer the skill on a terminal, or write a line for each of these to"
                f" standard input: {names}."
            ) from None

    async def _do_sleep(self, sleep: operations.Sleep) -> None:
        await anyio.sleep(sleep.seconds)

    async def _do_llm(self, _asked: operations.AskModel, _check: object) -> str:
        raise operations.ModelFailed(
            "unavailable", "No language model is available on the command line."
        )


async def ask_for_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Ask for each property of a schema, and return their values, which fit it.

    Raises InputEnded, and Fault if there is no terminal to ask again on.
    """
    while True:
        values = await ask_for_properties(schema)
        try:
            schema_inputs(schema).complete(values)
        except errors.InvalidParam as error:  # of values that do not fit together
            if not frame.interactive():
                raise Fault(str(error)) from None
            click.echo(str(error), err=True)
        else:
            return values


async def ask_for_properties(schema: dict[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """Ask for the properties of these names, by default for all, and return their values, each of
    which is valid. Raises like `ask_for_object`.
    """
    inputs = schema_inputs(schema)
    asked = [one for one in properties_of(schema) if not names or one.name in names]
    values = {one.name: await _prompt(one, inputs).ask_in_loop() for one in asked}
    return {name: value for name, value in values.items() if value is not ABSENT}


def _prompt(one: Property, inputs: SchemaInputs) -> Prompt[Any]:
    several = one.kind in ("lines", "choices")

    def read(line: str) -> Any:
        if one.required and not one.nullable and not line.strip():
            raise ValueError("an answer is needed")
        value = one.read([part.strip() for part in line.split(",")] if several else [line])
        if value is not ABSENT:
            for mismatch in inputs.validator.mismatches({one.name: value}):
                if mismatch.member == one.name:  # others are not asked yet
                    raise ValueError(mismatch.reason)
        return value

    default = (", " if several else "\n").join(one.shown_default()) or None
    optional = "" if one.required or default else ", may be empty"
    what = f"{one.reader.expected}{', separated by commas' if several else ''}{optional}"
    return Prompt(f"{one.title or one.name} ({what})", read, default)
