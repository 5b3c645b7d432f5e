"""Skills on this machine, for their authors: no server is needed, and mostly no configuration."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import click
import msgspec

from component import system
from component.cli.frame import Fault, interactive, load_settings
from component.skills import errors, operations
from component.skills.inputs import Param, schema_inputs
from component.skills.loading import load_module, skills_of
from component.skills.manifest import FILE, ManifestError
from component.skills.params import Reader

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


T = TypeVar("T")


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
        if not interactive():
            raise errors.UsageError(
                f"The skill asks {asked.question!r}, and there is no terminal to answer on."
            )
        return await system.in_thread(_ask, asked, abandon_on_cancel=True)

    async def _do_sleep(self, sleep: operations.Sleep) -> None:
        await anyio.sleep(sleep.seconds)

    async def _do_llm(self, _asked: operations.AskModel, _check: object) -> str:
        raise operations.ModelFailed(
            "unavailable", "No language model is available on the command line."
        )


def _ask(asked: operations.AskPrincipal) -> bytes:
    """Ask for each field on the terminal, and return the answer as JSON. Raises Denied."""
    click.echo(asked.question, err=True)
    inputs = schema_inputs(msgspec.json.decode(asked.schema, type=dict[str, Any]))
    while True:
        try:
            texts = [(one, _prompt(one, inputs.readers.get(one.name))) for one in inputs.params]
        except click.Abort:
            raise errors.Denied("declined on the terminal") from None
        try:
            values: Any = {
                one.name: inputs.readers[one.name].one(text) if one.name in inputs.readers else text
                for one, text in texts
                if text
            }
            return msgspec.json.encode(
                values if inputs.complete is None else inputs.complete(values)
            )
        except (ValueError, errors.InvalidParam) as error:  # of a reader
            click.echo(str(error), err=True)


def _prompt(param: Param, reader: Reader | None) -> str:
    words = param.name if reader is None else f"{param.name} ({reader.expected})"
    found: str = click.prompt(words, default=None if param.required else "", err=True)
    return found
