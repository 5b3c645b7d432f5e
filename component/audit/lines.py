"""The format of the audit log: one line per event, each with the hash of the previous one.

For those who verify it with their own program (docs/reference/audit.md has one): a line is a JSON
object whose last member is `hash`. Its value is the SHA-256 of the line's bytes without this member
and its comma. `prev` is the hash of the previous line, or 64 zeros in the first line; `seq` counts
from 1. The JSON need not be canonical, because the hash covers its exact bytes.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from component.audit.protocol import AuditEvent

GENESIS: Final = "0" * 64
"""`prev` of the first line."""
_LONGEST: Final = 4096
"""The length of a line, in bytes, above which its texts are cut."""
_LONGEST_TEXT: Final = 400
_TAIL: Final = re.compile(rb',"hash":"([0-9a-f]{64})"}')
TAIL_BYTES: Final = len(',"hash":""}') + 64
_TEXTS: Final = ("principal", "agent", "trace", "subject", "task", "detail")


class Line(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line without its hash; `time` is RFC 3339, UTC, in milliseconds."""

    seq: int
    time: str
    kind: str
    outcome: str
    principal: str = ""
    agent: str = ""
    trace: str = ""
    subject: str = ""
    task: str = ""
    detail: str = ""
    prev: str = ""


class Sealed(msgspec.Struct, frozen=True):
    """A line that was read. `matches` says whether its hash is that of its content."""

    line: Line
    hash: str
    matches: bool


class ChainLink(msgspec.Struct, frozen=True):
    """The end of a chain: the number and the hash of its last line."""

    seq: int = 0
    hash: str = GENESIS


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode


class Chain:
    """Encodes events as lines, in about 1.5 µs each, most of it SHA-256."""

    def __init__(self, last: ChainLink = ChainLink()) -> None:  # noqa: B008 - it is frozen
        self.seq = last.seq
        self.hash = last.hash
        self._line = Line(seq=0, time="", kind="", outcome="")
        self._ms = -1

    def add(self, times: Sequence[int], events: Sequence[AuditEvent]) -> bytes:
        """Encode events; `times` are their times, in nanoseconds since 1970."""
        line, encode, sha256, ms = self._line, _encode, hashlib.sha256, self._ms
        seq, link = self.seq, self.hash
        pieces: list[bytes] = []
        before: AuditEvent | None = None
        same = b""
        for ns, event in zip(times, events, strict=True):
            seq += 1
            now = ns // 1_000_000
            if event is before and now == ms and same:
                # Bursts often repeat one event: only number and hash of such a line are new.
                content = b'{"seq":%d%b%b"' % (seq, same, link.encode())
                link = sha256(content + b"}").hexdigest()
                pieces.append(b'%b,"hash":"%b"}\n' % (content, link.encode()))
                continue
            if now != ms:
                ms = now
                line.time = timestamp(ms)
            line.seq = seq
            if event is not before:
                line.kind = event.kind
                line.outcome = event.outcome
                line.principal = event.principal
                line.agent = event.agent
                line.trace = event.trace
                line.subject = event.subject
                line.task = event.task
                line.detail = event.detail
                before = event
            line.prev = link
            try:
                content = encode(line)
            except UnicodeEncodeError:
                content = encode(_shortened(line))
            if len(content) > _LONGEST:
                content = encode(_shortened(line))
            head = len(b'{"seq":%d' % seq)
            same = content[head : -len(link) - 2] if len(content) < _LONGEST // 2 else b""
            link = sha256(content).hexdigest()
            pieces.append(content[:-1])
            pieces.append(b',"hash":"%b"}\n' % link.encode())
        self.seq, self.hash, self._ms = seq, link, ms
        return b"".join(pieces)

    @property
    def last(self) -> ChainLink:
        """The link that the next line continues."""
        return ChainLink(self.seq, self.hash)


def _shortened(line: Line) -> Line:
    cut = {name: _cut(getattr(line, name)) for name in ("outcome", *_TEXTS)}
    return msgspec.structs.replace(line, **cut)


def _cut(text: str) -> str:
    # UTF-8 cannot encode an unpaired surrogate.
    text = text[: 4 * _LONGEST_TEXT].encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def timestamp(ms: int) -> str:
    """Convert milliseconds since 1970 to the format of lines."""
    return f"{_second(ms // 1000)}.{ms % 1000:03}Z"


@lru_cache(1)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def read_line(raw: bytes) -> Sealed | None:
    """Parse a line, given without its line break; None if it is not a line of an audit log."""
    tail = _TAIL.fullmatch(raw, max(0, len(raw) - TAIL_BYTES))
    if tail is None:
        return None
    content = raw[:-TAIL_BYTES] + b"}"
    try:
        line = _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    hash_ = tail[1].decode()
    return Sealed(line, hash_, hashlib.sha256(content).hexdigest() == hash_)
