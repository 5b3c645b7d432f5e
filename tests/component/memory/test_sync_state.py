"""The last common state of two stores is written and read unchanged."""

import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.memory.sync_state import FILE_NAME, Synced, SyncStates
from component.memory_directory.layout import Layout, SessionKey
from tests.component.memory.remembering import ANN, BOB

pytestmark = pytest.mark.anyio

ANNS = SessionKey("assistant", ANN)
keys = st.sampled_from(("a", "b", "c", "d"))
digests = st.sampled_from(("", "1", "2"))
found = st.dictionaries(keys, st.none() | st.builds(Synced, local=digests, remote=digests))
step = st.one_of(
    st.tuples(st.just("settle"), found),
    st.tuples(st.just("pending"), keys),
    st.tuples(st.just("erase"), st.none()),
    st.tuples(st.just("erased"), st.none()),
)


@given(steps=st.lists(step, max_size=30))
def test_the_state_of_a_sync_is_read_as_it_was_written(steps: list[Any]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as name:
            states = SyncStates(Layout(Path(name)))
            state = await states.load(ANNS)
            for what, given_ in steps:
                match what:
                    case "settle":
                        await state.settle(given_)
                    case "pending":
                        await state.note_pending(given_)
                    case "erase":
                        await state.note_erase()
                    case "erased":
                        await state.note_erased()
                again = await states.load(ANNS)
                known = {k: one for k, one in state.synced.items() if one.local or one.remote}
                assert (again.synced, list(again.pending), again.erase) == (
                    known,
                    list(state.pending),
                    state.erase,
                )

    anyio.run(play, backend="asyncio")


async def test_the_file_is_rewritten_when_most_lines_are_outdated(tmp_path: Path) -> None:
    states = SyncStates(Layout(tmp_path))
    state = await states.load(ANNS)
    for number in range(700):
        await state.settle({"a": Synced(local=str(number), remote="x")})
    data = (tmp_path / str(ANN) / FILE_NAME).read_bytes()
    assert data.count(b"\n") < 600
    assert (await states.load(ANNS)).of("a").local == "699"


async def test_all_people_with_a_state_are_known(tmp_path: Path) -> None:
    states = SyncStates(Layout(tmp_path))
    wanted = [ANNS, SessionKey("assistant", BOB), SessionKey("helper", ANN)]
    for whose in wanted:
        await (await states.load(whose)).note_pending("a")
    (tmp_path / "eve@example.net").mkdir()
    (tmp_path / "eve@example.net" / FILE_NAME).write_text("damaged\n")
    assert sorted(map(str, await states.known())) == sorted(map(str, wanted))


async def test_a_damaged_line_loses_no_other_state_of_the_sync(tmp_path: Path) -> None:
    states = SyncStates(Layout(tmp_path))
    state = await states.load(ANNS)
    await state.settle({"a": Synced(local="1", remote="1")})
    with (tmp_path / str(ANN) / FILE_NAME).open("ab") as file:
        file.write(b'{"key":"b","loc\n')
    await state.settle({"c": Synced(local="1", remote="1")})
    assert list((await states.load(ANNS)).synced) == ["a", "c"]
