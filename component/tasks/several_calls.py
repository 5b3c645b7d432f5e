"""One question about several calls that a person must confirm: which ones it is about, and how it
lists them.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from component.skills.inputs import Arguments, SchemaInputs
from component.skills.skill import Skill
from component.skills.spec import Annotations
from component.tasks.questions import SEVERAL_CALLS as NAME
from component.tasks.questions import action_of
from component.tasks.request import Confirmation
from xep.fluux_agent.confirm import parameters_of
from xep.stanza_error import StanzaError

MOST_CALLS: Final = 9
"""The maximum number of calls in a question: a person has to read all of them. With one digit, the
numbers of calls are in order where parameters are sorted by name.
"""
MOST_CHARACTERS: Final = 3_000
"""The maximum size of the calls as JSON, so that the question shows each of them whole."""


_SCHEMA: Final[dict[str, Any]] = {"type": "object", "additionalProperties": {"type": "object"}}


def _approved(arguments: Arguments) -> str:
    return msgspec.json.encode(arguments).decode()


SEVERAL_CALLS: Final = Skill(
    name=NAME,
    title="Several calls",
    description="A yes allows each of these calls once, exactly as it is shown",
    annotations=Annotations(read_only=True, destructive=False, open_world=False),
    hidden=True,
    input_schema=_SCHEMA,
    inputs=SchemaInputs(_SCHEMA),
    kind="inline",
    wants_context=False,
    invoke=lambda arguments, _context: _approved(arguments),
    source="this service",
)
"""The skill whose confirmation allows several calls. It has no effect and is in nobody's view."""


class ConfirmedCall(msgspec.Struct, frozen=True):
    """A call that its person must confirm: `values` are all of its parameters, with defaults."""

    skill: Skill
    values: dict[str, Any]


_RISKS: Final[tuple[Literal["low", "medium", "high"], ...]] = ("low", "medium", "high")

C = TypeVar("C", bound=ConfirmedCall)


def groups(calls: Sequence[C]) -> Iterator[Sequence[C]]:
    """Divide calls, in order, into groups that a person can review; a call alone is in none."""
    group: list[C] = []
    size = 0
    for one in calls:
        more = len(json.dumps(one.values, ensure_ascii=False))
        if group and (len(group) == MOST_CALLS or size + more > MOST_CHARACTERS):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(one)
        size += more
    if len(group) > 1:
        yield group


def joint(confirmations: Sequence[Confirmation]) -> Confirmation:
    """Return the confirmation of several calls: that of the first one, with the highest risk."""
    risk = max((one.risk for one in confirmations), key=_RISKS.index)
    return msgspec.structs.replace(confirmations[0], risk=risk)


def listed(calls: Sequence[ConfirmedCall]) -> dict[str, Any]:
    """Return the parameters of the question: the calls in order, each with its skill's version."""
    return {
        f"{number}. {name_of(one.skill)}": one.values for number, one in enumerate(calls, start=1)
    }


def name_of(skill: Skill) -> str:
    """Return the name of a skill with its version."""
    return f"{skill.name} {skill.version}"


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; unlike in Python, 1 is not true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class Decided(msgspec.Struct, frozen=True):
    """A child task that the principal was asked about together with others: the skill and the
    parameters that it is started with, what the question showed of it, and the confirmation that it
    needs.
    """

    skill: str
    params: bytes
    name: str
    values: dict[str, Any]
    needed: Confirmation
    decision: str = ""

    def covers(self, skill: Skill, arguments: Arguments) -> bool:
        """Whether a child task is what the question showed."""
        if self.name != name_of(skill):
            return False
        try:
            values = parameters_of(action_of(skill, arguments))
        except StanzaError:
            return False
        return same(self.values, values)


class CallToStart(ConfirmedCall, frozen=True):
    """A child task that the principal must confirm before it is started."""

    decided: Decided
