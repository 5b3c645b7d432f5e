"""What rooms tell the record. Lower than all of them, so that each can."""

from typing import Literal, Protocol, TypeAlias

import msgspec

Kind: TypeAlias = Literal[
    "start",  # the service, an agent, a sub-agent: begun or ended
    "policy",  # somebody was refused, by whatever rule
    "capability",  # an agent was held against what a skill needs
    "execute",  # a skill was asked for by a caller
    "tool-call",  # a skill was asked for by a model
    "confirmation",  # somebody was asked, or has decided
    "memory",  # a memory was read, written or erased
    "model",  # a model was called
    "budget",  # a call was stopped, or a threshold passed
    "agent",  # an agent's state was changed
    "admin",  # a command of an admin or operator
    "taint",  # tainted data was held against what it was to reach
    "injection",  # the scanner has found something
    "record",  # the record itself: opened, closed, mended, or what was removed from it
]


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One thing that was done or decided.

    `outcome` is one word: done, failed, refused, accepted, asked, approved, denied, allowed …
    `principal` is a bare JID, `agent` an agent of ours, `trace` joins what belongs together (a
    turn, a task), `subject` is what it is about (a skill, a key, a model), `detail` one short
    sentence. None holds a secret or the content of what was said.
    """

    kind: Kind
    outcome: str
    principal: str = ""
    agent: str = ""
    trace: str = ""
    subject: str = ""
    task: str = ""
    detail: str = ""


class Recorder(Protocol):
    """Takes events; each is chained in the order they come."""

    def record(self, event: Event) -> None:
        """Record it, on the thread of the event loop. Never waits and never raises.

        It is on disk soon, together with others.
        """

    async def settled(self) -> None:
        """Wait until everything recorded so far is on disk. Raises StorageError."""


class NoRecord:
    """A record that keeps nothing, where none is wanted."""

    def record(self, event: Event) -> None:
        """Forget it."""

    async def settled(self) -> None:
        """Nothing waits."""
