"""Drafts of personas are kept after restarts, and lapse."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from component.conversations.directories import erase
from component.memory_directory import files
from component.memory_directory.layout import DRAFT, Layout, SessionKey
from component.memory_directory.texts import Texts
from component.personas.own_personas import LAPSE_S, Draft, Drafts
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE, BOB = JID.parse("alice@example.com"), JID.parse("bob@example.org")


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    def __init__(self, path: Path) -> None:
        self.layout = Layout(files.open_root(path))
        self.clock = Clock()

    def open(self) -> Drafts:
        return Drafts(self.layout, Texts(self.layout.root), clock=self.clock)

    @property
    def folder(self) -> Path:
        return self.layout.folder(SessionKey("assistant", ALICE))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "memory")


async def test_a_draft_is_kept_after_a_crash(desk: Desk) -> None:
    draft = Draft(id="buddy", name="Buddy", edits=True, answers=("a\nb", ""))
    await desk.open().put(SessionKey("assistant", ALICE), draft)
    for drafts in (desk.open(), desk.open()):
        found = await drafts.get(SessionKey("assistant", ALICE))
        assert found is not None
        assert (found.id, found.name, found.edits, found.answers) == (
            *("buddy", "Buddy", True),
            ("a\nb", ""),
        )
        assert await drafts.get(SessionKey("researcher", ALICE)) is None
        assert await drafts.get(SessionKey("assistant", BOB)) is None


async def test_a_draft_is_dropped_once(desk: Desk) -> None:
    drafts = desk.open()
    assert not await drafts.drop(SessionKey("assistant", ALICE))
    await drafts.put(SessionKey("assistant", ALICE), Draft(id="x", name="X"))
    assert await drafts.drop(SessionKey("assistant", ALICE))
    assert await drafts.get(SessionKey("assistant", ALICE)) is None
    assert not await drafts.drop(SessionKey("assistant", ALICE))
    assert list(desk.folder.iterdir()) == []


async def test_a_draft_lapses_without_an_answer(desk: Desk) -> None:
    drafts = desk.open()
    await drafts.put(SessionKey("assistant", ALICE), Draft(id="x", name="X"))
    desk.clock.now += LAPSE_S
    assert await drafts.get(SessionKey("assistant", ALICE)) is not None
    await drafts.put(SessionKey("assistant", ALICE), Draft(id="x", name="X", answers=("a",)))
    desk.clock.now += LAPSE_S + 1
    assert await drafts.get(SessionKey("assistant", ALICE)) is None
    assert not await drafts.drop(SessionKey("assistant", ALICE))


@pytest.mark.parametrize(
    "damage", ["", "{", '{"id": "../x", "name": "X", "asked": 1e6}', "[" * 9999]
)
async def test_a_damaged_draft_is_ignored(desk: Desk, damage: str) -> None:
    drafts = desk.open()
    await drafts.put(SessionKey("assistant", ALICE), Draft(id="x", name="X"))
    (desk.folder / DRAFT).write_text(damage)
    with capture_logs():
        assert await drafts.get(SessionKey("assistant", ALICE)) is None


async def test_forget_deletes_the_draft(desk: Desk) -> None:
    drafts = desk.open()
    await drafts.put(SessionKey("assistant", ALICE), Draft(id="x", name="X", answers=("private",)))
    assert DRAFT in erase(desk.layout.root, desk.folder).names
    assert await drafts.get(SessionKey("assistant", ALICE)) is None
