"""JSON of peers is held against bounds before objects are built of it."""

import json
import tracemalloc
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xep.binding import ContentError, json_bounds, read
from xep.binding.json_bounds import MOST_DEPTH, MOST_VALUES, checked_json, decoded_json
from xep.fluux_agent.execute import Params

_TEXT = st.text(st.sampled_from('a,[]{}"\\\n:é')) | st.text()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner),
    max_leaves=30,
).filter(lambda value: "Infinity" not in json.dumps(value))


def _values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + (sum(map(_values, inner)) if isinstance(value, dict | list) else 0)


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0)


@example(value=["a"], indent=None, ascii_=True, less=1, piece=1 << 16)
@example(value=[[], {}, [""], [" "]], indent=1, ascii_=True, less=1, piece=1 << 16)
@example(value=["", 'a"b', "\\"], indent=None, ascii_=True, less=1, piece=1)
@given(
    value=_JSON,
    indent=st.sampled_from([None, 1]),
    ascii_=st.booleans(),
    less=st.integers(0, 1),
    piece=st.integers(1, 9),
)
def test_values_and_depth_are_counted_exactly(
    value: Any, indent: int | None, ascii_: bool, less: int, piece: int
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    for most_values, most_depth in (
        (_values(value) - less, MOST_DEPTH),
        (MOST_VALUES, _depth(value) - less),
    ):
        with patch.object(json_bounds, "_PIECE", piece):
            try:
                assert bytes(checked_json(text, most_values, most_depth)) == text
                within = True
            except ValueError:
                within = False
            assert within == (less == 0)


@given(value=_JSON, as_text=st.booleans())
def test_json_of_programs_and_servers_is_decoded(value: Any, as_text: bool) -> None:
    text = msgspec.json.encode(value)
    assert decoded_json(text.decode() if as_text else text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 4_000_000 + b"[]]",
        b"[" + b"{}," * 4_000_000 + b"{}]",
        b"[" + b"1," * 4_000_000 + b"1]",
        b"[" + b'"aa",' * 4_000_000 + b'"aa"]',
        b"{" + b'"a":1,' * 4_000_000 + b'"a":1}',
        b"[" * 4_000_000,
    ],
    ids=["arrays", "objects", "numbers", "texts", "the same key", "depth"],
)
def test_a_long_json_text_takes_no_memory_for_its_values(text: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="at most"):
            decoded_json(text)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text)
    finally:
        tracemalloc.stop()


@given(text=st.binary() | _TEXT.map(str.encode) | st.text('[]{}",:1a \\').map(str.encode))
def test_what_is_no_json_is_refused_and_never_anything_else(text: bytes) -> None:
    try:
        checked_json(text)
    except ValueError:
        with pytest.raises((ValueError, RecursionError)):
            msgspec.json.decode(text)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("[" + "0," * MOST_VALUES + "0]", f"at most {MOST_VALUES} values"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), f"at most {MOST_DEPTH} deep"),
        ("[" * 5000 + "]" * 5000, f"at most {MOST_DEPTH} deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, f"at most {MOST_DEPTH} deep"),
    ],
)
def test_the_error_names_the_bound(text: str, bound: str) -> None:
    xml = f"<params xmlns='urn:fluux:agent:0#execute'>{text}</params>"
    with pytest.raises(ContentError, match=bound):
        read(xml, Params)


def test_no_objects_are_built_of_what_is_checked() -> None:
    with patch.object(msgspec.json, "decode", side_effect=AssertionError):
        read("<params xmlns='urn:fluux:agent:0#execute'>[[1],{\"a\":2}]</params>", Params)
