"""The slots of one instance, and the order in which its claims look at principals."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.tasks.leases import SUSPECT_ATTEMPTS, Claimant, Slots, _shares, claim
from tests.component.tasks.ledger import Ledger


def test_a_place_is_given_back_once() -> None:
    slots = Slots(2, 2)
    first, second = slots.take("ann"), slots.take("ann")
    assert slots.free == 0
    first.release()
    first.release()
    assert slots.free == 1
    assert slots.running == {"ann": 1}
    second.release()
    assert slots.free == 2
    assert not slots.running


class Changing:
    """A database in which other instances take over and queue work between any two queries."""

    dialect = "postgresql"

    def __init__(self, states: list[set[str]]) -> None:
        self._states = states
        self._row: tuple[str] | None = None

    def execute(self, _sql: str, values: tuple[str]) -> "Changing":
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        behind = sorted(name for name in state if name > values[0])
        self._row = (behind[0],) if behind else None
        return self

    def fetchone(self) -> tuple[str] | None:
        return self._row


@given(
    state=st.sets(st.sampled_from("abcdef"), min_size=1),
    changes=st.lists(st.sampled_from(["", "", *"abcdef"]), max_size=12),
    after=st.sampled_from(["", *"abcdef"]),
)
@example({"d", "e"}, ["", "", "d"], "c")
def test_a_claim_looks_at_each_principal_once(
    state: set[str], changes: list[str], after: str
) -> None:
    states = [state, *(state := state ^ {change} - {""} for change in changes)]
    always = set.intersection(*states)
    database: Any = Changing(states)
    found = _shares(database, after)
    assert len(found) == len(set(found))
    assert always <= set(found)
    if after < max(always, default=""):
        assert found[0] > after


@pytest.mark.ports
def test_what_an_instance_cannot_run_is_left_to_others(new_ledger: Callable[[], Ledger]) -> None:
    ledger = new_ledger()
    ledger.add("t-fit")
    ledger.add("t-unfit")
    ledger.add("t-suspect", attempts=SUSPECT_ATTEMPTS)
    ledger.add("t-unfit-suspect", attempts=SUSPECT_ATTEMPTS)
    ledger.add("t-unknown", skill="unknown")
    claimant = Claimant(
        instance="i-1",
        skills=["report"],
        slots=Slots(5, 5),
        queues={},
        unfit=["t-unfit", "t-unfit-suspect"],
    )
    claim(ledger, claimant, after="")
    owned = ledger.execute("SELECT id FROM tasks WHERE owner = 'i-1' ORDER BY id").fetchall()
    assert owned == [("t-fit",), ("t-suspect",)]
