"""The lines of `knowledge.jsonl`, and the memories they make.

Fluux Agent writes `{"key": …, "content": …, "ts": …}`; its lines are read as they are, and it reads
ours, which say more. The last line of a key counts; those before it are its earlier versions.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from component.policy.taint import Taint

FILE_NAME = "knowledge.jsonl"

_MARK = b"\xef\xbb\xbf"  # some editors begin a file with it


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line: a version of a memory, or that it is forgotten.

    `ts` is a time of RFC 3339, `by` the bare JID of who had it stored, `version` counts from 1 for
    each key. A `forgotten` line has no content, and what stands above it of its key counts no more.
    """

    key: str
    content: str = ""
    ts: str = ""
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    version: int = 0
    by: str = ""
    taint: Taint | None = None
    forgotten: bool = False


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it is now.

    `created` and `updated` are times of RFC 3339 (empty where the file does not say), `creator` and
    `by` are the bare JIDs of who had its first and its last version stored. `versions` are those
    that can still be read.
    """

    key: str
    body: str
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    version: int = 1
    versions: int = 1
    created: str = ""
    updated: str = ""
    creator: str = ""
    by: str = ""
    taint: Taint | None = None

    def says(self, entry: Entry) -> bool:
        """Whether a line would say nothing new."""
        return (self.body, self.title, self.topic, self.tags, self.taint) == (
            entry.content,
            entry.title,
            entry.topic,
            entry.tags,
            entry.taint,
        )


class Parsed(NamedTuple):
    """What a file says; `damaged` are the numbers of lines, from 1, that cannot be read."""

    items: dict[str, Item]
    damaged: list[int]


_decode = msgspec.json.Decoder(Entry).decode
_encode = msgspec.json.Encoder().encode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


def encode(entry: Entry) -> bytes:
    """The line, with its end."""
    return _encode(entry) + b"\n"


def now() -> str:
    """The time, as lines have it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def seconds_of(ts: str) -> float | None:
    """The seconds since 1970 of a line's time; None for what is none."""
    try:
        when = datetime.fromisoformat(ts)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def decode(line: bytes) -> Entry | None:
    """Read a line; None for one that is damaged."""
    try:
        entry = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not entry.key or not (entry.forgotten or entry.content or b'"content"' in line):
        return None
    return entry


def parse(data: bytes) -> Parsed:
    """Read a whole file. Never raises: a damaged line costs itself."""
    items: dict[str, Item] = {}
    damaged: list[int] = []
    for number, line in enumerate(data.removeprefix(_MARK).split(b"\n"), 1):
        if not line.strip():
            continue
        entry = decode(line)
        if entry is None:
            damaged.append(number)
        elif entry.forgotten:
            items.pop(entry.key, None)
        else:
            items[entry.key] = succeeding(items.get(entry.key), entry)
    return Parsed(items, damaged)


def succeeding(former: Item | None, entry: Entry) -> Item:
    """The memory after a line of its key."""
    return Item(
        key=entry.key,
        body=entry.content,
        title=entry.title,
        topic=entry.topic,
        tags=entry.tags,
        # What people write by hand may have no number, or that of the line it was copied from.
        version=max(entry.version, former.version + 1 if former else 1),
        versions=former.versions + 1 if former else 1,
        created=former.created if former else entry.ts,
        updated=entry.ts,
        creator=former.creator if former else entry.by,
        by=entry.by,
        taint=entry.taint,
    )


def versions_of(data: bytes, key: str) -> list[Item]:
    """All versions of a memory that the file still has, the oldest first."""
    found: list[Item] = []
    for line in _lines_of(data, key):
        entry = decode(line)
        if entry is None or entry.key != key:
            continue
        if entry.forgotten:
            found.clear()
        else:
            found.append(succeeding(found[-1] if found else None, entry))
    return found


def without(data: bytes, keys: Iterable[str], more: Sequence[Entry] = ()) -> bytes:
    """The file without any trace of these keys but the lines `more`, added at its end.

    A damaged line goes too if it names one of the keys: nobody could tell what it still says.
    Every other line stays byte for byte.
    """
    gone = frozenset(keys)
    marks = tuple(_mark(key) for key in gone)
    kept = [line for line in data.split(b"\n") if line and not _is_of(line, gone, marks)]
    return b"".join(line + b"\n" for line in kept) + b"".join(map(encode, more))


def shortened(data: bytes, key: str, most: int) -> bytes:
    """The file with the first and the last lines of one key, `most` of them, and all others.

    The first one tells who began it, and when.
    """
    marks = (_mark(key),)
    lines = [line for line in data.split(b"\n") if line]
    own = [at for at, line in enumerate(lines) if _is_of(line, frozenset((key,)), marks)]
    gone = frozenset(own[1 : max(1, len(own) - most + 1)])
    return b"".join(line + b"\n" for at, line in enumerate(lines) if at not in gone)


def _lines_of(data: bytes, key: str) -> list[bytes]:
    # Most lines are of other keys: those are not even decoded, unless they are written with
    # escapes, which hide what key it is.
    mark = _mark(key)
    return [line for line in data.split(b"\n") if mark in line or b"\\" in line]


def _is_of(line: bytes, keys: frozenset[str], marks: tuple[bytes, ...]) -> bool:
    if not any(mark in line for mark in marks) and b"\\" not in line:
        return False
    entry = decode(line)
    if entry is not None:
        return entry.key in keys
    try:
        named = _decode_any(line).get("key")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return any(mark in line for mark in marks)
    return isinstance(named, str) and named in keys


def _mark(key: str) -> bytes:
    return _encode(key)
