"""What one principal may cause."""

import pytest
from trio.testing import MockClock

from component.features.pubsub.handlers import BURST_BYTES, BYTES_PER_S, Allowances
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def anyio_backend(clock: MockClock) -> tuple[str, dict[str, object]]:
    return "trio", {"clock": clock}


async def test_an_account_that_is_empty_fills_up_again(clock: MockClock) -> None:
    accounts = Allowances()
    accounts.charge("a@a.example", BURST_BYTES)
    accounts.charge("b@a.example", BURST_BYTES)
    with pytest.raises(StanzaError, match="again in 3 seconds") as refused:
        accounts.charge("a@a.example", 2 * BYTES_PER_S)
    assert refused.value.condition == "resource-constraint"
    clock.jump(2)
    accounts.charge("a@a.example", 2 * BYTES_PER_S)
    clock.jump(1e9)
    accounts.charge("a@a.example", BURST_BYTES)
    with pytest.raises(StanzaError):
        accounts.charge("a@a.example", 1)


async def test_what_no_account_holds_is_too_big() -> None:
    with pytest.raises(StanzaError, match="publish a smaller item") as refused:
        Allowances().charge("a@a.example", BURST_BYTES + 1)
    assert refused.value.condition == "not-acceptable"
