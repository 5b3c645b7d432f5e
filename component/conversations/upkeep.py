"""Operations on all files of one conversation: archive, delete, count.

All of it waits for the disk and raises MemoryStoreError.
"""

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from component.conversations.lines import Header
from component.memory import knowledge_lines
from component.memory_directory import files
from component.memory_directory.layout import SUB_AGENTS, Layout, SessionKey
from component.personas.own_personas import DRAFT

log = structlog.get_logger("component.memory")

HISTORY = "history.jsonl"
ARCHIVES = "sessions"
FACTS = "facts.jsonl"
"""The file with the sources of learned facts."""

_ATTACHMENTS = "files"
# The second and the fourth are former names in Fluux Agent.
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


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in numbers. `since` is the time in its header, `size` its bytes."""

    messages: int = 0
    since: str | None = None
    size: int = 0
    archived: int = 0
    memories: int = 0
    attachments: int = 0


def put_away(root: Path, folder: Path, now: float, most_bytes: int) -> Path:
    """Move the current session to `sessions/`; returns where it is now.

    `now` is in seconds since 1970. Nothing is overwritten: a second archive of the same second gets
    a number. The oldest archives are deleted, so that all together have at most `most_bytes`,
    unless this one alone has more.
    """
    archives = folder / ARCHIVES
    files.make_folder(root, archives)
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        target = archives / (f"{stamp}.jsonl" if number == 1 else f"{stamp}-{number}.jsonl")
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
        files.sync_folder(archives)
        files.sync_folder(folder)
    _make_room(root, folder, target, most_bytes)
    return target


def _make_room(root: Path, folder: Path, latest: Path, most_bytes: int) -> None:
    total = 0
    for path in archives(root, folder):
        seen = files.state_of(path)
        total += 0 if seen is None else seen.size
        if total > most_bytes and path != latest:
            files.remove(path)
            log.info("removed an old conversation to make room", file=str(path))


def archives(root: Path, folder: Path) -> list[Path]:
    """The archived sessions, the newest first; those of old, which end in `.md`, as well."""
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
    status = count(root, folder)
    names = [name for name in _FORGOTTEN if files.remove(folder / name)]
    attachments = folder / _ATTACHMENTS
    if files.check_folder(root, attachments):
        with files.explained(attachments, "removed"):
            shutil.rmtree(attachments)
        names.append(_ATTACHMENTS)
    if names:
        with files.explained(folder, "written"):
            files.sync_folder(folder)
    return Forgotten(
        messages=status.messages,
        memories=status.memories,
        attachments=status.attachments,
        names=tuple(names),
    )


def below(layout: Layout, key: SessionKey) -> list[SessionKey]:
    """Return the conversations of sub-agents that worked for a person, the deepest first."""
    found: list[SessionKey] = []
    subs = layout.agent_directory(key.agent) / SUB_AGENTS
    if not files.check_folder(layout.root, subs):
        return found
    with files.explained(subs, "read"):
        names = sorted(
            each.name for each in subs.iterdir() if each.is_dir() and not each.is_symlink()
        )
    for name in names:
        child = SessionKey(f"{key.agent}/{name}", key.who)
        found += below(layout, child)
        if files.check_folder(layout.root, layout.folder(child)):
            found.append(child)
    return found


def tidy(folder: Path) -> None:
    """Remove the directory of a sub-agent's conversation, and its own parent directories, if they
    are empty.
    """
    with contextlib.suppress(OSError):
        for each in (folder, folder.parent, folder.parent.parent):
            each.rmdir()


def count(root: Path, folder: Path) -> Status:
    """Count messages, memories and attachments. Reads the whole session."""
    if not files.check_folder(root, folder):
        return Status()
    messages = size = attachments = 0
    since = None
    for number, line in enumerate(_lines(folder / HISTORY)):
        size += len(line)
        messages += bool(_MESSAGE.search(line))
        if not number:
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                since = _HEADER.decode(line).created
    known = knowledge_lines.parse(b"".join(_lines(folder / knowledge_lines.FILE_NAME)))
    if files.check_folder(root, folder / _ATTACHMENTS):
        with files.explained(folder / _ATTACHMENTS, "read"):
            attachments = sum(1 for each in (folder / _ATTACHMENTS).iterdir() if each.is_file())
    return Status(
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
