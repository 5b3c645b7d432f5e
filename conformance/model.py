"""The words of the kit: what a check is, what it needs, and what can come of it."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.record import Record
    from conformance.stanzas import Received
    from conformance.talk import Talk


class Ability(enum.Enum):
    """What a driver must be able to do for some checks. Its value says so in words."""

    RAW = "send IQs as they are written, though a server would answer or drop them"
    STRANGER = "speak as a second principal that the target admits"
    RESOURCE = "speak as a second resource of the caller"
    REFUSED = "speak as a principal that the target's policy refuses (--refused)"
    ORIGIN = "choose the id of each stanza and see every answer, wherever it is sent"
    STAMPED = "see the addresses that the target wrote, before a server delivers to a resource"
    PEER = "play an agent that the target asks things of (--component or --acceptor)"
    HOSTILE = "send what a production server should be spared (--hostile)"


@dataclass(frozen=True)
class Finding:
    """The target broke a requirement: what was expected, and what came instead."""

    id: str
    expected: str
    got: str


class Outcome(enum.Enum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    BLOCKED = "blocked"
    """Something it needs first did not work, so it could not observe what it is for: red."""
    UNOBSERVABLE = "not observable"
    """This driver cannot do what it needs."""
    UNCLAIMED = "not claimed"
    """The target does not list the feature that it is about."""
    FAULT = "fault of the kit"


@dataclass(frozen=True)
class Check:
    """A declared piece of conduct.

    Attributes:
        name: section and word, such as ``execute.arrays``; requirements.toml names it.
        title: a line for people.
        observes: the identifiers of the requirements that it holds the target against.
        needs: what the driver must be able to do.
        features: what disco#info must list for it to be about this target.
        roles: the skills under test that it calls.
        alone: whether nothing else may be under way meanwhile.
        ordered: whether it looks at the order in which messages to the caller's full and to its
            bare JID come.
        run: does it.
    """

    name: str
    title: str
    observes: tuple[str, ...]
    run: Callable[[Talk], Awaitable[None]]
    needs: frozenset[Ability] = frozenset()
    features: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    alone: bool = False
    ordered: bool = False


def check(
    name: str,
    *observes: str,
    needs: Iterable[Ability] = (),
    features: Iterable[str] = (),
    roles: Iterable[str] = (),
    alone: bool = False,
    ordered: bool = False,
) -> Callable[[Callable[[Talk], Awaitable[None]]], Check]:
    """Make a `Check` of a function; the first line of its docstring is the title."""

    def made(run: Callable[[Talk], Awaitable[None]]) -> Check:
        title = (run.__doc__ or name).strip().splitlines()[0].removesuffix(".")
        needed = frozenset(needs)
        return Check(
            name, title, observes, run, needed, tuple(features), tuple(roles), alone, ordered
        )

    return made


@dataclass(frozen=True)
class Watch:
    """Looks at every stanza that the target sends, whatever check it is sent in.

    ``look`` gives None for a stanza that is none of its concern, and otherwise what is wrong with
    it, which may be nothing. A watch that never saw a stanza of its concern has nothing to say.
    """

    name: str
    title: str
    observes: tuple[str, ...]
    look: Callable[[Received], Iterable[Finding] | None]


@dataclass
class Result:
    """What came of one check or watch.

    Attributes:
        held: the requirements that were observed and found kept.
        findings: those that were found broken.
        reason: for whatever is neither passed nor failed, why.
        record: what was exchanged.
        seconds: how long it took.
        optional: a watch, which has nothing to say if what it waits for did not come.
    """

    name: str
    title: str
    observes: tuple[str, ...]
    outcome: Outcome
    held: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    record: Record | None = None
    seconds: float = 0.0
    optional: bool = False


class Status(enum.Enum):
    """The verdict on one requirement."""

    KEPT = "kept"
    BROKEN = "broken"
    WARNING = "warning"
    """A SHOULD that is not followed."""
    NOTE = "note"
    """A MAY that is not made use of."""
    DISPUTED = "disputed"
    BLOCKED = "blocked"
    FAULT = "fault of the kit"
    EXPECTED = "broken, as the baseline expects"
    UNEXPECTED = "kept, though the baseline expects otherwise"
    NOT_OBSERVABLE = "not observable by this driver"
    NOT_CLAIMED = "not claimed"
    UNCHECKED = "without a check"
    UNWRITTEN = "its check is not written yet"
    NOT_SELECTED = "not selected"


RED = frozenset({Status.BROKEN, Status.BLOCKED, Status.FAULT, Status.UNEXPECTED})
"""The verdicts that fail a profile."""


class ProfileStatus(enum.Enum):
    """The verdict on a profile."""

    HOLDS = "holds"
    PARTLY = "holds as far as this kit checks it"
    """Nothing was found broken, and there are requirements whose checks are not written yet."""
    FAILS = "fails"
    NOT_CLAIMED = "not claimed"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Verdict:
    """What is to be said of one requirement, with the results it comes from."""

    id: str
    status: Status
    reason: str = ""
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole judgement.

    Attributes:
        target: the address that was judged.
        driver: how it was reached.
        about: what it says of itself, for the head of the report.
        started: when, in UTC, as XEP-0082 writes it.
    """

    target: str
    driver: str
    about: Mapping[str, str]
    started: str
    seconds: float
    results: tuple[Result, ...]
    verdicts: Mapping[str, Verdict]
    profiles: Mapping[str, ProfileStatus]
    faults: tuple[str, ...] = field(default=())
    """What went wrong with the kit itself, apart from single checks."""
    stale: tuple[str, ...] = field(default=())
    """Entries of the baseline that name no requirement."""

    @property
    def good(self) -> bool:
        """Whether every claimed profile that was judged holds, and at least one was."""
        states = set(self.profiles.values())
        broken = ProfileStatus.FAILS in states
        broken = broken or not states & {ProfileStatus.HOLDS, ProfileStatus.PARTLY}
        return not broken and not self.faults and not self.stale
