"""Few memories are found as many are, and no state of a file but the present one counts."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.memory.at_hand import AtHand, Few, find, is_small
from component.memory.files import Seen
from component.memory.index import Index, all_of, owners_of
from component.memory.index_search import Search
from component.memory.knowledge_lines import Item
from tests.component.memory.remembering import among

SEEN = Seen(1, 2, 3, 4)
NOW = 1_800_000_000.0

_WORDS = (
    "tide",
    "tides",
    "tidal",
    "pier",
    "piers",
    "the",
    "when",
    "Köln",
    "猫",
    "会议在",
    "x",
    "7",
)
_texts = st.lists(st.sampled_from(_WORDS), max_size=4).map(" ".join)
_items = st.builds(
    Item,
    key=st.sampled_from(["tide-1", "pier", "a", "b", "c", "d"]),
    body=_texts,
    title=_texts,
    topic=st.sampled_from(["", "sea", "Sea", "land"]),
    tags=st.lists(st.sampled_from(["wet", "Wet", "dry"]), max_size=2).map(tuple),
    updated=st.sampled_from(["", "2026-11-01T00:00:00Z", "2027-01-10T00:00:00Z"]),
)
_memories = st.dictionaries(
    st.sampled_from(["ann", "ben"]), st.lists(_items, max_size=6, unique_by=lambda one: one.key)
)
_searches = st.builds(
    Search,
    text=_texts,
    topic=st.sampled_from(["", "sea"]),
    tags=st.sampled_from([(), ("wet",), ("wet", "dry")]),
    most=st.integers(1, 12),
    common=st.booleans(),
)


@given(memories=_memories, search=_searches)
def test_few_are_found_as_the_index_finds_them(
    memories: dict[str, list[Item]], search: Search
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        index = Index(Path(directory) / "index.db")
        try:
            for owner, items in memories.items():
                index.replace(owner, {item.key: item for item in items}, SEEN)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("component.memory.index_search.time.time", lambda: NOW)
                expected = among(index, list(memories), search)
            with index.database.reading() as connection:
                few = {
                    name: Few(owner.seen, all_of(connection, owner.id))
                    for name, owner in owners_of(connection, memories).items()
                }
        finally:
            index.close()
    hits = find(few, search, NOW)
    assert [(hit.owner, hit.item) for hit in hits] == [(hit.owner, hit.item) for hit in expected]
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected])


def test_what_changed_since_is_not_at_hand() -> None:
    kept = AtHand()
    few = Few(SEEN, [(1, Item(key="tide", body="high at noon"))])
    kept.keep({"ann": few})
    assert kept.of("ann", SEEN) is few
    assert kept.of("ben", SEEN) is None
    assert kept.of("ann", SEEN._replace(size=4)) is None
    assert kept.of("ann", SEEN) is None, "it was let go of"


def test_what_is_no_more_is_not_kept() -> None:
    kept = AtHand()
    kept.keep({"ann": Few(SEEN, [])})
    kept.drop("ann")
    assert kept.of("ann", SEEN) is None


def test_those_who_were_looked_for_last_are_kept() -> None:
    kept = AtHand()
    for number in range(128):
        kept.keep({f"person{number}": Few(SEEN, [])})
    kept.of("person0", SEEN)
    kept.keep({"ann": Few(SEEN, [])})
    assert kept.of("person0", SEEN) is not None
    assert kept.of("person1", SEEN) is None


def test_many_or_long_memories_stay_in_the_index() -> None:
    assert is_small(16, SEEN)
    assert not is_small(17, SEEN)
    assert not is_small(1, SEEN._replace(size=8193))
