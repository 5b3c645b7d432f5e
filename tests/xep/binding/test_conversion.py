"""Text to value and back: each lexical space, its edges, and what lies just outside."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import SCALARS, json_values
from xep.binding.conversion import conversion_for
from xep.jid import JID

TYPES = [kind for kind in SCALARS if kind is not str]
by_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)


def decode(kind: Any, text: str) -> Any:
    conversion = conversion_for(kind)
    assert conversion is not None
    assert conversion.decode is not None
    return conversion.decode(text)


def encode(kind: Any, value: Any) -> str:
    conversion = conversion_for(kind)
    assert conversion is not None
    assert conversion.encode is not None
    return conversion.encode(value)


@by_type
@given(data=st.data())
def test_an_encoded_value_decodes_to_the_same_value(kind: Any, data: st.DataObject) -> None:
    value = data.draw(SCALARS[kind])
    assert decode(kind, encode(kind, value)) == value


@by_type
@given(text=st.text() | st.text("0123456789+-.:TZeE \tx{}[]\"'"))
def test_any_text_is_read_or_refused_with_a_reason(kind: Any, text: str) -> None:
    try:
        value = decode(kind, text)
    except ValueError:
        return
    assert decode(kind, encode(kind, value)) == value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, " \t\r\n+007 ", 7),
        (int, "-0", 0),
        (int, "9" * 19, 10**19 - 1),
        (bool, "1", True),
        (bool, "0", False),
        (bool, " true\n", True),
        (float, "1e308", 1e308),
        (float, ".5", 0.5),
        (float, "5.", 5.0),
        (float, "1e-400", 0.0),
        (Decimal, "-.50", Decimal("-0.50")),
        (bytes, "", b""),
        (bytes, " A A = = ", b"\x00"),
        (JID, "ROMEO@Example.org/Orchard", JID("romeo", "example.org", "Orchard")),
        (timezone, "Z", UTC),
        (timezone, "-06:00", timezone(timedelta(hours=-6))),
        (timezone, "+05:45", timezone(timedelta(hours=5, minutes=45))),
        (datetime, "2026-02-08T19:00:00Z", datetime(2026, 2, 8, 19, tzinfo=UTC)),
        (datetime, "2026-02-08T20:00:00+01:00", datetime(2026, 2, 8, 19, tzinfo=UTC)),
        (datetime, "2026-02-08T19:00:00.5Z", datetime(2026, 2, 8, 19, 0, 0, 500000, UTC)),
        (
            datetime,
            "2026-02-08T19:00:00.123456789Z",
            datetime(2026, 2, 8, 19, 0, 0, 123456, UTC),
        ),
        (datetime, "2024-02-29T00:00:00-00:00", datetime(2024, 2, 29, tzinfo=UTC)),
    ],
)
def test_valid_texts_decode_to_their_values(kind: Any, text: str, value: Any) -> None:
    assert decode(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, ""),
        (int, "1.0"),
        (int, "1_000"),
        (int, "٣"),
        (int, "0x1f"),
        (int, "\xa07"),
        (int, "1" * 20),
        (bool, "True"),
        (bool, "yes"),
        (bool, ""),
        (float, "inf"),
        (float, "NaN"),
        (float, "1e309"),
        (float, "1e9999"),
        (float, "."),
        (Decimal, "1e2"),
        (Decimal, "NaN"),
        (Decimal, "1" * 41),
        (bytes, "A"),
        (bytes, "AA=A"),
        (bytes, "AA-_"),
        (JID, ""),
        (JID, "@example.org"),
        (timezone, "+24:00"),
        (timezone, "+0200"),
        (timezone, "CET"),
        (timezone, "02:00"),
        (datetime, "2026-02-08"),
        (datetime, "2026-02-08 19:00:00Z"),
        (datetime, "2026-02-08T19:00:00"),
        (datetime, "2026-02-08T19:00Z"),
        (datetime, "2026-02-30T19:00:00Z"),
        (datetime, "2026-02-08T24:00:00Z"),
        (datetime, "2026-02-08T19:00:00+99:00"),
        (datetime, "0000-01-01T00:00:00Z"),
        (datetime, "0001-01-01T00:00:00+01:00"),
        (datetime, "9999-12-31T23:59:59-01:00"),
        (datetime, "20260208T19:00:00"),
        (msgspec.Raw, ""),
        (msgspec.Raw, "{"),
        (msgspec.Raw, "{'a': 1}"),
        (msgspec.Raw, "1 2"),
        (msgspec.Raw, "NaN"),
        (msgspec.Raw, '"\udc80"'),
        (msgspec.Raw, "[" * 100_000),
    ],
)
def test_invalid_texts_are_refused_with_a_reason(kind: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|JID|part"):
        decode(kind, text)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (int, True, "1"),
        (bool, True, "true"),
        (float, -0.0, "-0.0"),
        (float, 1e22, "1e+22"),
        (Decimal, Decimal("1E+2"), "100"),
        (Decimal, Decimal("1E-7"), "0.0000001"),
        (timezone, UTC, "+00:00"),
        (timezone, timezone(-timedelta(hours=3, minutes=30)), "-03:30"),
        (
            datetime,
            datetime(2026, 2, 8, 20, tzinfo=timezone(timedelta(hours=1))),
            "2026-02-08T19:00:00Z",
        ),
        (datetime, datetime(33, 4, 3, 1, 2, 3, 4, UTC), "0033-04-03T01:02:03.000004Z"),
    ],
)
def test_values_encode_to_their_canonical_texts(kind: Any, value: Any, text: str) -> None:
    assert encode(kind, value) == text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 10**19),
        (float, float("inf")),
        (Decimal, Decimal("NaN")),
        (Decimal, Decimal("1e999999")),
        (Decimal, Decimal("1e-41")),
        (timezone, timezone(timedelta(seconds=1))),
        (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - what is refused
        (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        (datetime, datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))),
    ],
)
def test_values_without_a_text_form_cannot_be_encoded(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        encode(kind, value)


@given(json_values)
def test_json_text_is_kept_as_written(value: Any) -> None:
    spaced = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    raw = decode(msgspec.Raw, f"\n {spaced} \n")
    assert bytes(raw).decode() == spaced
    assert msgspec.json.decode(raw) == value
