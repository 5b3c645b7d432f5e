"""Office documents are read as text, and a hostile one only ends its own process."""

import contextlib
import zlib
from collections.abc import Callable
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.memory import document_worker
from component.memory.content_types import READERS, UNKNOWN, content_type
from component.memory.document_reader import DocumentError, DocumentLimits, read_data
from component.models.contents import media_type_of
from tests.component.memory import office

pytestmark = pytest.mark.anyio

LIMITS = DocumentLimits(memory=512 << 20, output=1 << 20, cpu_s=8, wait_s=120)
READ = document_worker._READERS
READERS_OF = {reader: kind for kind, reader in READERS.items()}
WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), max_size=40)


def read(data: bytes) -> list[tuple[str, str]]:
    """Return the heading and the text of each piece, read in this process."""
    kind = READERS[content_type(data)]
    return [(one.get("heading", ""), one["text"]) for one in READ[kind](data)]


def test_word_is_read_with_its_tables_and_without_what_was_deleted() -> None:
    table = (
        "<w:tbl><w:tr><w:tc><w:tcPr/><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>"
        "<w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<w:p><w:del><w:r><w:delText>secret</w:delText></w:r></w:del>"
        "<w:r><w:t>x</w:t><w:tab/><w:t>y</w:t><w:br/><w:t>z</w:t></w:r></w:p>"
    )
    found = read(office.docx("Dear Juliet,", "hello", xml=table))
    assert found[0] == ("", "Dear Juliet,\nhello\na\tb\nx\ty\nz")


def test_slides_are_read_in_the_order_of_their_numbers() -> None:
    found = read(office.pptx(*(f"text {number}" for number in range(1, 12))))
    assert found[1] == ("slide 2", "text 2")
    assert found[10] == ("slide 11", "text 11")


def test_cells_are_where_their_references_say() -> None:
    rows = (
        "<c r='A1' t='s'><v>0</v></c><c r='C1' t='s'><v>1</v></c>",
        "<c r='B2'><f>1+1</f><v>2</v></c><c r='C2' t='inlineStr'><is><t>milk</t></is></c>",
        "<c r='ZZZ3'><v>9</v></c>",
    )
    ((name, text),) = read(office.xlsx("Prices", rows))
    assert name == "Prices"
    assert text.splitlines()[:2] == ["tea\t\tblack coffee", "\t2\tmilk"]


def test_open_document_is_read() -> None:
    text = (
        "<o:text><t:h>Title</t:h><t:p>one<t:s/>two<t:tab/>three<t:line-break/>four"
        "<o:annotation><t:p>a note</t:p></o:annotation> end</t:p></o:text>"
    )
    assert read(office.opendocument("text", text)) == [("", "Title\none two\tthree\nfour")]


def test_the_rest_of_open_document_is_read() -> None:
    sheet = (
        "<table:table table:name='Prices'><table:table-row>"
        "<table:table-cell><t:p>tea</t:p></table:table-cell>"
        "<table:table-cell table:number-columns-repeated='2'/>"
        "<table:table-cell table:number-columns-repeated='99999999'><t:p>7</t:p></table:table-cell>"
        "</table:table-row></table:table>"
    )
    ((name, cells),) = read(office.opendocument("spreadsheet", sheet))
    assert (name, cells.split("\t")[:4]) == ("Prices", ["tea", "", "", "7"])
    assert len(cells.split("\t")) == document_worker._MOST_COLUMNS
    slides = "<draw:page><t:p>first</t:p></draw:page><draw:page><t:p>second</t:p></draw:page>"
    found = read(office.opendocument("presentation", slides))
    assert found == [("slide 1", "first"), ("slide 2", "second")]


