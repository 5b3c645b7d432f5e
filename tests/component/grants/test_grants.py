"""What grants contain, and how they are read."""

from decimal import Decimal

import msgspec
import pytest

from component.grants import Budget, GrantError, PublicKey, covers, narrowed, read_grant
from component.grants.grant import Confirmation, check_signature
from component.grants.keys import sign
from tests.component.grants.vectors import Chain, key_of


@pytest.mark.parametrize(
    ("patterns", "wanted", "expected"),
    [
        (("report",), "report", True),
        (("report",), "reports", False),
        (("sources.*",), "sources.list", True),
        (("sources.*",), "sources.a*", True),
        (("sources.*",), "sources.*", True),
        (("sources.*",), "sources", False),
        (("sources.*",), "*", False),
        (("report", "*"), "erase", True),
        ((), "report", False),
    ],
)
def test_a_pattern_covers_what_begins_like_it(
    patterns: tuple[str, ...], wanted: str, expected: bool
) -> None:
    assert covers(patterns, wanted) is expected


def test_what_two_lists_have_in_common_is_in_both() -> None:
    assert narrowed(("*",), ("a", "b.*")) == ("a", "b.*")
    assert narrowed(("a", "b.*"), ("*",)) == ("a", "b.*")
    assert narrowed(("a", "b.*"), ("b.c", "b.d*", "x", "a*")) == ("b.c", "b.d*", "a")
    assert narrowed(("a",), ("b",)) == ()


def test_a_budget_covers_those_that_have_all_its_limits_and_none_that_is_larger() -> None:
    budget = Budget(usd=Decimal("0.5"), tokens=100)
    assert budget.covers(budget)
    assert budget.covers(Budget(usd=Decimal("0.50"), tokens=0))
    assert not budget.covers(Budget(usd=Decimal("0.5")))
    assert not budget.covers(Budget(usd=Decimal("0.5"), tokens=101))
    assert Budget().covers(budget)


def test_members_that_are_not_known_are_ignored() -> None:
    root = Chain().root
    claims = msgspec.to_builtins(root) | {"later": {"than": "this"}}
    assert (
        read_grant(sign(key_of(root.iss), "fluux-grant+jwt", msgspec.json.encode(claims))) == root
    )


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "é.b.c", "..", "a" * 20_000, "[" * 9000 + ".."])
def test_a_text_that_is_no_grant_is_malformed(text: str) -> None:
    with pytest.raises(GrantError) as raised:
        read_grant(text)
    assert raised.value.reason == "malformed"


@pytest.mark.parametrize(
    "change",
    [
        {"iss": ""},
        {"sub": "alice@example.com/phone"},
        {"aud": "Agent.Example.COM"},
        {"skills": []},
        {"skills": [""]},
        {"depth": -1},
        {"exp": 2**60},
        {"iat": 1.5},
        {"jti": ""},
        {"budget": {"usd": "-1"}},
        {"budget": {"usd": "NaN"}},
        {"budget": {"usd": "Infinity"}},
        {"cnf": {"jwk": {"kty": "EC", "crv": "P-256", "x": "a", "y": "b"}}},
    ],
)
def test_claims_that_cannot_be_are_malformed(change: dict[str, object]) -> None:
    root = Chain().root
    claims = msgspec.to_builtins(root) | change
    with pytest.raises(GrantError) as raised:
        read_grant(sign(key_of(root.iss), "fluux-grant+jwt", msgspec.json.encode(claims)))
    assert raised.value.reason == "malformed"


def test_a_key_for_the_next_grant_that_is_no_key_signs_nothing() -> None:
    chain = Chain()
    chain.of_root(cnf=Confirmation(jwk=PublicKey(x="AAAA")))
    first, second = chain.grants()
    with pytest.raises(GrantError) as raised:
        check_signature(second, read_grant(first).cnf.jwk)
    assert raised.value.reason == "wrong-key"
