"""Images and files in messages: replaces those that a model does not support by sentences.

Media types come from the content. What a file was called, or what a tool said of it, may be wrong,
and a provider that checks would refuse every later message of the conversation.
"""

import base64
import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    Part,
    TextPart,
    ToolResultPart,
)

_Kept = TypeVar("_Kept", bound=Part)

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types of images that all dialects support."""
PDF: Final = frozenset({"application/pdf"})
_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
)
_BRANDS: Final = {b"avif": "image/avif", b"avis": "image/avif"} | dict.fromkeys(
    (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"), "image/heic"
)
_PDF_SEARCHED: Final = 1024
"""Bytes in which readers of PDF look for its mark."""


def media_type_of(data: bytes) -> str:
    """The media type of an image or a PDF document by its first bytes; "" for anything else."""
    for beginning, kind in _BEGINNINGS:
        if data.startswith(beginning):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "")
    return "application/pdf" if b"%PDF-" in data[:_PDF_SEARCHED] else ""


def part_digest(part: Part) -> str:
    """Identify an image, a file or an opaque part by its content."""
    if isinstance(part, OpaquePart):
        content = part.origin.encode() + b"\0" + bytes(part.data)
    else:
        assert isinstance(part, ImagePart | FilePart), "texts and calls are never refused alone"
        content = part.data
    return hashlib.sha256(content).hexdigest()[:32]


def without(parts: Iterable[_Kept], omitted: Collection[str]) -> tuple[_Kept | TextPart, ...]:
    """Return parts of a message without those of these digests, and with sentences in place of
    images and files.
    """
    if not omitted:
        return tuple(parts)
    kept: list[_Kept | TextPart] = []
    for part in parts:
        if not isinstance(part, OpaquePart | ImagePart | FilePart) or (
            part_digest(part) not in omitted
        ):
            kept.append(part)
        elif isinstance(part, ImagePart):
            kept.append(TextPart(_unseen(part)))
        elif isinstance(part, FilePart):
            kept.append(TextPart(_unread(part)))
    return tuple(kept)


def without_refused(
    messages: Sequence[ModelMessage], omitted: Collection[str]
) -> tuple[ModelMessage, ...]:
    """Return messages without the parts of these digests, as `without` does."""

    def changed(part: Part) -> Part:
        if not isinstance(part, ToolResultPart):
            return part
        return msgspec.structs.replace(part, parts=without(part.parts, omitted))

    return tuple(
        ModelMessage(each.role, tuple(map(changed, without(each.parts, omitted))))
        for each in messages
    )


def adapted(
    messages: Sequence[ModelMessage],
    origin: str = "",
    *,
    images: Collection[str] = (),
    files: Collection[str] = (),
) -> tuple[ModelMessage, ...]:
    """Return the messages in a form that a model supports: with images and files of these media
    types, and opaque parts of its own `origin`. Other images and files are replaced by a sentence,
    other opaque parts are left out.
    """

    def adapt(parts: Iterable[Part]) -> list[Part]:
        found: list[Part] = []
        for part in parts:
            if isinstance(part, ImagePart | FilePart):
                found.append(_supported(part, images if isinstance(part, ImagePart) else files))
            elif isinstance(part, ToolResultPart):
                inner: Any = tuple(adapt(part.parts))
                if inner != part.parts:
                    part = msgspec.structs.replace(part, parts=inner)  # noqa: PLW2901
                found.append(part)
            elif not isinstance(part, OpaquePart) or part.origin == origin:
                found.append(part)
        return found

    return tuple(
        message
        if all(isinstance(part, TextPart) for part in message.parts)
        else ModelMessage(message.role, tuple(adapt(message.parts)))
        for message in messages
    )


def _supported(part: ImagePart | FilePart, supported: Collection[str]) -> Part:
    """Return an image or file with the type of its content, or a sentence in its place."""
    kind = media_type_of(part.data)
    if kind in supported:
        return part if kind == part.media_type else msgspec.structs.replace(part, media_type=kind)
    return TextPart(_unseen(part) if isinstance(part, ImagePart) else _unread(part))


def _unseen(part: ImagePart) -> str:
    return f"[An image ({part.media_type}, {_size(part.data)}) that this model cannot see]"


def _unread(part: FilePart) -> str:
    return (
        f"[A file ({part.name}, {part.media_type}, {_size(part.data)}) that this model cannot read]"
    )


def _size(data: bytes) -> str:
    size = len(data)
    if size < 1000:
        return f"{size} bytes"
    return f"{round(size / 1000)} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def encoded(data: bytes) -> str:
    """Encode data in Base64."""
    return base64.b64encode(data).decode()


def data_url(part: ImagePart | FilePart) -> str:
    """Return an image or file as a data URL (RFC 2397)."""
    return f"data:{part.media_type};base64,{encoded(part.data)}"
