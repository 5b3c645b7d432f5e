"""Messages to and from children survive pipes, and nothing else is taken for one."""

import tracemalloc
from contextlib import suppress
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.sandbox.messages import (
    Ask,
    Call,
    Cancel,
    Describe,
    Described,
    Failure,
    FrameError,
    Frames,
    LogLine,
    Result,
    frame,
    read_from_child,
    read_to_child,
)
from component.skills.host import LOG_LEVELS, HttpRequest, ReadMemory
from component.skills.operations import RunStep
from component.skills.outputs import File, Link, Output, SkillResult

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
REQUESTS = st.builds(
    HttpRequest,
    method=TEXT,
    url=TEXT,
    headers=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    body=st.binary(max_size=20),
)
PARTS = st.one_of(
    st.builds(Output, text=TEXT, name=st.none() | TEXT),
    st.builds(File, data=st.binary(max_size=20), media_type=TEXT, name=st.none() | TEXT),
    st.builds(
        Link,
        url=TEXT,
        media_type=st.none() | TEXT,
        size=st.none() | st.integers(0, 2**40),
        sha256=st.none() | st.binary(min_size=32, max_size=32),
    ),
)
RESULTS = st.builds(
    SkillResult,
    st.lists(PARTS, max_size=3).map(tuple),
    is_error=st.booleans(),
    taints=st.none() | st.just(("web",)),
)
FROM_CHILD = st.one_of(
    st.builds(Described, st.lists(st.binary(max_size=9), max_size=3).map(tuple)),
    st.builds(Result.of, RESULTS),
    st.builds(Failure, st.sampled_from(["load", "memory", "failed"]), TEXT, st.none() | TEXT),
    st.builds(LogLine, st.sampled_from(LOG_LEVELS), TEXT),
    st.builds(
        Ask,
        st.integers(0, 1 << 40),
        REQUESTS
        | st.builds(ReadMemory, TEXT)
        | st.builds(
            RunStep, TEXT, st.booleans(), st.binary(), st.none() | st.integers(0, 9) | TEXT
        ),
        st.booleans(),
    ),
)
CALLS = st.builds(
    Call,
    skill=TEXT,
    arguments=st.binary(),
    seconds=st.floats(0, 1e6),
    principal=TEXT,
    sender=TEXT,
    agent=TEXT,
    key=TEXT,
)
TO_CHILD = st.one_of(st.builds(Describe), st.builds(Cancel), CALLS)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    found, at = [], 0
    for size in sizes:
        found.append(data[at : at + size])
        at += size
    return [*found, data[at:]]


@given(st.lists(FROM_CHILD, max_size=5), st.lists(st.integers(0, 40), max_size=20))
def test_messages_of_a_child_are_read_however_they_are_split(
    messages: list[Any], sizes: list[int]
) -> None:
    frames, found = Frames(1 << 20), []
    for piece in pieces(b"".join(map(frame, messages)), sizes):
        frames.feed(piece)
        while (body := frames.next()) is not None:
            found.append(read_from_child(body))
    assert found == messages
    assert frames.empty


@given(RESULTS)
def test_results_have_every_kind_of_part(result: SkillResult) -> None:
    sent = read_from_child(msgspec.msgpack.encode(Result.of(result)))
    assert isinstance(sent, Result)
    assert sent.result() == result


@given(TO_CHILD)
def test_messages_to_a_child_are_read(message: Any) -> None:
    frames = Frames(1 << 20)
    frames.feed(frame(message))
    body = frames.next()
    assert body is not None
    assert read_to_child(body) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_a_sandbox_message_or_refused(data: bytes) -> None:
    for read in (read_from_child, read_to_child):
        try:
            read(data)
        except FrameError:
            continue
        frames = Frames(1000)
        frames.feed(len(data).to_bytes(4, "big") + data)
        assert frames.next() == data


@given(st.binary(max_size=300))
def test_frames_never_fail_otherwise(data: bytes) -> None:
    frames = Frames(64)
    frames.feed(data)
    try:
        while (body := frames.next()) is not None:
            assert len(body) <= 64
    except FrameError:
        pass


def _array(size: int) -> bytes:
    return b"\xdd" + size.to_bytes(4, "big")


def _message(tag: str, **fields: bytes) -> bytes:
    pairs = {b"type": msgspec.msgpack.encode(tag)} | {k.encode(): v for k, v in fields.items()}
    return bytes([0x80 + len(pairs)]) + b"".join(
        msgspec.msgpack.encode(name.decode()) + value for name, value in pairs.items()
    )


_MANY: Final = 2_000_000
_LINK: Final = msgspec.msgpack.encode({"type": "link", "url": ""})
_READ: Final = msgspec.msgpack.encode({"type": "memory-read", "key": "", "x": 1})
_REQUEST: Final = msgspec.msgpack.encode(HttpRequest("", "", (("", ""),)))


@pytest.mark.parametrize(
    "body",
    [
        _message("described", skills=_array(_MANY) + b"\x80" * _MANY),
        _message("described", skills=_array(_MANY) + b"\xc4\0" * _MANY),
        _message("result", parts=_array(_MANY) + _LINK * _MANY),
        _message("result", parts=b"\x90", taints=_array(_MANY) + b"\xa3web" * _MANY),
        _message("result", parts=b"\x91" * _MANY),
        _message("result", other=_array(_MANY) + b"\x90" * _MANY),
        _message(
            "ask",
            id=b"\1",
            what=_REQUEST.replace(b"\x91", _array(_MANY)).replace(
                b"\x92\xa0\xa0", b"\x92\xa0\xa0" * _MANY
            ),
        ),
        _message("failure", kind=b"\xa6failed", text=b"\xdb\0\x20\0\0" + b"x" * (1 << 21)),
    ],
    ids=["maps", "texts", "parts", "taints", "depth", "unknown", "headers", "long"],
)
def test_a_message_costs_no_more_memory_than_its_length(body: bytes) -> None:
    tracemalloc.start()
    try:
        with suppress(FrameError):
            assert isinstance(read_from_child(body), Failure)
        assert tracemalloc.get_traced_memory()[1] < len(body) + (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_message_that_is_too_long_is_refused_before_it_is_there() -> None:
    frames = Frames(10)
    frames.feed((11).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="11 bytes"):
        frames.next()


@pytest.mark.parametrize(
    "body",
    [
        _message("result", parts=b"\x90", other=b"\xc0"),
        _message(
            "result", parts=b"\x91" + msgspec.msgpack.encode({"type": "link", "url": "", "x": 1})
        ),
        _message("described", skills=b"\x90", other=b"\xc0"),
        _message("ask", id=b"\1", what=_READ),
        _message("log", level=b"\xa4info", text=b"\xa0", other=b"\xc0"),
    ],
    ids=["result", "part", "described", "function", "log"],
)
def test_a_message_with_an_unknown_field_is_refused_at_that_field(body: bytes) -> None:
    with pytest.raises(FrameError, match="unknown field"):
        read_from_child(body)
