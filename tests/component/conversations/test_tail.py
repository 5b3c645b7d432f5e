"""Only the end of a conversation is read, and damaged lines are skipped."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from component.conversations import tail
from component.conversations.lines import (
    Attachment,
    Called,
    Header,
    Line,
    Note,
    Reaction,
    Resulted,
    Said,
    Summary,
    decode_line,
    encode_lines,
    rfc3339,
)
from component.conversations.tail import line_number, read_tail, read_turn
from component.memory.knowledge_lines import seconds_of
from component.memory_directory.files import MemoryStoreError, append
from tests.component.conversations.lines import ENTRY, LINE, expected, letters

# No line at all, a word of another program, the wrong kinds of values, bytes that are no text.
DAMAGED = st.sampled_from(
    [
        b"{",
        b"null",
        b"[]",
        b'{"type":"message","role":"user"}',
        b'{"type":"message","role":"admin","content":"x"}',
        b'{"type":"message","role":"user","content":5}',
        b'{"type":"message","role":"user","content":"\xff"}',
        b'{"type":"of the future","content":"x"}',
        b'{"content":"x"}',
        b'{"type":"note","content":"x","more":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"type":"summary","kept":1}',
    ]
)


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def read(path: Path, budget: int = 1 << 30) -> tail.Tail:
    with opened(path) as (descriptor, size):
        return read_tail(descriptor, size, budget, letters)


@given(LINE)
def test_a_line_is_read_as_it_was_written(line: Line) -> None:
    (kept,), data = encode_lines([line], 0.0)
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")
    assert decode_line(data) == kept
    assert kept == line or line.ts is None


def test_lone_surrogates_are_replaced() -> None:
    call = Called(turn="t", round=0, id="1", name="say", arguments='{"text":"a\ud83d"}')
    (kept,), data = encode_lines([call], 0.0)
    assert decode_line(data) == kept
    assert isinstance(kept, Called)
    assert kept.arguments == '{"text":"a?"}'


def test_a_line_that_could_not_be_read_again_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("component.conversations.lines.MAX_LINE", 100)
    with pytest.raises(MemoryStoreError, match="only up to 100"):
        encode_lines([Note(content="x" * 100)], 0.0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(LINE, max_size=12), st.integers(0, 200), st.sampled_from([1, 7, 64, 32768]))
def test_the_tail_has_the_lines_since_the_last_summary_that_fit(
    tmp_path: Path, lines: list[Line], budget: int, block: int
) -> None:
    kept, data = encode_lines(lines, 0.0)
    header = b'{"type":"session","version":1,"created":"2026","jid":"a@b"}\n'
    path = tmp_path / "history.jsonl"
    path.write_bytes(header + data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "_BLOCK", block)
        found = read(path, budget)
    assert (found.lines, found.summary, found.left_out) == expected(kept, budget)
    assert found.damage == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.one_of(LINE, DAMAGED), max_size=10), st.sampled_from([b"\n", b"\r\n", b"\n \n"]))
def test_damaged_lines_are_skipped_anywhere(
    tmp_path: Path, lines: list[Line | bytes], newline: bytes
) -> None:
    good, raws = [], []
    for line in lines:
        if isinstance(line, bytes):
            raws.append(line)
        else:
            (kept,), data = encode_lines([line], 0.0)
            good.append(kept)
            raws.append(data[:-1])
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(raw + newline for raw in raws))
    found = read(path)
    assert (found.lines, found.summary, found.left_out) == expected(good)
    whole = path.read_bytes()
    for damage in found.damage:
        at_fault = whole[damage.offset :].split(b"\n")[0].rstrip(b"\r")
        assert at_fault in [line for line in lines if isinstance(line, bytes)]
        assert damage.why
        with opened(path) as (descriptor, _size):
            assert (
                line_number(descriptor, damage.offset) == whole.count(b"\n", 0, damage.offset) + 1
            )
    if not any(isinstance(line, Summary) for line in good):
        assert len(found.damage) == len(lines) - len(good)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ENTRY, min_size=1, max_size=3), st.lists(ENTRY, min_size=1, max_size=3), st.data())
def test_an_interrupted_write_loses_only_its_own_lines(
    tmp_path: Path, before: list[Line], torn: list[Line], data: st.DataObject
) -> None:
    before, first = encode_lines(before, 0.0)
    torn, second = encode_lines(torn, 0.0)
    cut = data.draw(st.integers(0, len(second)))
    path = tmp_path / "history.jsonl"
    path.write_bytes(first + second[:cut])
    after, third = encode_lines([Note(content="after")], 0.0)
    append(path, third)
    whole = second[:cut].count(b"\n") + (cut < len(second) and second[cut : cut + 1] == b"\n")
    found = read(path)
    assert found.lines == [*before, *torn[:whole], *after]
    assert len(found.damage) <= 1


def test_a_line_that_is_too_long_is_skipped_without_reading_it_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MAX_LINE", 1 << 17)
    path = tmp_path / "history.jsonl"
    path.write_bytes(
        b'{"type":"note","content":"a"}\n' + b"x" * (1 << 20) + b'\n{"type":"note","content":"b"}'
    )
    found = read(path)
    assert [line.content for line in found.lines if isinstance(line, Note)] == ["a", "b"]
    assert found.damage == [(30, "it has more than 131072 bytes")]


def test_only_the_end_of_a_long_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    line = b'{"type":"message","role":"user","content":"' + b"word " * 20 + b'"}\n'
    summary = b'{"type":"summary","content":"s","kept":3}\n'
    bytes_read = 0
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal bytes_read
        bytes_read += size
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    path.write_bytes(line * 100_000 + summary + line * 5)
    assert len(read(path, 8192).lines) == 8
    assert bytes_read <= 1 << 15
    bytes_read = 0
    path.write_bytes(line * 100_000)
    found = read(path, 8192)
    assert (len(found.lines), found.left_out) == (8192 // 104, True)
    assert bytes_read <= (1 << 15) + (1 << 20)


def test_a_summary_before_the_lines_that_fit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    _, data = encode_lines(
        [
            Note(content="before"),
            Summary(content="old"),
            Summary(content="s", kept=1),
            Said(role="user", content='says "summary" and {"type":"summary"}'),
            Note(content="x" * 50),
            Note(content="last"),
        ],
        0.0,
    )
    path.write_bytes(data)
    found = read(path, 10)
    assert found.summary is not None
    assert found.summary.content == "s"
    assert [line.content for line in found.lines if isinstance(line, Note)] == ["last"]
    assert found.left_out


def test_sessions_of_fluux_agent_are_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(
        '\ufeff{"type":"session","version":1,"created":"2026-02-08T19:00:00Z","jid":"a@b"}\n'
        '{"type":"message","role":"user","content":"look","msg_id":"1","sender":"a@b",'
        '"ts":"2026-02-08T19:01:00.123456789+00:00","attachments":[{"filename":"p.png",'
        '"mime_type":"image/png","size":"926KB","sha256":"of the future"}]}\n'
        '{"type":"message","role":"user","content":"","sender":"nick@muc",'
        '"reaction":{"message_id":"2","emojis":["\U0001f44d"]}}',
        encoding="utf-8",
    )
    found = read(path)
    assert found.damage == []
    first, second = found.lines
    assert isinstance(first, Said)
    assert isinstance(second, Said)
    assert first.attachments == (Attachment("p.png", "image/png", "926KB"),)
    assert second.reaction == Reaction("2", ("\U0001f44d",))
    assert seconds_of(first.ts) == pytest.approx(seconds_of("2026-02-08T19:01:00.123456Z"))


@given(st.floats(0, 4e9))
@example(0.0)
def test_a_time_is_read_as_it_was_written(now: float) -> None:
    assert seconds_of(rfc3339(now)) == pytest.approx(now, abs=0.0011)


@pytest.mark.parametrize("bad", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_an_invalid_time_is_none(bad: str | None) -> None:
    assert seconds_of(bad) is None


def turn_of(path: Path, turn: str) -> tuple[list[Line], bool]:
    with opened(path) as (descriptor, size):
        lines, begun, _damage = read_turn(descriptor, size, turn)
        return lines, begun


def test_a_turn_is_read_from_between_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    of_turn: list[Line] = [
        Said(role="user", content="do it", turn="t", ts="1"),
        Called(turn="t", round=0, id="1", name="f", arguments="{}", ts="1"),
        Resulted(turn="t", id="1", content="waits", task="x", ts="1"),
        Resulted(turn="t", id="1", content="done", ts="1"),
    ]
    other: list[Line] = [
        Said(role="user", content='about "t"', turn="u", ts="1"),
        Summary(content='"t"', kept=9, ts="1"),
        Said(role="assistant", content="yes", turn="u", final=True, ts="1"),
    ]
    _, data = encode_lines([*other, *of_turn[:3], *other, of_turn[3]], 0.0)
    path.write_bytes(data)
    assert turn_of(path, "t") == (of_turn, True)
    assert turn_of(path, "nobody's") == ([], False)


def test_the_header_is_not_a_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"type":"session","version":1,"created":"2026","jid":"a@b"}\n')
    assert read(path) == tail.Tail([], None, False, [])
    assert isinstance(decode_line(path.read_bytes()), Header)
