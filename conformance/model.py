"""The data model of the kit: checks, their needs, and their outcomes."""

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
    """An ability of a driver that some checks need. The value describes it."""

    RAW = "send IQs as they are written, though a server would answer or drop them"
    STRANGER = "speak as a second principal that the target admits"
    RESOURCE = "speak as a second resource of the caller"
    REFUSED = "speak as a principal that the target's policy refuses (--refused)"
    ORIGIN = "choose the id of each stanza and see every answer, whatever its recipient"
    STAMPED = "see the addresses that the target wrote, before a server delivers to a resource"
    PEER = "act as an agent that the target sends requests to (--component or --acceptor)"
    HOSTILE = "send stanzas that could harm a production server (--hostile)"


@dataclass(frozen=True)
class Finding:
    """A violation of a requirement: what was expected, and what was received."""

    id: str
    expected: str
    got: str


class Outcome(enum.Enum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    BLOCKED = "blocked"
    """A precondition failed, so the check could not be completed. Counts as a failure."""
    UNOBSERVABLE = "not observable"
    """This driver lacks an ability that the check needs."""
    UNCLAIMED = "not claimed"
    """The target does not announce the feature under test."""
    FAULT = "fault of the kit"


@dataclass(frozen=True)
class Check:
    """A check of one aspect of the target.

    Attributes:
        name: section and word, such as ``execute.arrays``; requirements.toml names it.
        title: a one-line description.
        observes: the identifiers of the requirements that it tests.
        needs: the abilities that the driver must have.
        features: the features that the target must announce in disco#info.
        roles: the skills that it calls.
        alone: whether no other check may run at the same time.
        ordered: whether it depends on the order of messages to the caller's full and bare JIDs.
        run: runs the check.
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
    """Turn a function into a `Check`; the first line of its docstring is the title."""

    def made(run: Callable[[Talk], Awaitable[None]]) -> Check:
        title = (run.__doc__ or name).strip().splitlines()[0].removesuffix(".")
        needed = frozenset(needs)
        return Check(
            name, title, observes, run, needed, tuple(features), tuple(roles), alone, ordered
        )

    return made


@dataclass(frozen=True)
class Watch:
    """Examines every stanza that the target sends, in all checks.

    ``look`` returns None for a stanza that it does not apply to, and otherwise the problems found,
    if any. A watch that applied to no stanza gives no verdict.
    """

    name: str
    title: str
    observes: tuple[str, ...]
    look: Callable[[Received], Iterable[Finding] | None]


@dataclass
class Result:
    """The result of one check or watch.

    Attributes:
        held: the requirements that were observed and met.
        findings: those that were violated.
        reason: why a check neither passed nor failed.
        record: the exchanged stanzas.
        seconds: how long it took.
        optional: a watch, which has no result if no stanza applied to it.
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
    """A MAY that is not used."""
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
    """No violation was found, but the checks of some requirements are not written yet."""
    FAILS = "fails"
    NOT_CLAIMED = "not claimed"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one requirement, with the results that it comes from."""

    id: str
    status: Status
    reason: str = ""
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole test run.

    Attributes:
        target: the tested address.
        driver: how it was reached.
        about: the target's information about itself, for the head of the report.
        started: the start in UTC, in the format of XEP-0082.
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
    """Faults of the kit itself, apart from single checks."""
    stale: tuple[str, ...] = field(default=())
    """Entries of the baseline that name no requirement."""

    @property
    def good(self) -> bool:
        """Whether every claimed profile that was tested holds, and at least one was tested."""
        states = set(self.profiles.values())
        broken = ProfileStatus.FAILS in states
        broken = broken or not states & {ProfileStatus.HOLDS, ProfileStatus.PARTLY}
        return not broken and not self.faults and not self.stale
