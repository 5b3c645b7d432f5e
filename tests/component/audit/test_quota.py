"""The limit of lines for what one principal does."""

from typing import Any

import anyio
import pytest

from component.audit.protocol import AuditEvent
from component.audit.quota import Quota
from tests.kit.loop import anyio_backend

__all__ = ["anyio_backend"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def event(principal: str = "juliet@example.com", **what: Any) -> AuditEvent:
    return AuditEvent(
        **({"kind": "execute", "outcome": "done", "subject": "echo"} | what), principal=principal
    )


def test_events_beyond_the_limit_are_counted_by_what_they_are() -> None:
    quota = Quota(2, Clock())
    admitted = [
        quota.admits(each)
        for each in (event(), event(), event(), event(outcome="failed"), event(), event("r@x"))
    ]
    assert admitted == [True, True, False, False, False, True]
    assert quota.summaries() == [
        event(detail="2 more within a minute"),
        event(outcome="failed", detail="1 more within a minute"),
    ]
    assert quota.summaries() == []


@pytest.mark.anyio
async def test_a_new_minute_begins_after_the_summaries() -> None:
    quota = Quota(1, anyio.current_time)
    quota.admits(event())
    began = anyio.current_time()
    assert not quota.admits(event())
    await quota.minute()
    assert anyio.current_time() == began + 60
    quota.summaries()
    assert quota.admits(event())


@pytest.mark.anyio
async def test_no_minute_ends_without_events() -> None:
    quota = Quota(1, anyio.current_time)
    quota.admits(event())
    await quota.minute()
    quota.summaries()
    with anyio.move_on_after(3600) as waiting:
        await quota.minute()
    assert waiting.cancelled_caught


def test_decisions_and_events_of_nobody_always_have_lines() -> None:
    quota = Quota(1, Clock())
    quota.admits(event())
    for kind in ("confirmation", "admin", "policy", "capability", "agent", "start"):
        assert quota.admits(event(kind=kind))
    assert quota.admits(event(""))
    assert not quota.admits(event())


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("capability", "allowed"),
        ("capability", "refused"),
        ("agent", "spawned"),
        ("agent", "ended"),
    ],
)
def test_each_kind_of_line_that_a_call_causes_is_limited(kind: str, outcome: str) -> None:
    quota = Quota(1, Clock())
    assert [quota.admits(event(kind=kind, outcome=outcome)) for _ in range(3)] == [
        True,
        False,
        False,
    ]


def test_what_is_counted_takes_a_limited_number_of_lines() -> None:
    quota = Quota(1, Clock())
    for number in range(10_000):
        quota.admits(event(subject=str(number)))
    assert len(quota.summaries()) == 101


def test_without_a_limit_each_event_has_its_line() -> None:
    quota = Quota(0, Clock())
    assert all(quota.admits(event()) for _ in range(10_000))
