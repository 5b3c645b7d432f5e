"""Images, files and opaque parts of messages: those that a model does not support, and those that
its provider refuses.

Media types come from the content. What a file was called, or what a tool said of it, may be wrong,
and a provider that checks would refuse every later message of the conversation. So would a part
that it refuses: the request is sent again without the part that the refusal names, or without all
of that kind if it names none.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from component.models.faults import Fault
from component.models.messages import (
    FilePart,
    ImagePart,
    ModelMessage,
    OpaquePart,
    Part,
    TextPart,
    map_parts,
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


def without_parts(parts: Iterable[_Kept], omitted: Collection[str]) -> tuple[_Kept | TextPart, ...]:
    """Return parts without those of these digests, and with sentences in place of files."""
    changed = [_unless_omitted(part, omitted) for part in parts]
    return tuple([part for part in changed if part is not None])


def without_refused(
    messages: Sequence[ModelMessage], omitted: Collection[str]
) -> tuple[ModelMessage, ...]:
    """Return messages without the parts of these digests, as `without_parts` does."""
    return map_parts(messages, lambda part: _unless_omitted(part, omitted))


def _unless_omitted(part: _Kept, omitted: Collection[str]) -> _Kept | TextPart | None:
    if not omitted or not isinstance(part, OpaquePart | ImagePart | FilePart):
        return part
    if part_digest(part) not in omitted:
        return part
    return None if isinstance(part, OpaquePart) else _sentence(part)


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
    if not any(map(_has_more_than_text, messages)):
        return tuple(messages)

    def adapt(part: Part) -> Part | None:
        if isinstance(part, OpaquePart):
            return part if part.origin == origin else None
        if not isinstance(part, ImagePart | FilePart):
            return part
        kind = media_type_of(part.data)
        if kind not in (images if isinstance(part, ImagePart) else files):
            return _sentence(part)
        return part if kind == part.media_type else msgspec.structs.replace(part, media_type=kind)

    return map_parts(messages, adapt)


def _has_more_than_text(message: ModelMessage) -> bool:
    parts = message.parts
    if message.role == "tool":
        parts = tuple([part for result in message.results for part in result.parts])
    return any(isinstance(part, ImagePart | FilePart | OpaquePart) for part in parts)


def _sentence(part: ImagePart | FilePart) -> TextPart:
    size = _size(part.data)
    if isinstance(part, ImagePart):
        return TextPart(
            f"[An image ({part.media_type}, {size}) that this model cannot see. If it matters, say:"
            " I can't look at pictures with the model I have.]"
        )
    return TextPart(
        f"[A file ({part.name}, {part.media_type}, {size}) that this model cannot read]"
    )


def _size(data: bytes) -> str:
    size = len(data)
    if size < 1000:
        return f"{size} bytes"
    return f"{round(size / 1000)} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def base64_text(data: bytes) -> str:
    """Encode data in Base64."""
    return base64.b64encode(data).decode()


def data_url(part: ImagePart | FilePart) -> str:
    """Return an image or file as a data URL (RFC 2397)."""
    return f"data:{part.media_type};base64,{base64_text(part.data)}"


Refused: TypeAlias = Literal["reasoning", "image", "file"]

_CODES: Final[dict[str, Refused]] = {
    "invalid_encrypted_content": "reasoning",
    "thinking_signature_invalid": "reasoning",
    "invalid_image": "image",
    "invalid_image_format": "image",
    "invalid_image_url": "image",
    "invalid_base64_image": "image",
    "image_parse_error": "image",
    "image_too_large": "image",
    "image_too_small": "image",
    "unsupported_image": "image",
    "unsupported_image_media_type": "image",
    "empty_image_file": "image",
    "invalid_pdf": "file",
    "invalid_file": "file",
}
_TEXTS: Final[tuple[tuple[Refused, re.Pattern[str]], ...]] = (
    (
        "reasoning",
        re.compile(
            r"encrypted.?content.{0,200}(could not|cannot|invalid|not) (be )?(verified|decrypted"
            r"|parsed|valid|supported)|invalid .{0,20}signature.{0,40}(thinking|reasoning)"
            r"|thought.?signature.{0,60}(not valid|invalid|corrupted|could not)"
            r"|(invalid|corrupted) thought.?signature"
            r"|thinking.{0,3} blocks.{0,80}cannot be modified"
            r"|of type 'reasoning' was provided without|item with id .{0,120}not found"
            r"|signature.{0,40}(thinking|reasoning) block.{0,40}(invalid|expired)"
            r"|thinking\.signature: ",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "file",
        re.compile(
            r"\bpdf\b.{0,60}(not valid|invalid|corrupted|encrypted|password|could not|too long"
            r"|too large)"
            r"|could not process pdf|maximum of \d+ pdf pages|document.source",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "image",
        re.compile(
            r"(could not|cannot|unable to|failed to) (process|decode|load|identify|parse|read)"
            r"( the| input)? image|(invalid|unsupported|corrupted|malformed) image"
            r"|image.{0,80}(not valid|not supported|unsupported|too (large|small)|corrupted"
            r"|exceed(s|ed)?|appears to be|does not match|not represent|unknown format)"
            r"|image[ _-](input|content|url)s?.{0,40}(not|unsupported)|support image input"
            r"|unknown variant .?image_url|only image types are supported|image: unknown format",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
)
_PATH: Final = re.compile(r"\b(messages|input)((?:\[['\"]?\w{1,40}['\"]?\]|\.\w{1,40})+)")
_STEP: Final = re.compile(r"\w+")
_IDS: Final = ("id", "call_id", "tool_call_id", "tool_use_id")
_MESSAGE_KEYS: Final = ("content", "role", "tool_calls", "type", "output", "arguments")


def refused_kind(fault: Fault) -> Refused | None:
    """Say which kind of part a refusal is about, if it is about one."""
    for code in fault.codes:
        if (kind := _CODES.get(code.lower())) is not None:
            return kind
    return next((kind for kind, pattern in _TEXTS if pattern.search(fault.message)), None)


def refused_parts(
    fault: Fault, body: bytes, messages: Sequence[ModelMessage], origin: str, *, every: bool = False
) -> frozenset[str]:
    """Return the digests of the parts that a refusal is about.

    `body` is the request that was refused and `messages` are its messages; it has the opaque parts
    of this `origin`. With `every`, all parts of that kind are returned, also if one is named.
    """
    kind = refused_kind(fault)
    parts = [
        part
        for message in messages
        for part in (*message.parts, *(inner for one in message.results for inner in one.parts))
        if isinstance(part, ImagePart | FilePart)
        or (isinstance(part, OpaquePart) and part.origin == origin)
    ]
    nodes = _named_nodes(fault, body)
    named = [part for part in parts if any(_holds(node, part) for node in nodes)]
    if kind is None or (named and not every):
        return frozenset(map(part_digest, named))
    wanted = {"reasoning": OpaquePart, "image": ImagePart, "file": FilePart}[kind]
    return frozenset(part_digest(part) for part in parts if isinstance(part, wanted))


def _named_nodes(fault: Fault, body: bytes) -> Sequence[Any]:
    """What the field leads to that a refusal names, and what is around that, up to a message."""
    found = _PATH.search(fault.field) or _PATH.search(fault.message)
    if found is None:
        return ()
    node: Any = msgspec.json.decode(body).get(found[1])
    nodes: list[Any] = []
    for step in _STEP.findall(found[2]):
        # Anthropic has the types of blocks in paths, which are no keys.
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
            if not (isinstance(node, dict) and "role" in node):
                nodes.append(node)
        elif isinstance(node, dict) and step in node:
            if "role" in node and step not in _MESSAGE_KEYS:
                nodes.append({step: node[step]})
            node = node[step]
    return nodes


def _holds(node: Any, part: Part) -> bool:
    if isinstance(part, ImagePart | FilePart):
        return (
            isinstance(node, dict) and base64_text(part.data) in msgspec.json.encode(node).decode()
        )
    if not isinstance(part, OpaquePart) or not isinstance(node, dict):
        return False
    data = msgspec.json.decode(part.data)
    if not isinstance(data, dict):
        return False
    inner = data.get("tool_call", data)
    if inner is not data and inner.get("id"):
        # Beside its id a call may have more, which is another field in each dialect.
        return any(node.get(key) == inner["id"] for key in _IDS)
    return bool(inner) and all(key in node and _within(inner[key], node[key]) for key in inner)


def _within(value: Any, sent: Any) -> bool:
    """Whether a value is (a part of) what was sent: texts and lists of several parts are joined."""
    if isinstance(value, str) and isinstance(sent, str):
        return value in sent
    if isinstance(value, list) and isinstance(sent, list):
        return all(each in sent for each in value)
    return bool(value == sent)
