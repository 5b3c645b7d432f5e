"""PDF files of text, without a library that writes them."""

from collections.abc import Sequence


def made(objects: Sequence[bytes], root: int = 1) -> bytes:
    """A PDF of these objects, the first of which has the number 1."""
    data = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % place for place in places)
    data += b"trailer\n<</Size %d/Root %d 0 R>>\n" % (len(objects) + 1, root)
    return bytes(data + b"startxref\n%d\n%%%%EOF\n" % start)


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream with these entries in its dictionary."""
    return b"<<%s/Length %d>>\nstream\n%s\nendstream" % (entries, len(data), data)


def with_pages(texts: Sequence[str]) -> bytes:
    """A PDF with a page for each text."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * at) for at in range(len(texts)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(texts)),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for at, text in enumerate(texts):
        objects.append(page(5 + 2 * at))
        lines = text.encode("cp1252").split(b"\n")
        shown = b" T* ".join(b"(%s) Tj" % line for line in lines)
        objects.append(stream(b"BT /F1 12 Tf 14 TL 72 720 Td %s ET" % shown))
    return made(objects)


def page(contents: int) -> bytes:
    """A page whose contents are the object of this number."""
    return (
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>"
        b"/Contents %d 0 R>>" % contents
    )
