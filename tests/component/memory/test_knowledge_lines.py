"""The file of memories is read as it is, whoever has written it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from component.memory.knowledge_lines import (
    Entry,
    decode,
    encode,
    parse,
    seconds_of,
    shortened,
    versions_of,
    without,
)

NEIGHBOUR = (
    b'{"key":"favorite_language","content":"Rust","ts":"2025-06-01T14:30:22Z"}\n'
    b'{"key":"deadline","content":"2025-09-15","ts":"2025-06-03T10:00:00.123456789+00:00"}\n'
)

keys = st.sampled_from(["a", "b", 'quo"te', "käse", "a\\b", "日本"]) | st.text(min_size=1)
entries = st.builds(
    Entry,
    key=keys,
    content=st.text(min_size=1),
    ts=st.sampled_from(["", "2026-01-01T00:00:00Z", "yesterday"]),
    title=st.text(),
    topic=st.text(),
    tags=st.lists(st.text()).map(tuple),
    version=st.integers(0, 5),
    taint=st.sampled_from([None, "web", "person"]),
)


def test_the_lines_of_fluux_agent_are_read_as_they_are() -> None:
    items, damaged = parse(NEIGHBOUR)
    assert not damaged
    assert items["favorite_language"].body == "Rust"
    assert items["favorite_language"].updated == "2025-06-01T14:30:22Z"
    assert items["deadline"].version == 1


def test_fluux_agent_reads_our_lines() -> None:
    told = json.loads(encode(Entry(key="k", content="c", ts="t", tags=("x",), version=2)))
    assert {name: told[name] for name in ("key", "content", "ts")} == {
        "key": "k",
        "content": "c",
        "ts": "t",
    }


def test_the_last_line_of_a_key_counts_and_versions_are_counted() -> None:
    data = b'{"key":"k","content":"1"}\n\n{"key":"k","content":"2","by":"b@x"}\r\n'
    item = parse(data).items["k"]
    assert (item.body, item.version, item.versions, item.by) == ("2", 2, 2, "b@x")
    assert [one.body for one in versions_of(data, "k")] == ["1", "2"]


def test_a_damaged_line_costs_itself() -> None:
    data = NEIGHBOUR + b'{"key":"x","con\n[1]\n{"key":7,"content":""}\n{"key":"k"}\n\xff\xfe\n'
    items, damaged = parse(data + b'{"key":"z","content":"last"}')
    assert set(items) == {"favorite_language", "deadline", "z"}
    assert damaged == [3, 4, 5, 6, 7]


def test_what_is_forgotten_starts_anew() -> None:
    data = b'{"key":"k","content":"1"}\n{"key":"k","forgotten":true}\n'
    assert parse(data).items == {}
    assert parse(data + b'{"key":"k","content":"2"}\n').items["k"].version == 1
    assert versions_of(data, "k") == []


def test_a_mark_at_the_beginning_of_the_file_does_no_harm() -> None:
    assert set(parse(b"\xef\xbb\xbf" + NEIGHBOUR).items) == {"favorite_language", "deadline"}


def test_trimming_keeps_the_first_and_the_last_versions() -> None:
    data = b"".join(encode(Entry(key="k", content=str(n), version=n)) for n in range(1, 10))
    data += NEIGHBOUR
    trimmed = shortened(data, "k", 3)
    assert [one.body for one in versions_of(trimmed, "k")] == ["1", "8", "9"]
    assert parse(trimmed).items["k"].version == 9
    assert trimmed.endswith(NEIGHBOUR)


def test_times_that_are_none_are_no_trouble() -> None:
    assert seconds_of("1970-01-01T00:01:00Z") == 60
    assert seconds_of("1970-01-01T00:01:00") == 60
    assert seconds_of("soon") is None


@given(st.binary() | st.lists(st.binary()).map(b"\n".join))
def test_nothing_that_a_file_may_hold_raises(data: bytes) -> None:
    items, damaged = parse(data)
    for key in items:
        assert versions_of(data, key)
        assert key not in parse(without(data, [key])).items
    assert len(damaged) <= data.count(b"\n") + 1


@given(st.lists(entries))
def test_what_is_written_is_read(told: list[Entry]) -> None:
    data = b"".join(map(encode, told))
    items, damaged = parse(data)
    assert not damaged
    last = {entry.key: entry for entry in told}
    assert {key: item.body for key, item in items.items()} == {
        key: entry.content for key, entry in last.items()
    }
    for key, item in items.items():
        found = versions_of(data, key)
        assert found[-1] == item
        assert len(found) == item.versions
        assert [one.version for one in found] == sorted({one.version for one in found})


@given(st.lists(entries, min_size=1), st.data(), st.booleans())
def test_nothing_is_left_of_a_key_and_all_of_the_others(
    told: list[Entry], data: st.DataObject, escaped: bool
) -> None:
    gone = data.draw(st.sampled_from(told)).key
    # Others write the same with escapes, or as bytes.
    lines = [
        json.dumps(json.loads(encode(entry)), ensure_ascii=escaped).encode() + b"\n"
        for entry in told
    ]
    rest = without(b"".join(lines), [gone])
    assert rest == b"".join(
        line for line, entry in zip(lines, told, strict=True) if entry.key != gone
    )


def test_a_damaged_line_that_names_what_is_forgotten_goes_too() -> None:
    torn = b'{"key":"k","content":"secr\n'
    assert without(torn + NEIGHBOUR, ["k"]) == NEIGHBOUR
    assert without(torn + NEIGHBOUR, ["j"]) == torn + NEIGHBOUR


@given(st.binary(max_size=60))
def test_one_line_is_read_or_not(line: bytes) -> None:
    entry = decode(line)
    assert entry is None or entry.key
