"""The lines of `knowledge.jsonl`, and the memories that they represent.

Fluux Agent writes `{"key": …, "content": …, "ts": …}`. Its lines are read unchanged, and it reads
ours, which have more fields. The last line of a key counts; those before it are its earlier
versions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from component import system
from component.policy.taint import Taint
from xep.characters import without_forbidden

FILE_NAME = "knowledge.jsonl"

_BOM = b"\xef\xbb\xbf"  # some editors write it
_END: Final = ord("\n")
_ESCAPES: Final = re.compile(rb"\\[u/bf]")
_NO_CHARACTERS: Final = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")  # U+FFFE, U+FFFF
_SUSPECT: Final = re.compile(rb"\\[ubf]|\xef\xbf[\xbe\xbf]")
"""Matches lines with texts that may contain a character that XML does not allow."""


class Memo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a memory says. `taint` says who could have written it; `expires` is the time after which
    it is not used, of RFC 3339.
    """

    key: str
    body: str = msgspec.field(default="", name="content")
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    taint: Taint | None = None
    expires: str = ""

    @property
    def contents(self) -> tuple[str, str, str, tuple[str, ...], Taint | None, str]:
        """Everything but the key."""
        return self.body, self.title, self.topic, self.tags, self.taint, self.expires

    def as_line(self, ts: str, by: str) -> "MemoryLine":
        """Return a line that has it stored."""
        return MemoryLine(self.key, *self.contents, ts=ts, by=by)


class MemoryLine(Memo, frozen=True, kw_only=True):
    """One line: a version of a memory, or a record that it was forgotten.

    Attributes:
        ts: a time of RFC 3339.
        version: the number of this version, from 1.
        by: the bare JID of the principal who had it stored.
        forgotten: cancels all earlier lines of the key; such a line has no content.
    """

    ts: str = ""
    version: int = 0
    by: str = ""
    forgotten: bool = False


class Item(Memo, frozen=True, kw_only=True):
    """A memory.

    Attributes:
        versions: the number of versions that are kept.
        created, updated: times of RFC 3339, or empty.
        creator, by: the bare JIDs of the principals who had its first and its last version stored.
    """

    version: int = 1
    versions: int = 1
    created: str = ""
    updated: str = ""
    creator: str = ""
    by: str = ""

    def is_expired(self, now: float) -> bool:
        """Whether it has expired at `now`, in seconds since 1970."""
        at = seconds_of(self.expires) if self.expires else None
        return at is not None and at <= now


class Parsed(NamedTuple):
    """The memories in a file; `damaged` are the numbers, from 1, of lines that cannot be read."""

    items: dict[str, Item]
    damaged: list[int]


_decode = msgspec.json.Decoder(MemoryLine).decode
_encode = msgspec.json.Encoder().encode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


def encode_memory(entry: MemoryLine) -> bytes:
    """Return the line, with its line feed."""
    return _encode(entry) + b"\n"


def current_timestamp() -> str:
    """Return the current time in the format of lines."""
    return system.now().isoformat(timespec="seconds").replace("+00:00", "Z")


def seconds_of(ts: str | None) -> float | None:
    """Return a time of RFC 3339 in seconds since 1970; None for anything else."""
    try:
        when = datetime.fromisoformat(ts or "")
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def xml_safe(entry: MemoryLine) -> MemoryLine:
    """Return an entry in which U+FFFD replaces characters that XML does not allow.

    Otherwise, no answer that lists the memory could be sent.
    """
    fields = msgspec.structs.asdict(entry).items()
    texts = {name: without_forbidden(value) for name, value in fields if isinstance(value, str)}
    tags = tuple(map(without_forbidden, entry.tags))
    return msgspec.structs.replace(entry, **texts, tags=tags)


def decode_memory(line: bytes) -> MemoryLine | None:
    """Read a line, with `xml_safe`; None if it is damaged."""
    try:
        entry = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not entry.key or not (entry.forgotten or entry.body or b'"content"' in line):
        return None
    return entry if _SUSPECT.search(line) is None else xml_safe(entry)


def _entries(data: bytes) -> Iterator[tuple[int, MemoryLine | None]]:
    """Yield the number, from 1, and the entry of each line that is not blank; None if damaged."""
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
        if line.strip():
            yield number, decode_memory(line)


