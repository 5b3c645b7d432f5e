"""A provider's figures of a call are used if they are plausible."""

from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import CALL_TOKENS, CALL_USD
from component.models.catalog import Prices
from component.models.chat_reader import ChatReader
from component.models.messages import ModelMessage, TextPart
from component.models.protocol import ModelRequest
from component.models.usage import Reported, UsageFigures, later_usage, usage_of

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(("said", "tokens"), [(0, 0), (7, 7), (7.0, 7), (CALL_TOKENS, CALL_TOKENS)])
def test_a_plausible_count_is_used(said: Any, tokens: int) -> None:
    assert UsageFigures("m", {"prompt_tokens": said}).tokens("prompt_tokens") == tokens


@pytest.mark.parametrize(
    "said",
    [-1, 2**63, 2**64, CALL_TOKENS + 1, 7.5, float("nan"), float("inf"),
     -float("inf"), True, "12", "x" * 10_000, [1], {"of": 3},
     pytest.param(10**5000, id="more digits than Python writes")],
)  # fmt: skip
def test_an_implausible_count_is_replaced_and_logged(said: Any) -> None:
    with structlog.testing.capture_logs() as logs:
        assert UsageFigures("m", {"prompt_tokens": said}).tokens("prompt_tokens") is None
    (line,) = logs
    assert line["log_level"] == "warning"
    assert (line["model"], line["figure"]) == ("m", "prompt_tokens")
    assert len(line["said"]) <= 80


@pytest.mark.parametrize("said", [-0.1, float("nan"), float("inf"), CALL_USD * 2, "1"])
def test_an_implausible_price_is_replaced_and_logged(said: Any) -> None:
    with structlog.testing.capture_logs() as logs:
        assert UsageFigures("m", {"cost": said}).usd("cost") is None
    assert len(logs) == 1


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}])
def test_missing_figures_are_not_a_fault(usage: Any) -> None:
    with structlog.testing.capture_logs() as logs:
        assert UsageFigures("m", usage).tokens("prompt_tokens") is None
    assert not logs


@given(ANYTHING)
def test_any_usage_report_gives_figures_in_range_or_none(said: Any) -> None:
    for figures in (UsageFigures("m", said), UsageFigures("m", {"a": said})):
        tokens, usd = figures.tokens("a"), figures.usd("a")
        assert tokens is None or 0 <= tokens <= CALL_TOKENS
        assert usd is None or 0 <= usd <= CALL_USD


def test_of_several_reports_the_largest_figures_count() -> None:
    first = {"prompt_tokens": 12_000, "completion_tokens": 5, "details": {"cached": 7}}
    last = {"prompt_tokens": 0, "completion_tokens": 40, "details": {"cached": 0, "new": 1}}
    assert later_usage(None, first) == first
    assert later_usage(first, None) == first
    assert later_usage(first, last) == {
        "prompt_tokens": 12_000,
        "completion_tokens": 40,
        "details": {"cached": 7, "new": 1},
    }
    assert later_usage(first, {"prompt_tokens": None}) == first
    assert later_usage("nothing", last) == last


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 360}, 260),
        ({"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130}, 30),
        ({"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 0}, 30),
        ({"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 10**18}, 30),
        ({"prompt_tokens": 100, "completion_tokens": 30}, 30),
        ({"completion_tokens": 30, "total_tokens": 360}, 30),
        ({"completion_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 230}}, 260),
        ({"completion_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 20}}, 30),
    ],
)
def test_reasoning_that_is_not_in_the_count_of_the_answer_is_charged(
    said: dict[str, int], tokens: int
) -> None:
    reported = ChatReader(None).reported(UsageFigures("m", said))
    assert reported.tokens_out == tokens


@pytest.mark.parametrize(
    ("tokens_in", "tokens_out", "estimated"),
    [(0, 0, True), (0, 5, True), (12, 0, True), (None, 5, True), (12, 5, False)],
)
def test_zeros_are_replaced_by_our_own_count(
    tokens_in: int | None, tokens_out: int, estimated: bool
) -> None:
    request = ModelRequest(messages=(ModelMessage("user", (TextPart("What time is it now?"),)),))
    reported = Reported(tokens_in=tokens_in, tokens_out=tokens_out)
    found = usage_of(request, (TextPart("It is noon."),), reported, Prices)
    assert found.estimated is estimated
    assert found.tokens_in > 0
    assert found.tokens_out > 0
    assert not usage_of(request, (), Reported(tokens_in=12, tokens_out=0), Prices).estimated
