"""Images and files in messages: replaces those that a model does not support by sentences."""

import base64
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

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

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types of images that all dialects support."""
PDF: Final = frozenset({"application/pdf"})


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
            if isinstance(part, ImagePart) and part.media_type not in images:
                found.append(TextPart(_unseen(part)))
            elif isinstance(part, FilePart) and part.media_type not in files:
                found.append(TextPart(_unread(part)))
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
