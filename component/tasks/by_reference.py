"""Gives parts of a result by reference that do not fit into a stanza (EXE-012)."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from component.skills.outputs import File, Link, Output, Part, SkillResult

_PER_PART: Final = 512
"""Approximate bytes of a part beside its content."""
_EXTENSIONS: Final = {"text/plain": "txt", "application/json": "json", "text/markdown": "md"}


class CannotShare(Exception):  # noqa: N818 - the name says what happened
    """A file cannot be given by reference; the text says why, as the end of a sentence."""


Share: TypeAlias = Callable[[File], Awaitable[Link]]
"""Puts a file where others can get it. Raises CannotShare."""


async def nowhere(_file: File) -> Link:
    """Share nothing: there is no place for files."""
    raise CannotShare("this agent has no place for files")


async def fitting(made: SkillResult, most_bytes: int, share: Share) -> SkillResult:
    """Return a result whose parts fit into `most_bytes`, the largest ones by reference if needed.

    Raises CannotShare.
    """
    if 4 * least_size(made) + _PER_PART * len(made.outputs) <= most_bytes:
        return made
    parts = list(made.outputs)
    sizes = [_size(part) for part in parts]
    while sum(sizes) > most_bytes:
        index = max(range(len(parts)), key=sizes.__getitem__)
        part = parts[index]
        if isinstance(part, Link) or sizes[index] <= 2 * _PER_PART:
            raise CannotShare("it has too many parts")
        link = await share(_file_of(part, index))
        parts[index] = msgspec.structs.replace(link, name=part.name)
        sizes[index] = _size(parts[index])
    return msgspec.structs.replace(made, outputs=tuple(parts))


def least_size(made: SkillResult) -> int:
    """Return a lower bound for the size of a result in a stanza, in bytes. It is computed from
    lengths alone.
    """
    return sum(map(_length, made.outputs))


def _length(part: Part) -> int:
    match part:
        case Output():
            return len(part.text)
        case File():
            return len(part.data)
        case _:
            return len(part.url)


def _size(part: Part) -> int:
    """Return the approximate size of a part in a stanza, in bytes."""
    match part:
        case Output():
            return _PER_PART + len(part.text.encode(errors="surrogatepass"))
        case File():
            return _PER_PART + len(part.data) * 4 // 3
        case _:
            return _PER_PART + len(part.url)


def _file_of(part: Output | File, index: int) -> File:
    if isinstance(part, File):
        return part
    kind = part.media_type.partition(";")[0].strip().lower()
    name = part.name or ("output" if index == 0 else f"output-{index + 1}")
    if "." not in name:
        name = f"{name}.{_EXTENSIONS.get(kind, 'txt')}"
    return File(
        part.text.encode(), f"{kind}; charset=utf-8" if kind.startswith("text/") else kind, name
    )
