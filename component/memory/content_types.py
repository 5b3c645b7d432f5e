"""The media type of a file by its content: names and headers may say anything."""

import re
from collections.abc import Mapping
from typing import Final

from component.models.contents import media_type_of

UNKNOWN: Final = "application/octet-stream"
_OOXML: Final = "application/vnd.openxmlformats-officedocument"
_ODF: Final = "application/vnd.oasis.opendocument"
READERS: Final[Mapping[str, str]] = {
    "application/pdf": "pdf",
    "text/html": "html",
    "text/plain": "text",
    "text/xml": "text",
    "application/json": "text",
    f"{_OOXML}.wordprocessingml.document": "docx",
    f"{_OOXML}.spreadsheetml.sheet": "xlsx",
    f"{_OOXML}.presentationml.presentation": "pptx",
    f"{_ODF}.text": "odt",
    f"{_ODF}.spreadsheet": "ods",
    f"{_ODF}.presentation": "odp",
}
"""How the text of a file is read, by its media type (`component.memory.document_worker`)."""

_BEGINNINGS: Final = (
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"#!AMR", "audio/amr"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"{\\rtf", "application/rtf"),
)
_RIFF: Final = {b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_OFFICE: Final = (
    (b"word/document", f"{_OOXML}.wordprocessingml.document"),
    (b"xl/workbook", f"{_OOXML}.spreadsheetml.sheet"),
    (b"ppt/presentation", f"{_OOXML}.presentationml.presentation"),
)
_TRACK: Final = re.compile(rb"hdlr.{8}(vide|soun)", re.DOTALL)
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_NOT_TEXT: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_HTML: Final = re.compile(rb"(?is)\s*(<!--.{0,500}?-->\s*)*<(!doctype\s+html|html|head|body)\b")
_READ: Final = 1 << 16
"""Bytes at the beginning by which a text is recognised."""


def content_type(data: bytes) -> str:
    """Return the media type of a file."""
    found = media_type_of(data)
    if found and not (_is_weak(found, data) and _is_text(data)):
        return found
    for beginning, kind in _BEGINNINGS:
        if data.startswith(beginning):
            return kind
    if data.startswith(b"PK\x03\x04"):
        return _archive(data)
    if data.startswith(b"OggS"):
        return "video/ogg" if b"theora" in data[:256] else "audio/ogg"
    if data[:4] == b"RIFF" and data[8:12] in _RIFF:
        return _RIFF[data[8:12]]
    if data[4:8] == b"ftyp":
        return _movie(data)
    if len(data) > 3 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[:2] not in _UTF_16:
        return "audio/aac" if not data[1] & 0x06 else "audio/mpeg"
    return _text(data) if _is_text(data) else UNKNOWN


def _is_weak(found: str, data: bytes) -> bool:
    """Whether a text could begin like this, too."""
    return found == "image/bmp" or (found == "application/pdf" and not data.startswith(b"%PDF-"))


def _archive(data: bytes) -> str:
    # The names of the files in it are not compressed. ODF has its media type as the first of them.
    if data[30:38] == b"mimetype":
        size = int.from_bytes(data[22:26], "little")
        kind = data[38 : 38 + min(size, 100)].decode("ascii", "replace")
        return kind if kind in READERS else "application/zip"
    if b"[Content_Types].xml" in data:
        for name, kind in _OFFICE:
            if name in data:
                return kind
    return "application/zip"


def _movie(data: bytes) -> str:
    tracks = {found[1] for found in _TRACK.finditer(data)}
    if data[8:11] == b"M4A" or tracks == {b"soun"}:
        return "audio/mp4"
    return "video/quicktime" if data[8:12] == b"qt  " else "video/mp4"


def _is_text(data: bytes) -> bool:
    if not data.strip() or data.startswith(_UTF_16):
        return bool(data.strip(b"\xff\xfe\x00 \t\r\n"))
    return _NOT_TEXT.search(data[:_READ]) is None


def _text(data: bytes) -> str:
    start = data[:_READ].removeprefix(b"\xef\xbb\xbf")
    if data.startswith(_UTF_16):
        start = data[:_READ].decode("utf-16", "replace").encode()
    if _HTML.match(start):
        return "text/html"
    if start.lstrip().startswith(b"<?xml"):
        return "text/xml"
    ends = start.strip()[:1] + data.strip(b"\x00 \t\r\n")[-1:]
    return "application/json" if ends in (b"{}", b"[]") else "text/plain"
