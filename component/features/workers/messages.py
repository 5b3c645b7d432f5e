"""The messages between the service and its workers, as MessagePack.

A call has an id. Its skill may ask the service for something that only the service has: an answer
of a person, or of a model. Then the call ends with `Asked`, and the next call, with the reply among
its records, runs the skill from its beginning, as the service does with its own skills.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from component.policy.taint import Taint
from component.sandbox.messages import Failure, Result
from component.skills.errors import SkillUnavailable

Records: TypeAlias = dict[str, tuple[str, str | None]]
"""How the steps and questions of a skill ended, as in `component.tasks.journal`: the JSON of the
result and a digest of the input, by identity."""


class CallMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a skill.

    `arguments` are a JSON object. `records` are those of earlier calls of the same execution. A
    result with more than `most_bytes` bytes is not sent. The others are those of the Context.
    """

    skill: str
    arguments: bytes
    most_bytes: int
    key: str
    principal: str
    sender: str
    agent: str = ""
    taints: tuple[Taint, ...] = ()
    trace: str = ""
    records: Records = {}


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """The skill asks, under an identity: a person a `question`, whose answer fits the JSON Schema
    `schema`, until `expires_s` seconds have passed; or the model, for at most `max_tokens` tokens.
    """

    identity: str
    question: str
    schema: bytes
    expires_s: float | None = None
    max_tokens: int | None = None
    records: Records = {}


class Declined(msgspec.Struct, frozen=True, tag="declined"):
    """The person who was asked declined, and the skill needs the answer."""

    reason: str


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The call was stopped; `begun` says that a worker had begun it.

    `lost` says that its worker was lost, whose name is `worker`, or that there was none to begin
    it.
    """

    begun: bool
    lost: bool = False
    worker: str = ""


Outcome: TypeAlias = Result | Failure | Asked | Declined | Stopped

encode: Final = msgspec.msgpack.Encoder().encode
_call: Final = msgspec.msgpack.Decoder(CallMessage)
_outcome: Final = msgspec.msgpack.Decoder(Outcome)


def read_call(data: bytes) -> CallMessage:
    """Decode a call. Raises ValueError: another release wrote it."""
    return _call.decode(data)


def read_outcome(data: bytes) -> Outcome:
    """Decode an outcome. Raises SkillUnavailable: another release wrote it."""
    try:
        made: Outcome = _outcome.decode(data)
    except (ValueError, RecursionError) as error:
        raise SkillUnavailable(f"The result of a worker cannot be read: {error}.") from error
    return made


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """Progress of a call, in a notification."""

    call: str
    fraction: float
    text: str


class Offered(msgspec.Struct, frozen=True):
    """A skill that workers offer.

    Attributes:
        lane: the name of the queue of procrastinate for calls of exactly this version.
        workers: the names of the workers that have it and are alive.
    """

    name: str
    lane: str
    description: str
    workers: tuple[str, ...] = ()
