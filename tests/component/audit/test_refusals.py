"""A flood of those who are refused costs a line a minute each."""

import anyio
import pytest

from component.audit.protocol import AuditEvent
from component.audit.quota import Refusals

pytestmark = pytest.mark.anyio


class Kept:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def settled(self) -> None: ...


def test_the_first_is_recorded_and_the_others_are_counted() -> None:
    kept, now = Kept(), [0.0]
    refusals = Refusals(kept, lambda: now[0])
    for _ in range(1000):
        refusals.refused("mallory@example.org", "not admitted")
    refusals.refused("eve@example.org", "not admitted")
    assert [event.principal for event in kept.events] == ["mallory@example.org", "eve@example.org"]
    now[0] = 61
    refusals.refused("mallory@example.org", "not admitted")
    assert [event.detail for event in kept.events[2:]] == [
        "not admitted; 999 more within a minute",
        "not admitted",
    ]


def test_a_flood_of_many_names_is_bounded() -> None:
    kept = Kept()
    refusals = Refusals(kept, lambda: 0.0)
    for number in range(5000):
        refusals.refused(f"m{number}@example.org", "not admitted")
    assert len(kept.events) == 1000
    refusals.record_counts()
    assert len(kept.events) == 1001
    assert kept.events[-1].detail.startswith("4000 more")


async def test_counts_are_recorded_when_nobody_comes_any_more() -> None:
    kept = Kept()
    refusals = Refusals(kept, lambda: 0.0)
    async with anyio.create_task_group() as group:
        group.start_soon(refusals.run)
        refusals.refused("mallory@example.org", "not admitted")
        refusals.refused("mallory@example.org", "not admitted")
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert [event.detail for event in kept.events] == [
        "not admitted",
        "not admitted; 1 more within a minute",
    ]
