"""The subscription to a node, as a state machine."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from component.features.watches.sources import TABLE, Input, SourceState, SubscriptionMachine

INPUTS = [each for group in get_args(Input) for each in get_args(group)]
inputs = st.lists(st.sampled_from(INPUTS), max_size=60)


def test_the_table_names_every_state() -> None:
    assert set(TABLE) == set(get_args(SourceState))
    for row in TABLE.values():
        assert set(row) <= set(INPUTS)
        assert set(row.values()) <= set(get_args(SourceState))


@given(inputs)
def test_without_a_session_nothing_is_due(given_inputs: list[Input]) -> None:
    subscription = SubscriptionMachine(300)
    is_connected = False
    for each in given_inputs:
        subscription.advance(each)
        if each in ("connected", "disconnected"):
            is_connected = each == "connected"
        assert (subscription.state == "offline") is not is_connected
        if not is_connected:
            assert subscription.delay_s is None


@given(inputs)
def test_every_state_of_a_session_leads_back_to_a_subscription(given_inputs: list[Input]) -> None:
    subscription = SubscriptionMachine(300)
    subscription.advance("connected")
    for each in given_inputs:
        if each != "disconnected":
            subscription.advance(each)
        # Either it has something to do, or it knows when to try again.
        busy = subscription.state in ("subscribing", "catching-up")
        assert busy or 0 < (subscription.delay_s or 0) <= 300
    if subscription.delay_s is not None:
        assert subscription.advance("due") == "subscribing"
    if subscription.state == "subscribing":
        assert subscription.advance("subscribed") == "catching-up"
    assert subscription.advance("caught-up") == "live"
    assert subscription.failures == 0


def test_attempts_are_further_and_further_apart() -> None:
    subscription = SubscriptionMachine(60)
    subscription.advance("connected")
    delays = []
    for _ in range(9):
        subscription.advance("missing")
        delays.append(subscription.delay_s)
        subscription.advance("due")
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_deleted_node_is_subscribed_to_soon() -> None:
    subscription = SubscriptionMachine(300)
    for each in ("connected", "subscribed", "caught-up", "gone"):
        subscription.advance(each)
    assert (subscription.state, subscription.delay_s) == ("missing", 1)
