"""Lines and times as they are written."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from component.conversations.lines import Called, Header, Line, Note, Resulted, Said, Summary
from component.memory_directory.files import MemoryStoreError

MAX_LINE = 1 << 24  # bytes; a longer line is taken for damage

_ANY = Header | Said | Called | Resulted | Summary | Note
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_ANY)


def decoded(raw: bytes) -> Line | Header:
    """Read one line. Raises ValueError, which says what is wrong with it."""
    try:
        line: Line | Header = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return line


def encoded(line: Line | Header) -> bytes:
    """Write one line, its end included.

    Raises MemoryStoreError if it is too long, and UnicodeEncodeError if its texts are no Unicode.
    """
    data = _encoder.encode(line)
    if len(data) > MAX_LINE:
        raise MemoryStoreError(
            f"A line of {len(data)} bytes cannot be kept, only up to {MAX_LINE}. Shorten it."
        )
    return data + b"\n"


def written(lines: Iterable[Line], now: str) -> tuple[list[Line], bytes]:
    """Lines as they will be read again, and their bytes; those without a time get `now`.

    Raises MemoryStoreError if one is too long.
    """
    done: list[Line] = []
    data: list[bytes] = []
    for each in lines:
        line = msgspec.structs.replace(each, ts=now) if each.ts is None else each
        try:
            data.append(encoded(line))
        except UnicodeEncodeError:
            # Half of a surrogate pair, as a model may write in the arguments of a call.
            line = msgspec.convert(_mended(msgspec.to_builtins(line)), Line)
            data.append(encoded(line))
        done.append(line)
    return done, b"".join(data)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _mended(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    return value


def stamp(now: float) -> str:
    """A time in seconds since 1970 as RFC 3339 has it, in UTC."""
    return (
        datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def moment(stamp: str | None) -> float | None:
    """A time of RFC 3339 in seconds since 1970."""
    if stamp is None:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
