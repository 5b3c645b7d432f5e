"""What is done to the files of one conversation as a whole: put away, erased, counted.

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

from component.memory import files, knowledge_lines
from component.memory.lines import Header, SessionKey
from component.memory.paths import SUB_AGENTS, Layout

log = structlog.get_logger("component.memory")

HISTORY = "history.jsonl"
ARCHIVES = "sessions"
DRAFT = "persona_draft.json"
"""A persona that somebody is being asked about."""

_ATTACHMENTS = "files"
# The second and the fourth are what Fluux Agent called them before.
_FORGOTTEN = (
    HISTORY,
    "history.md",
    "user.md",
    "context.md",
    "memory.md",
    knowledge_lines.FILE_NAME,
    DRAFT,
)

# Quotes within a text of JSON are escaped, so this is never found in what somebody has said.
_MESSAGE = re.compile(rb'"type"\s*:\s*"message"')
_HEADER = msgspec.json.Decoder(Header)


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased: messages, memories and attachments, and the names of the files.

    A memory is what could be found: not what is forgotten already, nor a line that cannot be read.
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

    `now` is in seconds since 1970. Never overwrites: a second one of the same second gets a number.
    What is there already makes room, the oldest first, so that it has `most_bytes` together at most
    unless this one alone has more.
    """
    archives = folder / ARCHIVES
    files.make_folder(root, archives)
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        target = archives / (f"{stamp}.jsonl" if number == 1 else f"{stamp}-{number}.jsonl")
        with files.explained(target, "made"), contextlib.suppress(FileExistsError):
            # An empty file of our own is what is replaced, and nothing else can be.
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
        seen = files.seen(path)
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
    """Erase what is remembered of somebody; archived sessions stay, and so do the
    chosen persona and those of their own."""
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
    """The conversations of sub-agents that an agent had for somebody, the deepest first."""
    found: list[SessionKey] = []
    subs = layout.home(key.agent) / SUB_AGENTS
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
    """Remove the directory of a sub-agent's conversation, and those around it that are its own, as
    far as nothing is in there.
    """
    with contextlib.suppress(OSError):
        for each in (folder, folder.parent, folder.parent.parent):
            each.rmdir()


def count(root: Path, folder: Path) -> Status:
    """Count what is there. Reads the whole session, so it is for those who ask."""
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
