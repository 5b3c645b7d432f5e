"""Memories are found in every language, and no text breaks a search."""

from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.memory.index import Index
from component.memory.index_search import Search
from component.memory.knowledge_lines import Item
from component.memory_directory.files import FileState, open_root
from component.memory_directory.layout import SessionKey
from tests.component.memory.remembering import AGENT, ANN, among, remembering

SEEN = FileState(1, 2, 3, 4)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index(open_root(tmp_path) / ".index.db")
    yield made  # type: ignore[misc]
    made.close()


def fill(index: Index, *items: Item, owner: str = "ann@example.com") -> None:
    index.replace(owner, {item.key: item for item in items}, SEEN)


def found(index: Index, text: str, most: int = 9, **more: object) -> list[str]:
    search = Search(text, most=most, **more)  # type: ignore[arg-type]
    return [hit.item.key for hit in among(index, ["ann@example.com"], search)]


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ("Der Zug nach Köln fährt um acht", "wann fahrt mein Zug nach Koln"),
        ("Le café préféré d'Anne", "quel est le cafe prefere"),
        ("会议在星期五下午三点", "星期五有什么安排"),
        ("黒猫を飼っている", "猫"),
        ("학교에서 세 시에 만나요", "학교는 어디"),
        ("Встреча в пятницу", "когда встреча?"),
        ("मेरा कुत्ता बेलो है", "कुत्ता"),
        ("ประชุมวันศุกร์", "วันศุกร์"),
        ("הפגישה ביום שישי", "הַפְּגִישָׁה"),
        ("The trains leave at eight", "which train?"),
        ("two meetings a week", "when is the meeting"),
    ],
)
def test_memories_are_found_in_every_script_and_form(
    index: Index, body: str, question: str
) -> None:
    fill(index, Item(key="x1", body=body), Item(key="x2", body="zzz qqq"))
    assert found(index, question) == ["x1"]


def test_titles_have_more_weight_than_keys_tags_and_bodies(index: Index) -> None:
    others = [Item(key=f"n{n}", body=f"other {n}") for n in range(30)]
    fill(
        index,
        Item(key="in_body", body="about coffee"),
        Item(key="in_tags", body="about", tags=("coffee",)),
        Item(key="coffee_and_more_words", body="about"),
        Item(key="in_title", body="about", title="coffee"),
        *others,
    )
    assert found(index, "coffee") == ["in_title", "coffee_and_more_words", "in_tags", "in_body"]


def test_rare_words_have_more_weight_and_the_exact_key_most(index: Index) -> None:
    fill(
        index,
        *(Item(key=f"n{n}", body="the weekly report of sales") for n in range(30)),
        Item(key="rare", body="the yearly report of purchases"),
        Item(key="report", body="something else"),
    )
    assert found(index, "report of purchases")[0] == "rare"
    assert found(index, "report", common=True)[0] == "report"


def test_newer_memories_precede_equal_older_ones(index: Index) -> None:
    fill(
        index,
        Item(key="new", body="buy milk", updated="2999-01-01T00:00:00Z"),
        Item(key="old", body="buy milk", updated="2001-01-01T00:00:00Z"),
    )
    assert found(index, "milk") == ["new", "old"]


def test_frequent_words_find_memories_with_all_of_them(index: Index) -> None:
    items = [Item(key=f"a{n}", body="alpha") for n in range(1200)]
    items += [Item(key=f"b{n}", body="beta") for n in range(1200)]
    items += [Item(key=f"c{n}", body="gamma") for n in range(1200)]
    fill(index, Item(key="both", body="alpha beta"), *items)
    assert found(index, "alpha beta", most=1) == ["both"]
    assert found(index, "alpha beta", most=1, common=True) == ["both"]
    assert len(found(index, "alpha", most=3, common=True)) == 3


def test_topics_and_tags_narrow_the_search(index: Index) -> None:
    fill(
        index,
        Item(key="a", body="tea", topic="Food", tags=("Hot", "green")),
        Item(key="b", body="tea", topic="food", tags=("cold",)),
        Item(key="c", body="tea", tags=("hot",)),
    )
    assert found(index, "tea", topic="food") == ["b", "a"]
    assert found(index, "tea", tags=("hot",)) == ["c", "a"]
    assert found(index, "", tags=("hot", "green"), common=True) == ["a"]
    assert found(index, "", topic="FOOD", common=True) == ["b", "a"]
    assert found(index, "tea", topic="foo") == []
    assert found(index, "", common=True) == ["c", "b", "a"]
    assert found(index, "👍", common=True) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    text=st.text()
    | st.sampled_from(['"', "a OR b", "NEAR(a b)", "key:*", "a AND", "1_x", "^a", "a* -b", "{x}:"])
    | st.lists(st.sampled_from(['"', "(", ")", "AND", "NOT", "*", "tea", ":", "body", "\0"])).map(
        " ".join
    ),
    topic=st.text(),
    tags=st.lists(st.text(), max_size=3).map(tuple),
    common=st.booleans(),
)
def test_no_search_raises(
    index: Index, text: str, topic: str, tags: tuple[str, ...], common: bool
) -> None:
    fill(index, Item(key="tea", body="green body"))
    found(index, text, topic=topic, tags=tags, common=common)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    text=st.text(),
    body=st.text(),
    title=st.text(),
    tags=st.lists(st.text(), max_size=3).map(tuple),
)
def test_any_memory_can_be_deleted_without_a_trace(
    index: Index, text: str, body: str, title: str, tags: tuple[str, ...]
) -> None:
    fill(index, Item(key="k", body=body, title=title, tags=tags), Item(key="tea", body=text))
    fill(index, Item(key="tea", body=text))
    fill(index)
    with index.database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM vocabulary").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (0,)


@pytest.mark.anyio
async def test_readers_do_not_wait_for_writers(tmp_path: Path) -> None:
    async with remembering(tmp_path / "memory") as room:
        await room.store("tea", "green")
        with room.index.database.writing() as connection, anyio.fail_after(120):
            connection.execute("DELETE FROM items")
            assert await room.recall("green") == ["tea"]
            assert [
                one.item.key for one in await room.knowledge.get(SessionKey(AGENT, ANN), "tea")
            ] == ["tea"]
            connection.execute("INSERT INTO items SELECT * FROM items")
