"""Corrected messages are read as they are now, in their places."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.config.memory import Session
from component.conversations.facts import Facts
from component.conversations.lines import (
    Called,
    Correction,
    Line,
    Said,
    StoredLine,
    Summary,
    corrected,
    encode_lines,
)
from component.conversations.sessions import Sessions
from component.conversations.tail import read_turn
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout
from tests.component.conversations.lines import NOTE, SAID, TEXT, expected
from tests.component.conversations.test_facts import KEY
from tests.component.conversations.test_tail import opened, read
from tests.component.memory.remembering import remembering

TURNS = st.sampled_from(["t1", "t2", "t3"])
ASKED = st.builds(Said, role=st.just("user"), content=TEXT, turn=TURNS)
WITH_REQUESTS = st.builds(
    Summary,
    content=TEXT,
    kept=st.integers(0, 3),
    requests=st.lists(ASKED, max_size=2).map(tuple),
)
CORRECTIONS = st.builds(Correction, turn=TURNS, message=ASKED)
STORED = st.one_of(ASKED, SAID, NOTE, WITH_REQUESTS, CORRECTIONS)


def applied(lines: list[StoredLine]) -> list[Line]:
    """Return lines with their corrections applied, one after another."""
    found: list[Line] = []
    for line in lines:
        if isinstance(line, Correction):
            found = [corrected(one, {line.turn: line.message}) for one in found]
        else:
            found.append(line)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(STORED, max_size=12), st.integers(0, 200))
def test_corrections_are_applied_to_the_lines_before_them(
    tmp_path: Path, lines: list[StoredLine], budget: int
) -> None:
    kept, data = encode_lines(lines, 0.0)
    path = tmp_path / "history.jsonl"
    path.write_bytes(data)
    found = read(path, budget)
    assert (found.lines, found.summary, found.left_out) == expected(applied(kept), budget)


@pytest.mark.anyio
async def test_a_conversation_has_a_correction_before_it_is_read_again(tmp_path: Path) -> None:
    sessions = Sessions(Layout(open_root(tmp_path)), Session())
    first = Said(role="user", content="Verona?", turn="t1")
    call = Called(turn="t1", round=0, id="c", name="weather", arguments="{}")
    await sessions.append(KEY, [first, call], sync=True)
    assert len((await sessions.read(KEY)).lines) == 2  # it is cached
    new = msgspec.structs.replace(first, content="Venice?")
    await sessions.append(KEY, [Correction(turn="t1", message=new)], sync=False)
    asked, called = (await sessions.read(KEY)).lines
    assert isinstance(asked, Said)
    assert asked.content == "Venice?"
    assert isinstance(called, Called)
    assert [type(one) for one in await sessions.turn(KEY, "t1")] == [Said, Called]
    with opened(tmp_path / str(KEY.who) / "history.jsonl") as (descriptor, size):
        (asked, _), is_complete, _ = read_turn(descriptor, size, "t1")
        assert isinstance(asked, Said)
        assert (asked.content, is_complete) == ("Venice?", True)


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "learned"), [("I live in Venice.", True), ("", False)])
async def test_nothing_is_learned_from_an_earlier_text(
    tmp_path: Path, text: str, learned: bool
) -> None:
    async with remembering(tmp_path / "m") as room:
        layout = Layout(room.root)
        sessions, facts = Sessions(layout, Session()), Facts(layout, room.knowledge, room.record)
        said = Said(role="user", content="I live in Verona.", turn="t1", taint="person")
        await sessions.append(KEY, [said], sync=True)
        new = msgspec.structs.replace(said, content=text)
        await sessions.append(KEY, [Correction(turn="t1", message=new)], sync=True)
        assert [one.text for one in await facts.messages(KEY)] == [text] * learned