def parse_memories(data: bytes) -> Parsed:
    """Read a whole file. A damaged line is skipped; the others are read."""
    items: dict[str, Item] = {}
    damaged: list[int] = []
    for number, entry in _entries(data):
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
    entries = [entry for _, entry in _entries(data)]
    last = {entry.key: entry.forgotten for entry in entries if entry is not None}
    forgotten = frozenset(key for key, is_forgotten in last.items() if is_forgotten)
    return FilePast(forgotten, None in entries)


def succeeding(former: Item | None, entry: MemoryLine) -> Item:
    """Return the memory after a further line of its key."""
    return Item(
        entry.key,
        *entry.contents,
        # A line that was written by hand may have no number, or that of a copied line.
        version=max(entry.version, former.version + 1 if former else 1),
        versions=former.versions + 1 if former else 1,
        created=former.created if former else entry.ts,
        updated=entry.ts,
        creator=former.creator if former else entry.by,
        by=entry.by,
    )


def versions_of(data: bytes, key: str) -> list[Item]:
    """Return all versions of a memory in a file, the oldest first."""
    found: list[Item] = []
    key = without_forbidden(key)
    for span in _candidates(data, (_mark(key),)):
        entry = decode_memory(data[slice(*span)])
        if entry is None or entry.key != key:
            continue
        if entry.forgotten:
            found.clear()
        else:
            found.append(succeeding(found[-1] if found else None, entry))
    return found


def remove_keys(data: bytes, keys: Iterable[str], more: Sequence[MemoryLine] = ()) -> bytes:
    """Return the file without all lines of these keys, and with the lines `more` at its end.

    A damaged line that contains one of the keys is removed, too. All other lines are unchanged.
    """
    return _without(data, _lines_of(data, frozenset(map(without_forbidden, keys)))) + b"".join(
        map(encode_memory, more)
    )


def limit_versions(data: bytes, key: str, most: int) -> bytes:
    """Return the file with only `most` lines of one key: the first one, which has the creator and
    its time, and the last ones.
    """
    own = _lines_of(data, frozenset((without_forbidden(key),)))
    return _without(data, own[1 : max(1, len(own) - most + 1)])


_Span: TypeAlias = tuple[int, int]  # where a line begins, and where the end of it is


def _lines_of(data: bytes, keys: frozenset[str]) -> list[_Span]:
    marks = tuple(_mark(key) for key in keys)
    return [
        span for span in _candidates(data, marks) if _belongs_to(data[slice(*span)], keys, marks)
    ]


def _candidates(data: bytes, marks: Sequence[bytes]) -> list[_Span]:
    """Return the lines that may belong to the keys with these marks, in their order.

    Most lines of a file belong to others, and to decode one takes far longer than to search it.
    JSON can encode a key as its mark, or with escapes such as `\\u` and `\\/`, and `xml_safe` may
    have changed it; so lines with these are returned, too.
    """
    first = len(_BOM) if data.startswith(_BOM) else 0

    def escaped(since: int) -> int:
        # One regular expression is faster than two calls of `find`.
        match = _ESCAPES.search(data, since)
        return -1 if match is None else match.start()

    finders: list[Callable[[int], int]] = [
        partial(data.find, mark) for mark in (*marks, *_NO_CHARACTERS)
    ]
    found: set[_Span] = set()
    for find in (*finders, escaped):
        at = find(first)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            found.add((max(first, data.rfind(b"\n", 0, at) + 1), end))
            at = find(end)
    return sorted(found)


def _without(data: bytes, lines: Sequence[_Span]) -> bytes:
    whole = memoryview(data)  # a slice of it is no copy
    kept: list[memoryview] = []
    begin = 0
    for start, end in lines:
        kept.append(whole[begin:start])
        begin = end + 1
    kept.append(whole[begin:])
    last = next((piece[-1] for piece in reversed(kept) if piece), _END)
    return b"".join(kept if last == _END else (*kept, b"\n"))


def _belongs_to(line: bytes, keys: frozenset[str], marks: Sequence[bytes]) -> bool:
    entry = decode_memory(line)
    if entry is not None:
        return entry.key in keys
    try:
        named = _decode_any(line).get("key")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return any(mark in line for mark in marks)
    return isinstance(named, str) and without_forbidden(named) in keys


def _mark(key: str) -> bytes:
    return _encode(key)
