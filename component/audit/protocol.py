"""The events of the audit log, and the interface for recording them.

This module imports no other package, so that every package can record events.
"""

from typing import Literal, Protocol, TypeAlias

import msgspec

EventKind: TypeAlias = Literal[
    "start",  # the service, an agent or a sub-agent was started or stopped
    "policy",  # somebody was refused, by any rule
    "capability",  # those of a skill were proposed, approved, revoked, or compared before a call
    "execute",  # a caller requested a skill
    "tool-call",  # a model called a skill
    "confirmation",  # a person was asked, or has decided
    "memory",  # a memory was read, written or erased
    "model",  # a model was called
    "budget",  # a call was stopped, or a threshold passed
    "agent",  # an agent's state was changed
    "admin",  # a command of an admin or operator
    "taint",  # a flow rule was applied to tainted data
    "injection",  # the scanner found something
    "record",  # the audit log itself was opened, closed or repaired, or lines were removed
]


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One action or decision.

    `outcome` is one word: done, failed, refused, accepted, asked, approved, denied, allowed …
    `principal` is a bare JID, `agent` an agent of this service, `trace` the id shared by related
    events (of a turn or a task), `subject` what the event is about (a skill, a key, a model),
    `detail` one short sentence. None contains a secret or the content of a message.
    """

    kind: EventKind
    outcome: str
    principal: str = ""
    agent: str = ""
    trace: str = ""
    subject: str = ""
    task: str = ""
    detail: str = ""


class Recorder(Protocol):
    """Accepts events, and chains them in the order in which they arrive."""

    def record(self, event: AuditEvent) -> None:
        """Record an event, on the thread of the event loop. Never waits and never raises.

        The event is written soon, together with others.
        """

    async def settled(self) -> None:
        """Wait until everything recorded so far is on disk. Raises StorageError."""


class NoRecord:
    """A recorder that discards events, where no audit log is wanted."""

    def record(self, event: AuditEvent) -> None:
        """Discard the event."""

    async def settled(self) -> None:
        """Return immediately: no event waits."""
