"""Avatars: PNG images of agents, read from a file or generated from an address.

XEP-0084 uses only PNG at its data node, and every client must support PNG in a vCard (XEP-0153
§4.6), so no other format is accepted.
"""

import colorsys
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

MEDIA_TYPE: Final = "image/png"
MOST_BYTES: Final = 65_536
"""The largest file. Clients fetch it with an IQ; XEP-0153 §4.6 recommends less than 8 KB."""
_LEAST_PIXELS: Final = 32
_MOST_PIXELS: Final = 1024
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_OTHERS: Final = ((b"\xff\xd8\xff", "JPEG"), (b"GIF8", "GIF"), (b"RIFF", "WebP"), (b"<", "SVG"))
_GRID: Final = 5
_CELL: Final = 10
_SIDE: Final = 64
_BACKGROUND: Final = (0xEE, 0xEE, 0xEE)


class AvatarError(ValueError):
    """An avatar file cannot be used. The message says why and what to do."""


class Avatar(msgspec.Struct, frozen=True, kw_only=True):
    """A PNG image.

    Attributes:
        image: the bytes of the file.
        width: pixels.
        height: pixels.
        sha1: the digest of the bytes in hexadecimal, by which XEP-0084 and XEP-0153 name it.
    """

    image: bytes
    width: int
    height: int
    sha1: str


def read_avatar(path: Path, most_bytes: int = MOST_BYTES) -> Avatar:
    """Read an avatar from a PNG file.

    Args:
        path: the file.
        most_bytes: the largest file that is accepted.

    Raises:
        AvatarError: the file does not exist, is not a complete PNG image, or is too large.
    """
    try:
        with path.open("rb") as file:
            image = file.read(most_bytes + 1)
    except OSError as error:
        raise AvatarError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(image) > most_bytes:
        raise AvatarError(
            f"{path} is larger than {most_bytes} bytes: use a smaller image, such as one of 64 by"
            " 64 pixels."
        )
    try:
        return avatar_of(image)
    except AvatarError as error:
        raise AvatarError(f"{path} {error}") from None


def avatar_of(image: bytes) -> Avatar:
    """Return the avatar for the bytes of a PNG image.

    Raises:
        AvatarError: they are not a complete PNG image, or it is too small or too large to be shown.
            The message continues a sentence that begins with the name of the file.
    """
    if not image.startswith(_SIGNATURE):
        kind = next((name for start, name in _OTHERS if image.lstrip().startswith(start)), None)
        found = (
            "is not a PNG image" if kind is None else f"is not a PNG image but looks like {kind}"
        )
        raise AvatarError(f"{found}: convert it to PNG.")
    chunks = list(_chunks(image))
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13 or chunks[-1][0] != b"IEND":
        raise AvatarError("is not a complete PNG image: export it again.")
    width, height = (int.from_bytes(chunks[0][1][at : at + 4]) for at in (0, 4))
    if not all(_LEAST_PIXELS <= side <= _MOST_PIXELS for side in (width, height)):
        raise AvatarError(
            f"has {width} by {height} pixels: use from {_LEAST_PIXELS} to {_MOST_PIXELS} on each"
            " side."
        )
    digest = hashlib.sha1(image, usedforsecurity=False).hexdigest()
    return Avatar(image=image, width=width, height=height, sha1=digest)


def generated_avatar(address: str) -> Avatar:
    """Generate an avatar for an agent without a file: a symmetrical pattern in one colour.

    The same address always gives the same bytes, on every machine.
    """
    digest = hashlib.sha256(address.encode()).digest()
    columns = (_GRID + 1) // 2
    cells = [bool(digest[number] & 1) for number in range(columns * _GRID)]
    if sum(cells) < _GRID:
        cells = [not cell for cell in cells]
    margin = (_SIDE - _GRID * _CELL) // 2
    rows = bytes(1 + _SIDE // 8) * margin  # each begins with the number of its filter
    for row in range(_GRID):
        half = "".join(str(int(cell)) * _CELL for cell in cells[row * columns :][:columns])
        pixels = int(half + half[-_CELL - 1 :: -1], 2) << margin
        rows += (b"\0" + pixels.to_bytes(_SIDE // 8, "big")) * _CELL
    rows += bytes(1 + _SIDE // 8) * (_SIDE - margin - _GRID * _CELL)
    hue = int.from_bytes(digest[-2:]) / 65_536
    colour = tuple(round(255 * part) for part in colorsys.hls_to_rgb(hue, 0.4, 0.6))
    header = _SIDE.to_bytes(4, "big") * 2 + bytes((1, 3, 0, 0, 0))  # one bit a pixel, with palette
    # Stored, not compressed: compressors differ in their output for the same bytes.
    return avatar_of(
        _SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"PLTE", bytes((*_BACKGROUND, *colour)))
        + _chunk(b"IDAT", zlib.compress(rows, 0))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + checksum


def _chunks(image: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and content of each chunk, up to the first that is truncated or damaged."""
    at = len(_SIGNATURE)
    while at + 12 <= len(image):
        size = int.from_bytes(image[at : at + 4])
        end = at + 12 + size
        checked = image[at + 4 : end - 4]
        if end > len(image) or zlib.crc32(checked).to_bytes(4, "big") != image[end - 4 : end]:
            return
        yield checked[:4], checked[4:]
        at = end
