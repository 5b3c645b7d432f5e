"""Skills with known behaviour, which the conformance kit calls.

They are offered only if the configuration says so. Together they cover every kind of parameter,
output, annotation and error of the protocol.
"""

from __future__ import annotations

import enum
from typing import Annotated

import anyio
import msgspec

from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.registry import Registry
from component.skills.skill import Skill

_LONGEST_SLEEP = 3600
_MOST_STEPS = 1000
_MOST_BYTES = 64 * 1024 * 1024
_MOST_KEYS = 10_000


# Every JSON implementation supports these integers (RFC 7493 §2.2).
_Integer = Annotated[int, msgspec.Meta(ge=-(2**53) + 1, le=2**53 - 1)]


class Colour(enum.Enum):
    """An enumeration for `conformance.types`."""

    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object for `conformance.types`."""

    x: int
    y: int


class Typed(msgspec.Struct, frozen=True):
    """The decoded parameters of `conformance.types`."""

    colour: Colour
    flag: bool
    ratio: float
    words: list[str]
    note: str | None
    point: Point | None


def conformance_skills() -> tuple[Skill, ...]:
    """Return the fixtures. Each set has its own counters for `conformance.count`."""
    counts: dict[str, int] = {}

    @own_skill(name="conformance.count", destructive=False, open_world=False, inline=True)
    def count(key: Annotated[str, msgspec.Meta(max_length=256)]) -> int:
        """Count how often this ran with the same key, and return the number.

        Args:
            key: What to count under; callers that share a key share the count.
        """
        if key not in counts and len(counts) >= _MOST_KEYS:
            raise SkillError(f"Already counting under {_MOST_KEYS} keys: restart the service.")
        counts[key] = counts.get(key, 0) + 1
        return counts[key]

    return (
        *(_echo, _add, _types, _sleep, count, _progress, _fail, _erase, _hidden, _big),
        *(_ask, _say, _steps),
    )


@own_skill(name="conformance.echo", read_only=True, idempotent=True, open_world=False, inline=True)
def _echo(text: str) -> str:
    """Return the text that was given, unchanged.

    Args:
        text: What to say back.
    """
    return text


@own_skill(name="conformance.add", read_only=True, idempotent=True, open_world=False, inline=True)
def _add(a: _Integer, b: _Integer) -> int:
    """Return the sum of two integers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


@own_skill(name="conformance.types", read_only=True, idempotent=True, open_world=False, inline=True)
def _types(
    colour: Colour,
    flag: bool,
    ratio: float,
    words: list[str] = [],  # noqa: B006 - copied for every call
    note: str | None = None,
    point: Point | None = None,
) -> Typed:
    """Return what was given, as an object, each member in its own type.

    Args:
        colour: One of an enumeration.
        flag: A boolean.
        ratio: A number.
        words: An array of texts.
        note: A text that may be left out.
        point: An object, which only JSON can carry.
    """
    return Typed(colour, flag, ratio, words, note, point)


@own_skill(
    name="conformance.sleep",
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout=_LONGEST_SLEEP + 60,
)
async def _sleep(seconds: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_SLEEP)]) -> str:
    """Wait, then say for how long.

    Args:
        seconds: How long to wait, at most an hour.
    """
    await anyio.sleep(seconds)
    return f"slept {seconds:g} seconds"


@own_skill(name="conformance.progress", read_only=True, idempotent=True, open_world=False)
async def _progress(
    steps: Annotated[int, msgspec.Meta(ge=1, le=_MOST_STEPS)], context: Context
) -> str:
    """Report progress in equal steps, the last one being the end.

    Args:
        steps: How many reports to make.
    """
    for step in range(1, steps + 1):
        await context.progress(step / steps, f"step {step} of {steps}")
    return f"{steps} steps"


@own_skill(name="conformance.fail", read_only=True, idempotent=True, open_world=False, inline=True)
def _fail(message: str) -> str:
    """Run and say no, with the message that was given.

    Args:
        message: The reason to give.
    """
    raise SkillError(message)


@own_skill(name="conformance.erase", destructive=True, open_world=False, inline=True)
def _erase(target: str) -> str:
    """Claim to erase something. Nothing is erased; what is tested is who is asked before.

    Args:
        target: What to claim to have erased.
    """
    return f"erased {target}"


@own_skill(name="conformance.hidden", read_only=True, open_world=False, inline=True, hidden=True)
def _hidden() -> str:
    """Never run: this skill is refused to everybody, as if it were not there."""
    return "this skill is hidden and ran all the same"


class _ColourAnswer(msgspec.Struct, frozen=True):
    """The answer to `conformance.ask`."""

    colour: Colour
    note: str = ""


@own_skill(name="conformance.ask", destructive=False, open_world=False, durable=True)
async def _ask(
    question: Annotated[str, msgspec.Meta(max_length=1000)],
    context: Context,
    expires: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 3600.0,
) -> _ColourAnswer:
    """Ask the caller a question of two fields, and return the answer.

    Args:
        question: What to ask.
        expires: Seconds after which the question lapses.
    """
    return await context.ask(question, _ColourAnswer, expires_s=expires)


class _TextAnswer(msgspec.Struct, frozen=True):
    """The answer to `conformance.say`: one value, which a text can give."""

    text: str


@own_skill(name="conformance.say", destructive=False, open_world=False, durable=True)
async def _say(question: Annotated[str, msgspec.Meta(max_length=1000)], context: Context) -> str:
    """Ask the caller for a text, and return it.

    Args:
        question: What to ask.
    """
    return (await context.ask(question, _TextAnswer)).text


@own_skill(name="conformance.steps", destructive=False, open_world=False, durable=True)
async def _steps(
    steps: Annotated[int, msgspec.Meta(ge=1, le=_MOST_STEPS)],
    context: Context,
    seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0,
) -> list[str]:
    """Do so many steps with effects, show a part of the artifact "log" in each; return their keys.

    Args:
        steps: How many steps.
        seconds: How long each takes.
    """

    async def work(key: str) -> str:
        await anyio.sleep(seconds)
        return key

    keys = []
    for number in range(1, steps + 1):
        keys.append(await context.step("work", work, str))
        await context.output("log", f"step {number}\n", last=number == steps)
    return keys


# In a thread: filling that much memory takes too long for the event loop.
@own_skill(name="conformance.big", read_only=True, idempotent=True, open_world=False)
def _big(bytes: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BYTES)]) -> str:  # noqa: A002
    """Return a text of so many bytes.

    Args:
        bytes: How many, at most 64 MiB.
    """
    return "x" * bytes


@own_skill(name="conformance.shy", read_only=True, idempotent=True, open_world=False, inline=True)
def _shy() -> str:
    """Answer, while it is offered."""
    return "here"


def reveal_fixture(registry: Registry) -> Skill:
    """Return the skill `conformance.reveal`, which offers `conformance.shy` or withdraws it."""

    @own_skill(
        name="conformance.reveal", destructive=False, idempotent=True, open_world=False, inline=True
    )
    def reveal(shown: bool) -> str:
        """Offer the skill `conformance.shy`, or withdraw it.

        Args:
            shown: Whether to offer it.
        """
        there = registry.get(_shy.name) is not None
        if shown and not there:
            registry.add(_shy)
        elif there and not shown:
            registry.remove(_shy.name)
        return "shown" if shown else "hidden"

    return reveal
