"""The context of skills that are called on the command line."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import anyio
import anyio.to_thread
import click
import msgspec

from component.cli.frame import interactive
from component.skills.durable import ChildResult, Work
from component.skills.errors import Denied, InvalidParam, UsageError
from component.skills.inputs import Param
from component.skills.model_answers import ModelFailed, ModelQuestion
from component.skills.readers import Reader
from component.skills.schema import object_schema
from component.skills.schema_inputs import checked_schema, schema_inputs

T = TypeVar("T")


class TerminalHost:
    """Implements `component.skills.durable.DurableHost` without a service: steps run and are not
    recorded, and nothing survives the command.
    """

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)
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
        return await anyio.to_thread.run_sync(_ask, question, schema, abandon_on_cancel=True)

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
