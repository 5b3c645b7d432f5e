"""The lines of `knowledge.jsonl`, and the memories they make.

Fluux Agent writes `{"key": …, "content": …, "ts": …}`; its lines are read as they are, and it reads
ours, which say more. The last line of a key counts; those before it are its earlier versions.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from component import system
from component.policy.taint import Taint
from xep.characters import without_forbidden

FILE_NAME = "knowledge.jsonl"

_BOM = b"\xef\xbb\xbf"  # some editors begin a file with it
_END: Final = ord("\n")
_HIDING: Final = re.compile(rb"\\[u/bf]")
_NO_CHARACTERS: Final = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")  # U+FFFE, U+FFFF
_SUSPECT: Final = re.compile(rb"\\[ubf]|\xef\xbf[\xbe\xbf]")
"""What a line has in it if one of its texts may hold a character that XML cannot carry."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line: a version of a memory, or that it is forgotten.

    `ts` is a time of RFC 3339, `by` the bare JID of who had it stored, `version` counts from 1 for
    each key. After `expires`, another such time, the memory is not used any more. A `forgotten`
    line has no content and cancels all lines of its key above it.
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
    expires: str = ""
    forgotten: bool = False


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it is now.

    `created`, `updated` and `expires` are times of RFC 3339 (or empty), `creator` and
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
    expires: str = ""

    def says(self, entry: Entry) -> bool:
        """Whether a line would say nothing new."""
        return (self.body, self.title, self.topic, self.tags, self.taint, self.expires) == (
            entry.content,
            entry.title,
            entry.topic,
            entry.tags,
            entry.taint,
            entry.expires,
        )

    def says_as(self, other: "Item") -> bool:
        """Whether both say the same."""
        return self.says(
            Entry(
                key=other.key,
                content=other.body,
                title=other.title,
                topic=other.topic,
                tags=other.tags,
                taint=other.taint,
                expires=other.expires,
            )
        )

    def is_expired(self, now: float) -> bool:
        """Whether it has expired at `now`, in seconds since 1970."""
        at = seconds_of(self.expires) if self.expires else None
        return at is not None and at <= now


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
    return system.now().isoformat(timespec="seconds").replace("+00:00", "Z")


def seconds_of(ts: str) -> float | None:
    """The seconds since 1970 of a line's time; None for what is none."""
    try:
        when = datetime.fromisoformat(ts)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def fit(entry: Entry) -> Entry:
    """The entry without characters that XML cannot carry: each becomes U+FFFD.

    One of them in one memory would otherwise spoil every answer that lists it.
    """
    return msgspec.structs.replace(
        entry,
        key=without_forbidden(entry.key),
        content=without_forbidden(entry.content),
        ts=without_forbidden(entry.ts),
        title=without_forbidden(entry.title),
        topic=without_forbidden(entry.topic),
        tags=tuple(map(without_forbidden, entry.tags)),
        by=without_forbidden(entry.by),
        expires=without_forbidden(entry.expires),
    )


def decode(line: bytes) -> Entry | None:
    """Read a line, as `fit` has it; None for one that is damaged."""
    try:
        entry = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not entry.key or not (entry.forgotten or entry.content or b'"content"' in line):
        return None
    return entry if _SUSPECT.search(line) is None else fit(entry)


def parse(data: bytes) -> Parsed:
    """Read a whole file. Never raises: a damaged line costs itself."""
    items: dict[str, Item] = {}
    damaged: list[int] = []
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
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


class FilePast(NamedTuple):
    """What a file says about memories that it no longer has.

    Attributes:
        forgotten: the keys whose last line says that they are forgotten.
        is_damaged: whether a line cannot be read: it may have been the last one of any key.
    """

    forgotten: frozenset[str]
    is_damaged: bool


def past_of(data: bytes) -> FilePast:
    """Read what a file says about memories that it no longer has."""
    last: dict[str, bool] = {}
    is_damaged = False
    for line in data.removeprefix(_BOM).split(b"\n"):
        if not line.strip():
            continue
        entry = decode(line)
        if entry is None:
            is_damaged = True
        else:
            last[entry.key] = entry.forgotten
    forgotten = frozenset(key for key, is_forgotten in last.items() if is_forgotten)
    return FilePast(forgotten, is_damaged)


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
        expires=entry.expires,
    )


def versions_of(data: bytes, key: str) -> list[Item]:
    """All versions of a memory that the file still has, the oldest first."""
    found: list[Item] = []
    key = without_forbidden(key)
    for span in _perhaps(data, (_mark(key),)):
        entry = decode(data[slice(*span)])
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
    return _cut(data, _those_of(data, frozenset(map(without_forbidden, keys)))) + b"".join(
        map(encode, more)
    )


def shortened(data: bytes, key: str, most: int) -> bytes:
    """The file with the first and the last lines of one key, `most` of them, and all others.

    The first one tells who began it, and when.
    """
    own = _those_of(data, frozenset((without_forbidden(key),)))
    return _cut(data, own[1 : max(1, len(own) - most + 1)])


_Span: TypeAlias = tuple[int, int]  # where a line begins, and where the end of it is


def _those_of(data: bytes, keys: frozenset[str]) -> list[_Span]:
    marks = tuple(_mark(key) for key in keys)
    return [span for span in _perhaps(data, marks) if _is_of(data[slice(*span)], keys, marks)]


def _perhaps(data: bytes, marks: Sequence[bytes]) -> list[_Span]:
    """The lines that may be of the keys with these marks, in their order.

    Most lines of a file are of others, and reading one takes far longer than searching it. JSON
    can write a key as its mark, or else with `\\u`, `\\/` and the like, and `fit` may have changed
    it: so what makes either possible is searched for as well.
    """
    first = len(_BOM) if data.startswith(_BOM) else 0

    def hidden(since: int) -> int:
        # With one sign to look for at its beginning, this is quicker than two times `find`.
        match = _HIDING.search(data, since)
        return -1 if match is None else match.start()

    finders: list[Callable[[int], int]] = [
        partial(data.find, mark) for mark in (*marks, *_NO_CHARACTERS)
    ]
    found: set[_Span] = set()
    for find in (*finders, hidden):
        at = find(first)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            found.add((max(first, data.rfind(b"\n", 0, at) + 1), end))
            at = find(end)
    return sorted(found)


def _cut(data: bytes, lines: Sequence[_Span]) -> bytes:
    """The data without these lines, and with an end to its last one."""
    whole = memoryview(data)  # a slice of it is no copy
    kept: list[memoryview] = []
    begin = 0
    for start, end in lines:
        kept.append(whole[begin:start])
        begin = end + 1
    kept.append(whole[begin:])
    last = next((piece[-1] for piece in reversed(kept) if piece), _END)
    return b"".join(kept if last == _END else (*kept, b"\n"))


def _is_of(line: bytes, keys: frozenset[str], marks: Sequence[bytes]) -> bool:
    entry = decode(line)
    if entry is not None:
        return entry.key in keys
    try:
        named = _decode_any(line).get("key")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return any(mark in line for mark in marks)
    return isinstance(named, str) and without_forbidden(named) in keys


def _mark(key: str) -> bytes:
    return _encode(key)
