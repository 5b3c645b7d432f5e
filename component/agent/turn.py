"""A turn: requests that wait for one answer, and its outcome."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from component.agent.requests import Resumption, Starter, TurnRequest
from component.policy.taint import Taint
from xep.jid import JID

OutcomeKind = Literal[
    "answered",
    "silent",
    "delayed",
    "excused",
    "parked",
    "asked",
    "stopped",
    "away",
    "postponed",
    "failed",
]


CONTINUES: Final = frozenset[OutcomeKind](("parked", "asked", "delayed", "postponed"))
"""The outcomes after which the turn continues later."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a turn so far; `text` is the answer, or the reason why there is none.

    `excused`: the answer is a sentence of the service, because the model gave none. After the
    outcomes in `CONTINUES` the turn continues later: `delayed`, `parked` (it waits for a task),
    `asked` (it waits for a person's answer about one) and `postponed`.
    """

    kind: OutcomeKind
    text: str = ""


def _ignore(_outcome: Outcome) -> None:
    pass


class Turn(msgspec.Struct, eq=False):
    """A turn that waits to run, or runs.

    `stored` says that its row is on disk, and that it is not delayed by a storage failure.
    `resumption` is why it runs again, if it started before. `joined` are requests that get the same
    answer. `tries` counts storage failures. `ended` is called with the outcome each time that it
    stops running.
    """

    request: TurnRequest
    stored: bool = False
    resumption: Resumption | None = None
    joined: list[TurnRequest] = msgspec.field(default_factory=list)
    tries: int = 0
    ended: Callable[[Outcome], None] = _ignore

    @property
    def id(self) -> str:
        """The id of its first request."""
        return self.request.id

    @property
    def starter(self) -> Starter:
        """What starts or continues it now."""
        return self.request.starter if self.resumption is None else self.resumption

    @property
    def requests(self) -> list[TurnRequest]:
        """All requests that it answers, in order."""
        return [self.request, *self.joined]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its rows, its own first."""
        return (self.id, *(one.id for one in self.joined))

    @property
    def is_fresh(self) -> bool:
        """Whether it is on disk and has not started."""
        return self.stored and not (self.resumption or self.joined or self.tries)

    @property
    def is_ready(self) -> bool:
        """Whether it is on disk and all of its requests are labelled."""
        labelled = not self.request.needs_label and not (self.joined and self.unlabelled)
        return self.stored and labelled

    @property
    def unlabelled(self) -> list[TurnRequest]:
        """Its requests that have no label yet."""
        return [one for one in self.requests if one.needs_label]

    def label(self, requester: JID, taint: Taint) -> None:
        """Label the requests of one sender that have no label."""

        def labelled(one: TurnRequest) -> TurnRequest:
            theirs = one.needs_label and one.requester == requester
            return msgspec.structs.replace(one, taint=taint) if theirs else one

        self.request = labelled(self.request)
        self.joined = [labelled(one) for one in self.joined]

    def joins(self, other: "Turn") -> bool:
        """Whether a waiting turn can join this one."""
        return self.request.belongs_with(other.request) and other.is_ready and not other.resumption
