"""Changes of files are noticed, and a cancellation ends the watch at once."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from component.features.installed_skills.directory_watch import watch

pytestmark = pytest.mark.anyio


class Changes:
    """Counts reports, and waits for the next one."""

    def __init__(self) -> None:
        self.reported = anyio.Event()

    async def changed(self) -> None:
        self.reported.set()

    async def next(self) -> None:
        self.reported = anyio.Event()
        with anyio.fail_after(120):
            await self.reported.wait()


def watching(group: TaskGroup, roots: Sequence[Path], every_s: float = 600) -> Changes:
    changes = Changes()
    group.start_soon(watch, roots, every_s, changes.changed)
    return changes


async def changed_until_reported(changes: Changes, path: Path) -> None:
    """Change a file until that is noticed: nobody says when the watch has begun."""
    changes.reported = anyio.Event()
    with anyio.fail_after(120):
        while not changes.reported.is_set():
            path.write_text(path.read_text() + "x" if path.exists() else "x")  # noqa: ASYNC240
            with anyio.move_on_after(0.3):
                await changes.reported.wait()


async def test_a_changed_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    async with anyio.create_task_group() as group:
        changes = watching(group, [tmp_path])
        await changed_until_reported(changes, tmp_path / "one" / "skill.toml")
        group.cancel_scope.cancel()


async def test_a_root_may_appear_later_and_be_replaced(tmp_path: Path) -> None:
    root = tmp_path / "skills"
    async with anyio.create_task_group() as group:
        changes = watching(group, [root])
        root.mkdir()
        await changes.next()
        await changed_until_reported(changes, root / "a")
        shutil.rmtree(root)
        root.mkdir()
        await changed_until_reported(changes, root / "b")
        group.cancel_scope.cancel()


async def test_it_looks_from_time_to_time(tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:
        changes = watching(group, [tmp_path], 0.05)
        await changes.next()
        await changes.next()
        group.cancel_scope.cancel()


async def test_a_cancellation_does_not_wait_for_a_change(tmp_path: Path) -> None:
    with anyio.fail_after(120):  # the thread would wait for 600 seconds
        async with anyio.create_task_group() as group:
            changes = watching(group, [tmp_path])
            await changed_until_reported(changes, tmp_path / "a")
            group.cancel_scope.cancel()
