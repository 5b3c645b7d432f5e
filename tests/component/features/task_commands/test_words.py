"""Tasks in words: titles, times in the reader's time zone, and short ids."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.commands import short_ids
from component.features.task_commands.sheets import (
    TaskLine,
    TaskSheet,
    Wording,
    list_text,
    state_words,
    task_text,
)
from component.tasks.rows import TERMINAL
from tests.component.features.task_commands.stored import ALICE, BOB, insert
from tests.component.features.task_commands.test_commands import bench, sheet
from xep.fluux_agent.execute import State

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
TITLES = {"weather": "Weather", "wipe": "Wipe a disk"}
WORDING = Wording(title=TITLES.__getitem__, now=NOON, zone="Europe/Paris")


def line(skill: str, state: str, **more: object) -> TaskLine:
    id_ = str(more.pop("id", "3f2a91"))
    return TaskLine(id=id_, skill=skill, state=state, created=NOON, **more)  # type: ignore[arg-type]


def test_a_list_has_titles_states_and_local_times() -> None:
    yesterday = NOON - timedelta(hours=14)
    lines = [
        line("weather", "running", id="3f2a91", fraction=0.4, doing="reading the map"),
        line("wipe", "input-required", id="3f2b02", principal="bob@b.example"),
        line("weather", "completed", id="90aa01", updated=yesterday, fraction=0.5, doing="x"),
    ]
    assert list_text(lines, WORDING).splitlines() == [
        "- Weather is running, 40%, reading the map, since today at 13:00 (id 3f2a)",
        "- Wipe a disk waits for an answer for bob@b.example, since today at 13:00 (id 3f2b)",
        "- Weather is done, yesterday at 23:00 (id 90aa)",
    ]


def test_a_whole_task_is_described_in_sentences() -> None:
    shown = TaskSheet(
        id="3f2a91",
        skill="weather",
        state="completed",
        created=NOON,
        updated=NOON + timedelta(minutes=2),
        revision=3,
    )
    assert task_text(shown, WORDING).splitlines() == [
        "Weather is done.",
        "It was started today at 13:00 and ended today at 13:02.",
    ]


@pytest.mark.parametrize("state", get_args(State))
def test_every_state_has_words(state: str) -> None:
    text = list_text([line("weather", state)], WORDING)
    assert text.startswith(f"- Weather {state_words(state)}, ")
    assert " " in state_words(state) or state == "failed"
    assert (", since " in text) == (state not in TERMINAL)


@given(st.lists(st.text("0123456789abcdef", min_size=1, max_size=32), max_size=20))
def test_short_ids_are_different_beginnings(ids: list[str]) -> None:
    found = short_ids(ids)
    assert len(set(found.values())) == len(set(ids))
    assert all(whole.startswith(short) for whole, short in found.items())


@pytest.mark.anyio
async def test_commands_take_the_beginning_of_an_id(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for task, principal in (("abcd01", ALICE), ("abcd02", ALICE), ("abce01", BOB)):
            await b.storage.write(lambda db, t=task, p=principal: insert(db, t, principal=p))
        assert sheet(await b.say(ALICE, "task abcd01")).id == "abcd01"
        assert "Several begin with abcd" in await b.refused(ALICE, "task abcd")
        assert sheet(await b.say(BOB, "task abc")).id == "abce01"
        assert await b.refused(ALICE, "task abce") == "There is no such task here."
        await b.say(BOB, "cancel abc")
        assert b.rows.cancelled == [(BOB, "assistant@agent.example", "abce01")]
        assert sheet(await b.say("boss@a.example", "task abce")).id == "abce01"
