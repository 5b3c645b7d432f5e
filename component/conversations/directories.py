"""The directories of conversations: to archive, delete and count what is in them, and those of
sub-agents.

A sub-agent works for one turn of an agent, or for one task, and for one person. After that its
directory is never used again. All functions wait for the disk and raise MemoryStoreError.
"""

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog

from component.conversations.lines import Header
from component.memory import knowledge_lines
from component.memory_directory import files
from component.memory_directory.layout import (
    AGENTS,
    DRAFT,
    SUB_AGENTS,
    Layout,
    SessionKey,
    file_name,
)
from component.store.directory import sync_directory

log = structlog.get_logger("component.memory")

HISTORY = "history.jsonl"
ARCHIVES = "sessions"
FACTS = "facts.jsonl"
"""The file with the sources of learned facts."""

FILES = "files"
"""The directory of files; what begins with a dot is about them."""
# Fluux Agent used the second and the fourth name in the past.
_FORGOTTEN = (
    HISTORY,
    "history.md",
    "user.md",
    "context.md",
    "memory.md",
    FACTS,
    knowledge_lines.FILE_NAME,
    DRAFT,
)

_SUB_AGENT: Final = re.compile(r"[a-z0-9]+-[0-9a-f]{8}")
"""The names that `component.agent.sub_agents` gives them; other directories are not touched."""

# Quotes within a JSON string are escaped, so this never matches the text of a message.
_MESSAGE = re.compile(rb'"type"\s*:\s*"message"')
_HEADER = msgspec.json.Decoder(Header)


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """The deleted messages, memories and attachments, and the names of the files.

    Memories that are already forgotten, and lines that cannot be read, are not counted.
    """

    messages: int = 0
    memories: int = 0
    attachments: int = 0
    names: tuple[str, ...] = ()


class ConversationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a conversation. `since` is the time in its header, `size` its bytes."""

    messages: int = 0
    since: str | None = None
    size: int = 0
    archived: int = 0
    memories: int = 0
    attachments: int = 0


def archive(root: Path, folder: Path, now: float, most_bytes: int) -> Path:
    """Move the current session to `sessions/`; return its new path.

    `now` is in seconds since 1970. Nothing is overwritten: a second archive in the same second gets
    a number. The oldest archives are deleted, so that all together have at most `most_bytes`; the
    new one is always kept.
    """
    archived = folder / ARCHIVES
    files.make_folder(root, archived)
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        target = archived / (f"{stamp}.jsonl" if number == 1 else f"{stamp}-{number}.jsonl")
        with files.explained(target, "made"), contextlib.suppress(FileExistsError):
            # Only this new empty file can be replaced below.
            target.touch(mode=0o600, exist_ok=False)
            break
    with files.explained(folder / HISTORY, "moved to its archive"):
        try:
            (folder / HISTORY).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                target.unlink()
            raise
        sync_directory(archived)
        sync_directory(folder)
    _limit_archives(root, folder, target, most_bytes)
    return target


def _limit_archives(root: Path, folder: Path, latest: Path, most_bytes: int) -> None:
    total = 0
    for path in archives(root, folder):
        seen = files.state_of(path)
        total += 0 if seen is None else seen.size
        if total > most_bytes and path != latest:
            files.remove(path)
            log.info("removed an old conversation to make room", file=str(path))


def archives(root: Path, folder: Path) -> list[Path]:
    """Return the archived sessions, the newest first, including old ones that end in `.md`."""
    where = folder / ARCHIVES
    if not files.check_folder(root, where):
        return []
    with files.explained(where, "read"):
        found = [each for each in where.iterdir() if each.suffix in {".jsonl", ".md"}]
    return sorted(found, key=_age, reverse=True)


def erase(root: Path, folder: Path) -> Forgotten:
    """Delete the data about a person. Archived sessions, the chosen persona and the person's own
    personas are kept.
    """
    if not files.check_folder(root, folder):
        return Forgotten()
    status = count_contents(root, folder)
    names = [name for name in _FORGOTTEN if files.remove(folder / name)]
    attachments = folder / FILES
    if files.check_folder(root, attachments):
        with files.explained(attachments, "removed"):
            shutil.rmtree(attachments)
        names.append(FILES)
    if names:
        with files.explained(folder, "written"):
            sync_directory(folder)
    return Forgotten(
        messages=status.messages,
        memories=status.memories,
        attachments=status.attachments,
        names=tuple(names),
    )


def below(layout: Layout, key: SessionKey) -> list[SessionKey]:
    """Return the conversations of sub-agents that worked for a person, the deepest first."""
    found: list[SessionKey] = []
    sub_agents = layout.agent_directory(key.agent) / SUB_AGENTS
    if not files.check_folder(layout.root, sub_agents):
        return found
    with files.explained(sub_agents, "read"):
        names = sorted(
            each.name for each in sub_agents.iterdir() if each.is_dir() and not each.is_symlink()
        )
    for name in names:
        child = SessionKey(f"{key.agent}/{name}", key.who)
        found += below(layout, child)
        if files.check_folder(layout.root, layout.folder(child)):
            found.append(child)
    return found


def remove_empty(folder: Path) -> None:
    """Remove the directory of a sub-agent's conversation, and its own parent directories, if they
    are empty.
    """
    with contextlib.suppress(OSError):
        for each in (folder, folder.parent, folder.parent.parent):
            each.rmdir()


def count_contents(root: Path, folder: Path) -> ConversationCounts:
    """Count messages, memories and attachments. Reads the whole session."""
    if not files.check_folder(root, folder):
        return ConversationCounts()
    messages = size = attachments = 0
    since = None
    for number, line in enumerate(_lines(folder / HISTORY)):
        size += len(line)
        messages += bool(_MESSAGE.search(line))
        if not number:
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                since = _HEADER.decode(line).created
    known = knowledge_lines.parse_memories(b"".join(_lines(folder / knowledge_lines.FILE_NAME)))
    if files.check_folder(root, folder / FILES):
        with files.explained(folder / FILES, "read"):
            attachments = sum(
                1
                for each in (folder / FILES).iterdir()
                if each.is_file() and not each.name.startswith(".")
            )
    return ConversationCounts(
        messages=messages,
        since=since,
        size=size,
        archived=len(archives(root, folder)),
        memories=len(known.items),
        attachments=attachments,
    )


def _lines(path: Path) -> Iterator[bytes]:
    with files.explained(path, "read"):
        try:
            descriptor = files.open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            yield from file


def _age(archive: Path) -> tuple[str, int]:
    number = archive.stem[16:]  # of `YYYYMMDD-HHMMSS-2`
    return archive.stem[:15], int(number) if number.isdecimal() else 0


def unused_sub_agents(layout: Layout, before: float) -> list[Path]:
    """Return the directories of all sub-agents in which nothing was written since `before`, in
    seconds since 1970. The sub-agents of a sub-agent are part of it.
    """
    return [
        folder
        for agent in (layout.root, *_folders(layout, layout.root / AGENTS))
        for folder in _folders(layout, agent / SUB_AGENTS)
        if _SUB_AGENT.fullmatch(folder.name) and _last_written(folder) < before
    ]


def is_used_sub_agent(layout: Layout, folder: Path, unanswered: Collection[SessionKey]) -> bool:
    """Whether a sub-agent may continue, because it works for one of these unanswered turns."""
    return any(
        folder.parent == layout.agent_directory(key.agent) / SUB_AGENTS
        and os.path.lexists(folder / file_name(str(key.who)))
        for key in unanswered
    )


def remove_sub_agent(layout: Layout, folder: Path) -> list[str]:
    """Remove the directory of a sub-agent; return the owners of its memories in the index."""
    if not files.check_folder(layout.root, folder):
        return []
    with files.explained(folder, "removed"):
        owners = [
            Path(where).relative_to(layout.root).as_posix()
            for where, _, names in os.walk(folder)
            if knowledge_lines.FILE_NAME in names
        ]
        # `/forget` may delete it at the same time; the rest is removed the next time.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        sync_directory(folder.parent)
    return owners


def _folders(layout: Layout, where: Path) -> list[Path]:
    if not files.check_folder(layout.root, where):
        return []
    with files.explained(where, "read"), os.scandir(where) as found:
        return sorted(Path(each.path) for each in found if each.is_dir(follow_symlinks=False))


def _last_written(folder: Path) -> float:
    """Return when the last of its files was written; without files, when it was created."""
    times: list[float] = []
    with files.explained(folder, "read"):
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    times.append(Path(where, name).lstat().st_mtime)
        with contextlib.suppress(FileNotFoundError):
            return max(times) if times else folder.lstat().st_mtime
    return float("inf")
