"""Skills on this machine, for their authors: no server is needed, and mostly no configuration."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import anyio
import anyio.to_thread
import click
import msgspec

from component import system
from component.cli.frame import Fault, interactive, load_settings
from component.skills.durable import ChildResult, Work
from component.skills.errors import (
    Denied,
    DuplicateSkillError,
    InvalidParam,
    SkillLoadError,
    UsageError,
)
from component.skills.inputs import Param
from component.skills.loading import load_module, skills_of
from component.skills.manifest import FILE, ManifestError
from component.skills.model_answers import ModelFailed, ModelQuestion
from component.skills.readers import Reader
from component.skills.schema import object_schema
from component.skills.schema_inputs import checked_schema, schema_inputs

if TYPE_CHECKING:
    from component.settings import Settings
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
        directory, configured = await system.in_thread(_configured, name, config)
        if directory is not None:
            async with directory_skill(directory, trusted=trusted) as skill:
                yield skill
        else:
            yield _one([one for one in configured if one.name == name], name, "the configuration")
    except (SkillLoadError, ManifestError, DuplicateSkillError) as error:
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
        raise SkillLoadError(f"{directory} has no {FILE}: name the directory of one skill.")
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-skill-") as temporary:
        where = Path.cwd() / directory
        async with opened_skill(
            where, Path(temporary), services or Services(), trusted=trusted
        ) as skill:
            yield skill


def _configured(name: str, config: Path) -> tuple[Path | None, Iterable[Skill]]:
    """Return the directory of an installed skill, or else all skills that are configured. Without a
    configuration these are the built-in ones.
    """
    if not config.exists():
        from component.skills.builtin import builtin_skills  # noqa: PLC0415

        return None, builtin_skills()
    from component.app.features import load_skills  # noqa: PLC0415

    settings = load_settings(config)
    return _installed(name, settings), load_skills(settings)


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


class TerminalHost:
    """Implements `component.skills.durable.DurableHost` without a service: steps run and are not
    recorded, and nothing survives the command.
    """

    def __init__(self) -> None:
        self.key = system.token_hex(16)
        self.resumes = False

    async def progress(self, fraction: float, text: str) -> None:
        """See `Context.progress`."""
        click.echo(f"{fraction:4.0%} {text}".rstrip(), err=True)

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """See `Context.output`."""
        click.echo(text, nl=last and not text.endswith("\n"))

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - as in Host
        *,
        repeatable: bool,
        key: str | int | None,
        input: object,  # noqa: A002 - as in Host
    ) -> T:
        """See `Context.step`."""
        made = await work(f"{self.key} {name}")
        return msgspec.json.decode(msgspec.json.encode(made), type=type)

    async def ask(
        self,
        question: str,
        schema: type[Any] | Mapping[str, Any],
        expires_s: float | None,
        *,
        key: str | int | None,
    ) -> Any:
        """See `Context.ask`."""
        if not interactive():
            raise UsageError(f"The skill asks {question!r}, and there is no terminal to answer on.")
        return await system.in_thread(_ask, question, schema, abandon_on_cancel=True)

    async def sleep(self, seconds: float, *, key: str | int | None) -> None:
        """See `Context.sleep`."""
        await anyio.sleep(seconds)

    async def start(
        self, skill: str, params: Mapping[str, Any], *, delay_s: float, key: str | int | None
    ) -> str:
        """See `Context.start`."""
        raise UsageError("A skill that starts others needs a running service: `xmpp-agent demo`.")

    async def wait(
        self, tasks: Sequence[str], *, eager: bool, key: str | int | None
    ) -> list[ChildResult]:
        """See `Context.wait`."""
        return []

    async def wait_for_turn(self, turn: str) -> NoReturn:
        """See `Context.wait_for_turn`."""
        raise UsageError("A skill that waits for a turn needs a running service.")

    async def llm(self, question: ModelQuestion, *, key: str | int | None) -> str:
        """See `Context.llm`."""
        raise ModelFailed("unavailable", "No language model is available on the command line.")


def _ask(question: str, schema: type[Any] | Mapping[str, Any]) -> Any:
    """Ask for each field on the terminal. Raises Denied."""
    click.echo(question, err=True)
    if isinstance(schema, Mapping):
        inputs, wanted = schema_inputs(checked_schema(schema)), dict[str, Any]
    else:
        inputs, wanted = schema_inputs(object_schema(schema)), schema
    while True:
        try:
            texts = [(one, _prompt(one, inputs.readers.get(one.name))) for one in inputs.params]
        except click.Abort:
            raise Denied("declined on the terminal") from None
        try:
            values = {
                one.name: inputs.readers[one.name].one(text) if one.name in inputs.readers else text
                for one, text in texts
                if text
            }
            if inputs.complete is not None:
                return msgspec.convert(inputs.complete(values), wanted)
            return msgspec.convert(values, wanted)
        except (ValueError, InvalidParam) as error:  # of a reader, or a ValidationError
            click.echo(str(error), err=True)


def _prompt(param: Param, reader: Reader | None) -> str:
    words = param.name if reader is None else f"{param.name} ({reader.expected})"
    found: str = click.prompt(words, default=None if param.required else "", err=True)
    return found
