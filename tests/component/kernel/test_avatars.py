"""Avatars: which files are accepted, and the pattern that stands in for a file."""

import contextlib
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.kernel.avatars import (
    AvatarError,
    avatar_of,
    generated_avatar,
    read_avatar,
)

ADDRESS = "assistant@agent.example.com"


def pixels(image: bytes) -> list[bytes]:
    """The rows of an image of one bit a pixel, as any decoder would read them."""
    at, data = 8, b""
    while at < len(image):
        size = int.from_bytes(image[at : at + 4])
        if image[at + 4 : at + 8] == b"IDAT":
            data += image[at + 8 : at + 8 + size]
        at += 12 + size
    rows = io.BytesIO(zlib.decompress(data))
    return [rows.read(9)[1:] for _ in range(64)]


def resized(image: bytes, width: int, height: int) -> bytes:
    """The image with other sides in its header."""
    header = b"IHDR" + width.to_bytes(4) + height.to_bytes(4) + image[24:29]
    return image[:12] + header + zlib.crc32(header).to_bytes(4) + image[33:]


@given(st.text(max_size=40))
def test_every_address_has_an_avatar(address: str) -> None:
    avatar = generated_avatar(address)
    assert (avatar.width, avatar.height) == (64, 64)
    assert len(avatar.image) < 8_192  # XEP-0153 §4.6
    assert avatar == generated_avatar(address) == avatar_of(avatar.image)
    rows = pixels(avatar.image)
    assert rows == [bytes(int(f"{b:08b}"[::-1], 2) for b in row[::-1]) for row in rows]  # mirrored
    assert any(any(row) for row in rows)


def test_two_addresses_have_two_avatars() -> None:
    assert generated_avatar(ADDRESS) != generated_avatar("researcher@agent.example.com")


def test_the_bytes_are_those_of_every_release() -> None:
    """Clients keep an avatar by its digest; it must not change with a release or a machine."""
    assert generated_avatar(ADDRESS).sha1 == "237abe3e1961bf14bb24ba8383f8317001753754"


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "avatar.png"
    path.write_bytes(generated_avatar(ADDRESS).image)
    assert read_avatar(path) == generated_avatar(ADDRESS)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not a PNG image: convert it to PNG."),
        (b"\xff\xd8\xff\xe0", "is not a PNG image but looks like JPEG: convert it to PNG."),
        (b"GIF89a", "looks like GIF"),
        (b"RIFF....WEBP", "looks like WebP"),
        (b"  <svg xmlns='http://www.w3.org/2000/svg'/>", "looks like SVG"),
        (b"\x89PNG\r\n\x1a\n", "is not a complete PNG image"),
        (generated_avatar(ADDRESS).image[:-1], "is not a complete PNG image"),
        (generated_avatar(ADDRESS).image.replace(b"IDAT", b"IDAU"), "is not a complete PNG image"),
        (resized(generated_avatar(ADDRESS).image, 31, 64), "has 31 by 64 pixels"),
        (resized(generated_avatar(ADDRESS).image, 64, 1025), "use from 32 to 1024"),
        (b"\x89PNG\r\n\x1a\n" + bytes(70_000), "is larger than 65536 bytes"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "avatar.png"
    path.write_bytes(content)
    with pytest.raises(AvatarError) as refused:
        read_avatar(path)
    assert str(refused.value).startswith(str(path))
    assert why in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AvatarError, match=r"none\.png cannot be read: No such file"):
        read_avatar(tmp_path / "none.png")
    with pytest.raises(AvatarError, match="cannot be read"):
        read_avatar(tmp_path)


@given(st.binary(max_size=200), st.integers(0, 700), st.integers(0, 50))
def test_any_bytes_are_an_avatar_or_refused(noise: bytes, at: int, cut: int) -> None:
    image = generated_avatar(ADDRESS).image
    for broken in (noise, image[:8] + noise, image[:at] + noise + image[at + cut :]):
        with contextlib.suppress(AvatarError):
            assert avatar_of(broken).image == broken
