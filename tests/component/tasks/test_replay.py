"""By what a repetition is known, and what is kept of answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.tasks import replay
from component.tasks.replay import Memory, digest_of, kept, key_of, unkept
from tests.component.tasks.world import AGENT, ANN, BOB
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Accepted, Earlier, Execute, Output, Param, Params, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

texts = st.text(max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
params = st.lists(st.tuples(st.sampled_from("abc"), texts), max_size=6)


def execute(given_params: list[tuple[str, str]], value: Any = None, **attributes: Any) -> Execute:
    raw = None if value is None else Params(json=msgspec.Raw(value))
    return Execute(
        skill=attributes.pop("skill", "s"),
        params=tuple(Param(name=name, text=text) for name, text in given_params),
        json_params=raw,
        **attributes,
    )


def by_name(given_params: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in given_params:
        found.setdefault(name, []).append(text)
    return found


@given(params, params)
def test_texts_count_in_order_for_each_name(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    same = by_name(one) == by_name(other)
    assert (digest_of(execute(one)) == digest_of(execute(other))) is same


@given(params)
def test_the_order_of_different_names_plays_no_part(one: list[tuple[str, str]]) -> None:
    ordered = sorted(one, key=lambda param: param[0])
    assert digest_of(execute(one)) == digest_of(execute(ordered))


def canonical(value: Any) -> Any:
    """JSON by its meaning: numbers are doubles as far as those go."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return ("number", float(value) if abs(value) <= 2**53 else value)
    if isinstance(value, list):
        return [canonical(one) for one in value]
    return {key: canonical(one) for key, one in value.items()}


@given(st.dictionaries(texts, values, max_size=3))
def test_json_counts_by_its_meaning_and_not_by_how_it_is_written(value: dict[str, Any]) -> None:
    compact = json.dumps(value, separators=(",", ":")).encode()
    loose = json.dumps(dict(reversed(list(value.items()))), indent=3, ensure_ascii=False).encode(
        errors="surrogatepass"
    )
    assert digest_of(execute([], compact)) == digest_of(execute([], loose))


@given(st.dictionaries(texts, values, max_size=2), st.dictionaries(texts, values, max_size=2))
def test_other_json_is_other_content(one: dict[str, Any], other: dict[str, Any]) -> None:
    if canonical(one) != canonical(other):
        digests = {digest_of(execute([], json.dumps(value).encode())) for value in (one, other)}
        assert len(digests) == 2


def test_numbers_beyond_doubles_are_told_apart_by_their_digits() -> None:
    digests = {digest_of(execute([], json.dumps({"n": 2**60 + add}).encode())) for add in range(3)}
    assert len(digests) == 3
    assert digest_of(execute([], b'{"n": 1.0}')) == digest_of(execute([], b'{"n":1}'))


def test_what_is_no_json_equals_itself_only() -> None:
    assert digest_of(execute([], b"{")) == digest_of(execute([], b"{"))
    assert digest_of(execute([], b"{")) != digest_of(execute([], b"["))


