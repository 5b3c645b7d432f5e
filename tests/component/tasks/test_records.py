"""What is recorded and counted of requests."""

from component.audit.protocol import AuditEvent
from component.audit.quota import Refusals
from component.metrics.counters import Counters
from component.tasks.events import TaskRecords
from component.tasks.request import Request
from xep.jid import JID

ALICE, BOB = JID.parse("alice@a.example"), JID.parse("bob@a.example")


def request_of(who: JID, skill: str) -> Request:
    return Request(skill=skill, principal=who, requester=who, target=who)


class Kept:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def settled(self) -> None: ...


def noted() -> tuple[TaskRecords, Kept, Counters]:
    kept, counters = Kept(), Counters()
    return TaskRecords(kept, Refusals(kept, lambda: 0.0), counters), kept, counters


def test_each_request_is_one_event_and_is_counted() -> None:
    notes, kept, counters = noted()
    for who, outcome in ((ALICE, "done"), (BOB, "done"), (ALICE, "failed"), (ALICE, "done")):
        notes.ran(who, "echo", outcome, 0.002)
    notes.answered(request_of(BOB, "echo"), "accepted", 0.2, "t1")
    assert [(each.principal, each.outcome, each.task) for each in kept.events] == [
        (str(ALICE), "done", ""),
        (str(BOB), "done", ""),
        (str(ALICE), "failed", ""),
        (str(ALICE), "done", ""),
        (str(BOB), "accepted", "t1"),
    ]
    counts, total = counters.executes.values["echo", "done"]
    assert sum(counts) == 3
    assert round(total[0], 6) == 0.006
    assert sum(counters.executes.values["echo", "accepted"][0]) == 1


def test_many_principals_do_not_fill_the_memory() -> None:
    notes, kept, counters = noted()
    for number in range(10_000):
        notes.ran(JID.parse(f"a{number}@a.example"), "echo", "done", 0.0)
    assert len(notes._known) <= 4096
    assert len(kept.events) == sum(counters.executes.values["echo", "done"][0]) == 10_000


def test_refusals_name_no_more_than_the_beginning_of_what_was_asked_for() -> None:
    notes, kept, counters = noted()
    for _ in range(5):
        notes.refused(request_of(ALICE, "x" * 1000), "unknown or hidden skill")
    (event,) = kept.events
    assert (event.kind, event.outcome, len(event.subject)) == ("policy", "refused", 64)
    assert counters.refusals.values["unknown or hidden skill",] == 5
