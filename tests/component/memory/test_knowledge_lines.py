"""The file of memories is read, whichever program has written it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.memory import knowledge_lines
from component.memory.knowledge_lines import (
    MemoryLine,
    decode_memory,
    encode_memory,
    limit_versions,
    parse_memories,
    remove_keys,
    seconds_of,
    versions_of,
    xml_safe,
)
from xep.characters import without_forbidden

NEIGHBOUR = (
    b'{"key":"favorite_language","content":"Rust","ts":"2025-06-01T14:30:22Z"}\n'
    b'{"key":"deadline","content":"2025-09-15","ts":"2025-06-03T10:00:00.123456789+00:00"}\n'
)

keys = st.sampled_from(["a", "b", 'quo"te', "käse", "a\\b", "日本"]) | st.text(min_size=1)
entries = st.builds(
    MemoryLine,
    key=keys,
    body=st.text(min_size=1),
    ts=st.sampled_from(["", "2026-01-01T00:00:00Z", "yesterday"]),
    title=st.text(),
    topic=st.text(),
    tags=st.lists(st.text()).map(tuple),
    version=st.integers(0, 5),
    taint=st.sampled_from([None, "web", "person"]),
)


def test_lines_of_fluux_agent_are_read_unchanged() -> None:
    items, damaged = parse_memories(NEIGHBOUR)
    assert not damaged
    assert items["favorite_language"].body == "Rust"
    assert items["favorite_language"].updated == "2025-06-01T14:30:22Z"
    assert items["deadline"].version == 1


def test_fluux_agent_reads_our_lines() -> None:
    told = json.loads(encode_memory(MemoryLine(key="k", body="c", ts="t", tags=("x",), version=2)))
    assert {name: told[name] for name in ("key", "content", "ts")} == {
        "key": "k",
        "content": "c",
        "ts": "t",
    }


def test_the_last_line_of_a_key_is_the_current_version() -> None:
    data = b'{"key":"k","content":"1"}\n\n{"key":"k","content":"2","by":"b@x"}\r\n'
    item = parse_memories(data).items["k"]
    assert (item.body, item.version, item.versions, item.by) == ("2", 2, 2, "b@x")
    assert [one.body for one in versions_of(data, "k")] == ["1", "2"]


def test_a_damaged_line_is_skipped_and_the_others_are_read() -> None:
    data = NEIGHBOUR + b'{"key":"x","con\n[1]\n{"key":7,"content":""}\n{"key":"k"}\n\xff\xfe\n'
    items, damaged = parse_memories(data + b'{"key":"z","content":"last"}')
    assert set(items) == {"favorite_language", "deadline", "z"}
    assert damaged == [3, 4, 5, 6, 7]


def test_versions_of_a_forgotten_key_start_again() -> None:
    data = b'{"key":"k","content":"1"}\n{"key":"k","forgotten":true}\n'
    assert parse_memories(data).items == {}
    assert parse_memories(data + b'{"key":"k","content":"2"}\n').items["k"].version == 1
    assert versions_of(data, "k") == []


def test_a_byte_order_mark_is_ignored() -> None:
    assert set(parse_memories(b"\xef\xbb\xbf" + NEIGHBOUR).items) == {
        "favorite_language",
        "deadline",
    }


def test_trimming_keeps_the_first_and_the_last_versions() -> None:
    data = b"".join(
        encode_memory(MemoryLine(key="k", body=str(n), version=n)) for n in range(1, 10)
    )
    data += NEIGHBOUR
    trimmed = limit_versions(data, "k", 3)
    assert [one.body for one in versions_of(trimmed, "k")] == ["1", "8", "9"]
    assert parse_memories(trimmed).items["k"].version == 9
    assert trimmed.endswith(NEIGHBOUR)


def test_invalid_times_are_accepted() -> None:
    assert seconds_of("1970-01-01T00:01:00Z") == 60
    assert seconds_of("1970-01-01T00:01:00") == 60
    assert seconds_of("soon") is None


@given(st.binary() | st.lists(st.binary()).map(b"\n".join))
def test_any_file_can_be_parsed(data: bytes) -> None:
    items, damaged = parse_memories(data)
    for key in items:
        assert versions_of(data, key)
        assert key not in parse_memories(remove_keys(data, [key])).items
    assert len(damaged) <= data.count(b"\n") + 1


@given(st.lists(entries))
def test_a_written_memory_is_read_unchanged(told: list[MemoryLine]) -> None:
    data = b"".join(map(encode_memory, told))
    items, damaged = parse_memories(data)
    assert not damaged
    last = {entry.key: entry for entry in map(xml_safe, told)}
    assert {key: item.body for key, item in items.items()} == {
        key: entry.body for key, entry in last.items()
    }
    for key, item in items.items():
        found = versions_of(data, key)
        assert found[-1] == item
        assert len(found) == item.versions
        assert [one.version for one in found] == sorted({one.version for one in found})


@given(st.lists(entries, min_size=1), st.data(), st.booleans())
def test_all_lines_of_a_key_are_removed_and_no_others(
    told: list[MemoryLine], data: st.DataObject, escaped: bool
) -> None:
    gone = xml_safe(data.draw(st.sampled_from(told))).key
    # Others write the same with escapes, or as bytes.
    lines = [
        json.dumps(json.loads(encode_memory(entry)), ensure_ascii=escaped).encode() + b"\n"
        for entry in told
    ]
    rest = remove_keys(b"".join(lines), [gone])
    assert rest == b"".join(
        line for line, entry in zip(lines, told, strict=True) if xml_safe(entry).key != gone
    )


def test_a_damaged_line_with_a_forgotten_key_is_removed() -> None:
    torn = b'{"key":"k","content":"secr\n'
    assert remove_keys(torn + NEIGHBOUR, ["k"]) == NEIGHBOUR
    assert remove_keys(torn + NEIGHBOUR, ["j"]) == torn + NEIGHBOUR


some_keys = st.sampled_from(
    ["a", "a/b", "\U0001f511", 'quo"te', "a\\u0062", "\b", "\uffff", "käse"]
)
_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\b": "\\b"}


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """A JSON string with each character in one of its encodings."""
    said = ""
    for character in text:
        code = character.encode("utf-16-be").hex()
        units = [f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4)]
        ways = ["".join(units), "".join(units).upper().replace("\\U", "\\u")]
        if character in _SHORT:
            ways.append(_SHORT[character])
        if character not in '"\\' and character >= " ":
            ways.append(character)
        said += draw(st.sampled_from(ways))
    return f'"{said}"'


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A line with a key, with the key in its text, damaged, or blank."""
    key, other = draw(spelled(draw(some_keys))), draw(spelled(draw(some_keys)))
    name = draw(spelled("key") | st.just('"key"'))
    line = draw(
        st.sampled_from(
            [
                f'{{{name}:{key},"content":{other}}}',
                f'{{"content":{other} , {name} : {key}}}',
                f'{{{name}:{other},"content":"",{name}:{key}}}',
                f'{{{name}:{key},"content":7}}',
                f'{{{name}:{key},"forgotten":true}}',
                f"[{key}]",
                "",
            ]
        )
    ).encode()
    line = line[: draw(st.integers(0, len(line)))] if draw(st.booleans()) else line
    return line + draw(st.sampled_from([b"", b"", b"\r", b" \xff"]))


