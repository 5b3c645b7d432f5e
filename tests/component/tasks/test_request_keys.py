"""The keys by which a repetition is recognised."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from component.tasks.request import NO_JSON, Request, digest_of, key_of
from tests.component.tasks.world import AGENT, ANN, BOB
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Param
from xep.jid import JID

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


def execute(given_params: list[tuple[str, str]], value: Any = None, **attributes: Any) -> Request:
    return Request(
        skill=attributes.pop("skill", "s"),
        principal=ANN.bare,
        requester=ANN,
        target=AGENT,
        params=tuple(Param(name=name, text=text) for name, text in given_params),
        json=NO_JSON if value is None else msgspec.Raw(value),
        **attributes,
    )


def named(request: Request, name: str, requester: JID = ANN, target: JID = AGENT) -> Any:
    """The key of a request that its caller has named."""
    return key_of(replace(request, name=name, requester=requester, target=target))


def unnamed(request: Request, stanza_id: str, requester: JID = ANN) -> Any:
    """The key of a request without a name."""
    return key_of(replace(request, stanza_id=stanza_id, requester=requester))


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
    "earlier": ((), ("t",)),
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
    assert digest_of(execute([], name="r")) == digest_of(execute([]))


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


KEPT = execute([("topic", "rivers")], b'{"years":[2024,2025]}', skill="report", mode="async")


def test_the_key_of_a_name_is_that_of_earlier_releases() -> None:
    """Their records are on disk."""
    key = named(KEPT, "r-1", ANN, AGENT)
    assert key.text == "c1ddb9615ad4dd080c2c459efa21d3400d703eac8a083596848ba8ffdf7bd2e1"
    assert key.digest == "fb7339ef8aa5b133170eec3c04a8049c595764270eabf45b714d84c5a60f6de1"
    assert key.named


def test_a_name_belongs_to_the_account_and_the_id_of_an_iq_to_the_stream() -> None:
    phone = JID.parse("ann@a.example/phone")
    assert named(KEPT, "r", ANN, AGENT) == named(KEPT, "r", phone, AGENT)
    assert unnamed(KEPT, "1", ANN) != unnamed(KEPT, "1", phone)
    keys = {
        named(KEPT, "r", ANN, AGENT).text,
        named(KEPT, "r", BOB, AGENT).text,
        named(KEPT, "r", ANN, JID.parse("other@agent.example")).text,
        named(KEPT, "s", ANN, AGENT).text,
        unnamed(KEPT, "r", ANN).text,
        unnamed(KEPT, "1", ANN).text,
    }
    assert len(keys) == 6


@given(params, params)
def test_the_content_is_part_of_the_key_of_a_request_without_a_name(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    """So another content is another request; under a name it is the same key and a conflict."""
    same = by_name(one) == by_name(other)
    keys = [unnamed(execute(each), "1", ANN) for each in (one, other)]
    assert (keys[0] == keys[1]) is same
    keys_of_names = [named(execute(each), "1", ANN, AGENT) for each in (one, other)]
    assert keys_of_names[0].text == keys_of_names[1].text
    assert (keys_of_names[0].digest == keys_of_names[1].digest) is same


@given(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))
def test_no_two_ids_and_contents_run_into_each_other(a: str, b: str, c: str, d: str) -> None:
    one = unnamed(execute([], skill=b), a, ANN)
    other = unnamed(execute([], skill=d), c, ANN)
    assert (one == other) is ((a, b) == (c, d))