def word(xml: str | bytes) -> bytes:
    """Return a document of Word that consists of this XML."""
    return office.package({"word/document.xml": xml})


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb": (
        lambda: word(b"<a>" + b" " * (64 << 20) + b"</a>"),
        "more than 64 MiB when it is unpacked",
    ),
    "entities": (
        lambda: word("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>"),
        "document type",
    ),
    "cut": (lambda: office.docx()[:60], "damaged"),
    "broken": (lambda: word("<a>"), "damaged"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_office_document_fails_with_a_reason(kind: str) -> None:
    make, why = HOSTILE[kind]
    with pytest.raises(DocumentError, match=why):
        await read_data("docx", make(), LIMITS)


async def test_a_deep_document_has_no_text_or_fails() -> None:
    deep = word("<a>" * 200_000 + "</a>" * 200_000)
    with contextlib.suppress(DocumentError):
        assert not any(each.text for each in await read_data("docx", deep, LIMITS))


async def test_an_office_document_is_read_in_the_confined_process() -> None:
    found = await read_data("docx", office.docx("Grüße"), LIMITS)
    assert [each.text for each in found] == ["Grüße", "", ""]


@given(st.lists(WORDS, max_size=5))
def test_the_paragraphs_of_word_come_back(paragraphs: list[str]) -> None:
    (_, text), *_ = read(office.docx(*paragraphs))
    assert text.split() == " ".join(paragraphs).split()


REFUSALS = (
    *(document_worker.DamagedError, ParseError, BadZipFile, zlib.error),
    *(EOFError, NotImplementedError, OSError, RuntimeError, ValueError),
)


@given(st.binary(max_size=400), st.sampled_from(["docx", "xlsx", "pptx", "odt", "ods", "odp"]))
def test_any_bytes_are_a_document_or_an_error(data: bytes, kind: str) -> None:
    valid = {"docx": office.docx("a"), "odt": office.opendocument("text", "<t:p>a</t:p>")}
    start = valid.get(kind, office.pptx("a"))
    for changed in (data, start[: len(data)] + data, start[: -len(data) or None] + data):
        with contextlib.suppress(*REFUSALS):
            list(READ[kind](changed))


SAMPLES = {
    "image/png": b"\x89PNG\r\n\x1a\n....",
    "image/jpeg": b"\xff\xd8\xff\xe0....",
    "image/gif": b"GIF89a....",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
    "application/pdf": b"%PDF-1.7\n...",
    "audio/ogg": b"OggS\x00\x02" + b"\x00" * 20 + b"\x01\x13OpusHead",
    "video/ogg": b"OggS\x00\x02" + b"\x00" * 20 + b"\x01\x2a\x80theora",
    "audio/mpeg": b"ID3\x03\x00",
    "audio/aac": b"\xff\xf1\x50\x80\x00",
    "audio/wav": b"RIFF\x00\x00\x00\x00WAVEfmt ",
    "audio/mp4": b"\x00\x00\x00\x18ftypM4A \x00\x00",
    "audio/amr": b"#!AMR\n",
    "video/mp4": b"\x00\x00\x00\x18ftypisom....hdlr\x00\x00\x00\x00\x00\x00\x00\x00vide",
    "video/webm": b"\x1a\x45\xdf\xa3....",
    "application/zip": office.package({"a.txt": "a"}),
    "application/gzip": b"\x1f\x8b\x08",
    "text/html": b"\xef\xbb\xbf <!-- c --> <!DOCTYPE html><p>",
    "text/xml": b"<?xml version='1.0'?><a/>",
    "application/json": b' {"a": [1]}\n',
    "text/plain": "BMW drives. %PDF- is how a PDF begins. Größe".encode(),
    READERS_OF["docx"]: office.docx("a"),
    READERS_OF["xlsx"]: office.xlsx("a", ["<c><v>1</v></c>"]),
    READERS_OF["pptx"]: office.pptx("a"),
    READERS_OF["odt"]: office.opendocument("text", ""),
    READERS_OF["ods"]: office.opendocument("spreadsheet", ""),
    READERS_OF["odp"]: office.opendocument("presentation", ""),
    UNKNOWN: b"\x00\x01\x02",
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_file_has_the_type_of_its_content(kind: str) -> None:
    assert content_type(SAMPLES[kind]) == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("Grüße".encode("utf-16"), "text/plain"),
        ("<html><p>Grüße".encode("utf-16"), "text/html"),
        ("Grüße".encode("latin-1"), "text/plain"),
        (b"\xff\xfb\x90\x64\x00\x00", "audio/mpeg"),
        (b"\x00\x00\x00\x18ftypmp42....hdlr\x00\x00\x00\x00\x00\x00\x00\x00soun", "audio/mp4"),
        (b"BM\x36\x00\x00\x00\x00\x00\x00\x00", "image/bmp"),
        (b"", UNKNOWN),
    ],
)
def test_other_forms_of_a_type_are_known(data: bytes, kind: str) -> None:
    assert content_type(data) == kind


@given(st.binary(max_size=300))
def test_every_file_has_one_type(data: bytes) -> None:
    found = content_type(data)
    assert "/" in found
    if data.startswith((b"\x89PNG\r\n\x1a\n", b"GIF8")):
        assert found == media_type_of(data) or found == "text/plain"


@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1))
def test_a_text_is_a_text_in_every_encoding(text: str) -> None:
    if not text.strip():
        return
    for encoding in ("utf-8", "utf-16"):
        assert content_type(text.encode(encoding)).startswith(("text/", "application/")) or (
            media_type_of(text.encode(encoding)) != ""
        )