def _names(line: bytes, key: str) -> bool:
    """Whether a line has to be removed with a key, determined by decoding it."""
    entry = decode_memory(line)
    if entry is not None:
        return entry.key == key
    try:
        read = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.encode(key) in line
    named = read.get("key")
    return isinstance(named, str) and without_forbidden(named) == key


@given(st.lists(written()), some_keys, st.booleans(), st.booleans(), st.integers(1, 3))
def test_the_fast_search_for_lines_finds_all_lines_of_a_key(
    lines: list[bytes], key: str, marked: bool, ended: bool, most: int
) -> None:
    key = without_forbidden(key)
    mark = b"\xef\xbb\xbf" if marked else b""
    data = mark + b"".join(line + b"\n" for line in lines)
    own = [at for at, line in enumerate(lines) if _names(line, key)]

    def those_but(gone: list[int]) -> bytes:
        rest = (line + b"\n" for at, line in enumerate(lines) if at not in gone)
        return (mark + b"".join(rest)).rstrip(b"\n")

    given = data if ended else data.removesuffix(b"\n")
    assert remove_keys(given, [key]).rstrip(b"\n") == those_but(own)
    cut = own[1 : max(1, len(own) - most + 1)]
    assert limit_versions(given, key, most).rstrip(b"\n") == those_but(cut)
    alive = parse_memories(given).items.get(key)
    assert versions_of(given, key)[-1:] == ([] if alive is None else [alive])


def test_lines_of_other_keys_are_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = [MemoryLine(key=f"k{n}", body='two\nlines, a "word" and a \\') for n in range(100)]
    data = b"".join(map(encode_memory, told))
    read: list[bytes] = []

    def counted(line: bytes) -> MemoryLine | None:
        read.append(line)
        return decode_memory(line)

    monkeypatch.setattr(knowledge_lines, "decode_memory", counted)
    assert remove_keys(data, ["k7"]) == b"".join(
        encode_memory(one) for one in told if one.key != "k7"
    )
    assert len(read) == 1


@pytest.mark.parametrize(
    "way", ['"a/b"', '"a\\/b"', '"a\\u002fb"', '"a\\u002Fb"', '"\\u0061/b"', '"\\u0061\\/\\u0062"']
)
@pytest.mark.parametrize("name", ['"key"', '"\\u006bey"'])
def test_a_key_is_found_in_any_encoding(name: str, way: str) -> None:
    data = f'{{{name}:{way},"content":"1"}}\n'.encode()
    assert [one.body for one in versions_of(data, "a/b")] == ["1"]
    assert remove_keys(NEIGHBOUR + data + NEIGHBOUR, ["a/b"]) == NEIGHBOUR + NEIGHBOUR


def test_a_byte_order_mark_hides_no_line() -> None:
    data = b'\xef\xbb\xbf{"key":"\\u006b","content":"1"}\n'
    assert [one.body for one in versions_of(data, "k")] == ["1"]
    assert not parse_memories(remove_keys(data, ["k"])).items


@given(st.binary(max_size=60))
def test_any_line_decodes_to_an_entry_with_a_key_or_to_none(line: bytes) -> None:
    entry = decode_memory(line)
    assert entry is None or entry.key
