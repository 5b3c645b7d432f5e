"""Server-sent events in any pieces."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import EVENT_BYTES, TooMuchError
from component.models.connection import Events
from tests.profiles import THOROUGH

DATA = (st.binary(max_size=20) | st.binary(max_size=5).map(lambda data: b"{%s}" % data)).filter(
    lambda data: b"\n" not in data and not data.endswith(b"\r")
)
FIELD = st.sampled_from([b"data: ", b"data:"])
NOISE = st.sampled_from([b"", b": ping\n", b"event: message\n", b"id: 7\nretry: 10\n", b"\n\n"])


@given(st.lists(st.tuples(NOISE, FIELD, DATA)), st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_each_event_is_found_in_any_pieces(
    said: list[tuple[bytes, bytes, bytes]], end: bytes, data: st.DataObject
) -> None:
    stream = b"".join(
        noise.replace(b"\n", end) + field + value + end + end for noise, field, value in said
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    events = Events()
    found = []
    for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += events.feed(stream[a:b])
    expected = [
        value[1:] if field == b"data:" and value[:1] == b" " else value for _, field, value in said
    ]
    assert found == expected
    assert events.end() == []


@given(st.binary())
def test_anything_is_taken(data: bytes) -> None:
    events = Events()
    events.feed(data)
    events.end()


def test_several_lines_are_one_event() -> None:
    assert Events().feed(b"data: {\ndata: }\n\n") == [b"{\n}"]


def test_the_last_event_need_not_end() -> None:
    events = Events()
    assert events.feed(b"data: [DONE]") == []
    assert events.end() == [b"[DONE]"]


@pytest.mark.parametrize("piece", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n", b"data:\n" * 1000])
def test_an_event_without_end_is_not_kept(piece: bytes) -> None:
    events = Events()
    pieces = [piece] * (EVENT_BYTES // 1000 + 2)
    with pytest.raises(TooMuchError, match="more than"):
        deque(map(events.feed, pieces), maxlen=0)


def test_an_event_in_single_bytes_is_put_together_once() -> None:
    """Each byte is copied a few times at most: in quadratic time this takes minutes."""
    size = EVENT_BYTES - 10 if THOROUGH else EVENT_BYTES // 4
    text = b"x" * size
    events = Events()
    found = []
    for byte in b"data: " + text + b"\n\n":
        found += events.feed(bytes((byte,)))
    assert found == [text]


@given(st.integers(0, 12))
def test_a_byte_order_mark_hides_no_event(cut: int) -> None:
    events, stream = Events(), b"\xef\xbb\xbfdata: {}\n\n"
    assert events.feed(stream[:cut]) + events.feed(stream[cut:]) == [b"{}"]
    assert events.feed(b"\xef\xbb\xbfdata: x\n\n") == [], "only at the beginning"
