"""PDF files that are damaged or hostile."""

import zlib

from benchmarks.pdfs import made, page, stream


def bomb(size: int) -> bytes:
    """A page whose contents expand to `size` bytes."""
    packer = zlib.compressobj(9)
    start = packer.compress(b"(all of it) Tj " * 69906) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same text has the same bytes, whatever came before.
    again = packer.compress(b"(all of it) Tj " * 69906) + packer.flush(zlib.Z_FULL_FLUSH)
    data = start + again * ((size >> 20) - 1)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[4 0 R]/Count 1>>",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        page(5),
        stream(data, b"/Filter/FlateDecode"),
    ]
    return made(objects)


def loop() -> bytes:
    """A page tree that contains itself."""
    return made(
        [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 9999999>>"]
    )


def nested(depth: int) -> bytes:
    """A page with nested arrays."""
    return made(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox " + b"[" * depth + b"]" * depth + b">>",
        ]
    )


def form_loop() -> bytes:
    """A page with a form that contains itself."""
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 4 0 R>>>>"
    return made(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            (
                b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</XObject<</X 4 0 R>>>>"
                b"/Contents 5 0 R>>"
            ),
            stream(b"/X Do /X Do", form),
            stream(b"/X Do"),
        ]
    )