WAYS: dict[str, tuple[Any, Any]] = {
    "skill": ("s", "t"),
    "mode": ("auto", "async"),
    "priority": ("normal", "low"),
    "context": (None, "c"),
    "thread": (None, ""),
    "deadline": (None, datetime(2026, 1, 1, tzinfo=UTC)),
    "earlier": ((), (Earlier(task="t"),)),
    "delegation": (
        None,
        Delegation(origin=JID.parse("a@b.example"), max_hops=2, via=(JID.parse("c.example"),)),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_each_attribute_is_content(name: str) -> None:
    one, other = WAYS[name]
    assert digest_of(execute([], **{name: one})) != digest_of(execute([], **{name: other}))


def test_the_request_id_is_no_content_but_part_of_the_key() -> None:
    assert digest_of(execute([], request="r")) == digest_of(execute([]))


def test_a_deadline_is_an_instant() -> None:
    here = datetime(2026, 1, 1, 12, tzinfo=UTC)
    there = here.astimezone(timezone(timedelta(hours=5)))
    assert digest_of(execute([], deadline=here)) == digest_of(execute([], deadline=there))


def test_a_delegation_counts_with_all_it_holds() -> None:
    def delegated(**more: Any) -> str:
        fields = {"origin": JID.parse("a@b.example"), "max_hops": 2, "via": (AGENT,), **more}
        return digest_of(execute([], delegation=Delegation(**fields)))

    plain = delegated()
    assert delegated() == plain
    assert delegated(budget_usd=Decimal("0.5")) == delegated(budget_usd=Decimal("0.50"))
    ways: list[dict[str, Any]] = [
        {"max_hops": 3},
        {"via": (AGENT, AGENT)},
        {"budget_usd": Decimal(1)},
        {"budget_tokens": 1},
        {"trace": "t"},
        {"origin": JID.parse("c@b.example")},
    ]
    assert len({plain, *(delegated(**way) for way in ways)}) == len(ways) + 1


def test_a_key_is_of_the_account_with_a_request_id_and_of_the_stream_without() -> None:
    phone = JID.parse("ann@a.example/phone")
    assert key_of(ANN, AGENT, "r", "1") == key_of(phone, AGENT, "r", "2")
    assert key_of(ANN, AGENT, None, "1") != key_of(phone, AGENT, None, "1")
    keys = {
        key_of(ANN, AGENT, "r", "1"),
        key_of(BOB, AGENT, "r", "1"),
        key_of(ANN, JID.parse("other@agent.example"), "r", "1"),
        key_of(ANN, AGENT, "s", "1"),
        key_of(ANN, AGENT, None, "r"),
        key_of(ANN, AGENT, None, "1"),
    }
    assert len(keys) == 6


def result(text: str) -> Result:
    return Result(skill="s", outputs=(Output(name="o", text=text),))


@pytest.mark.parametrize(
    "answer",
    [
        result("<&>"),
        Accepted(task="t", retain_until=datetime(2026, 1, 1, tzinfo=UTC), poll_after=5),
        errors.timed_out(repeatable=False),
        errors.invalid_param("a'b", "is <odd>"),
        errors.busy(7),
    ],
)
def test_answers_are_kept_as_they_were(answer: Any) -> None:
    back = unkept(kept(answer))
    if isinstance(answer, StanzaError):
        assert isinstance(back, StanzaError)
        assert back.encode() == answer.encode()
    else:
        assert back == answer


def test_memory_is_bounded_in_number_bytes_and_time() -> None:
    now = [0.0]
    memory = Memory(10, entries=3, size=20_000, clock=lambda: now[0])
    for name in "abcd":
        memory.put(name, "d", result(name))
    assert memory.get("a", "d") is None
    assert memory.get("b", "d") == result("b")
    memory.put("big", "d", result("x" * 9_000))
    assert len(memory) == 3
    memory.put("big", "d", result("x" * 9_500))
    assert len(memory) == 1
    memory.put("bigger", "d", result("x" * 20_000))
    assert memory.get("bigger", "d") is None
    now[0] = 10.0
    assert memory.get("big", "d") is None


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3000)), max_size=30))
def test_memory_counts_its_bytes_right(puts: list[tuple[str, int]]) -> None:
    memory = Memory(10, entries=3, size=10_000)
    for key, size in puts:
        memory.put(key, "d", result("x" * size))
        assert memory._bytes == sum(entry.size for entry in memory._entries.values())
        assert memory._bytes <= 10_000
        assert len(memory) <= 3


def test_each_error_is_raised_anew() -> None:
    memory = Memory(10)
    memory.put("k", "d", errors.internal())
    raised = []
    for _ in range(2):
        with pytest.raises(StanzaError) as caught:
            memory.get("k", "d")
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert raised[0].encode() == raised[1].encode()
    with pytest.raises(StanzaError, match="conflict"):
        memory.get("k", "other")


def test_only_the_first_landing_counts() -> None:
    memory = Memory(10)
    flight = memory.begin("k", "d")
    assert memory.flight("k", "d") is flight
    with pytest.raises(StanzaError, match="conflict"):
        memory.get("k", "other")
    flight.land(result("1"))
    flight.land(result("2"))
    assert memory.get("k", "d") == result("1")
    assert memory.flight("k", "d") is None
    assert replay.given(result("1")) == result("1")
