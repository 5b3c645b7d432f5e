"""Reads how large an image is from its first bytes, without decoding it."""

from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""The markers of segments that begin with the size of the image (ITU-T T.81, table B.1)."""


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, GIF, JPEG or WebP image; None for other data."""
    found = None
    if data.startswith(_PNG) and data[12:16] == b"IHDR":
        found = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    elif data[:6] in (b"GIF87a", b"GIF89a"):
        found = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data.startswith(b"\xff\xd8"):
        found = _jpeg_size(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        found = _webp_size(data)
    return found if found is not None and min(found) > 0 else None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        if marker == 0xFF:  # a byte of filling
            at += 1
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            sides = data[24:27], data[27:30]
            return int.from_bytes(sides[0], "little") + 1, int.from_bytes(sides[1], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            sides = data[26:28], data[28:30]
            width, height = (int.from_bytes(side, "little") & 0x3FFF for side in sides)
            return width, height
    return None
