"""The directories of sub-agents: which were left long ago, and how one is removed.

A sub-agent works for one turn of the agent at the top, for the person of that turn, and is never
needed again once the turn is over. All of this waits for the disk and raises MemoryStoreError.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from component.memory.knowledge_lines import FILE_NAME
from component.memory_directory import files
from component.memory_directory.layout import AGENTS, SUB_AGENTS, Layout, SessionKey, file_name

_NAME: Final = re.compile(r"[a-z0-9]+-[0-9a-f]{8}")
"""As `component.agent.children` calls them: what else somebody has put there is not ours."""


def left(layout: Layout, before: float) -> list[Path]:
    """The directories of sub-agents, those of all agents, where nothing was written since `before`
    (seconds since 1970). Sub-agents of a sub-agent count with it.
    """
    return [
        folder
        for home in _homes(layout)
        for folder in _folders(layout, home / SUB_AGENTS)
        if _NAME.fullmatch(folder.name) and _last_written(folder) < before
    ]


def needed(layout: Layout, folder: Path, unanswered: Collection[SessionKey]) -> bool:
    """Whether a sub-agent may go on: it works in one of the conversations that have a turn."""
    return any(
        folder.parent == layout.agent_directory(key.agent) / SUB_AGENTS
        and os.path.lexists(folder / file_name(str(key.who.bare)))
        for key in unanswered
    )


def remove(layout: Layout, folder: Path) -> list[str]:
    """Remove one with all in it. Returns the owners of memories, as the index calls them, that
    have gone with it.
    """
    if not files.check_folder(layout.root, folder):
        return []
    with files.explained(folder, "removed"):
        owners = [
            Path(where).relative_to(layout.root).as_posix()
            for where, _, names in os.walk(folder)
            if FILE_NAME in names
        ]
        # Somebody may forget it at this moment: what is left then goes the next time.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        files.sync_folder(folder.parent)
    return owners


def _homes(layout: Layout) -> Iterator[Path]:
    yield layout.root
    yield from _folders(layout, layout.root / AGENTS)


def _folders(layout: Layout, where: Path) -> list[Path]:
    if not files.check_folder(layout.root, where):
        return []
    with files.explained(where, "read"), os.scandir(where) as found:
        return sorted(Path(each.path) for each in found if each.is_dir(follow_symlinks=False))


def _last_written(folder: Path) -> float:
    """When the last of its files was written; of one without files, when it was made."""
    times: list[float] = []
    with files.explained(folder, "read"):
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    times.append(Path(where, name).lstat().st_mtime)
        with contextlib.suppress(FileNotFoundError):
            return max(times) if times else folder.lstat().st_mtime
    return float("inf")
