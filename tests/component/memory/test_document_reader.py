"""Documents are split with their sources, and a hostile one affects no other."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from benchmarks.pdfs import with_pages
from component.memory.document_reader import (
    DocumentError,
    DocumentLimits,
    DocumentPart,
    DocumentPiece,
    read_data,
    read_document,
    split_parts,
)
from tests.component.memory import pdfs

pytestmark = pytest.mark.anyio

SMALL = DocumentLimits(size=4 << 20, memory=512 << 20, output=1 << 20, cpu_s=4, wait_s=120)


async def test_a_pdf_is_read_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "handbook.PDF"
    path.write_bytes(with_pages(["Holidays: thirty days.", "Größe\nSick leave"]))
    assert await read_document(path) == [
        DocumentPart("page 1", "Holidays: thirty days."),
        DocumentPart("page 2", "Größe\nSick leave"),
    ]


async def test_markdown_is_split_at_its_headings(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(
        "Intro\n\n# One #\n## Two\ntext\n```\n# code\n```\n## Three\nmore\n# Four\nend\n"
    )
    assert await read_document(path) == [
        DocumentPart("", "Intro"),
        DocumentPart("One > Two", "text\n```\n# code\n```"),
        DocumentPart("One > Three", "more"),
        DocumentPart("Four", "end"),
    ]


async def test_html_is_split_at_its_headings_without_scripts(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(
        '<html><head><meta charset="latin-1"><title>no</title></head><body>Vorwort'
        "<h1>Über <b>uns</b></h1><p>Wir sind <i>drei</i>.</p><ul><li>Änne<li>Ben</ul>"
        "<script>evil()</script><h2>Kontakt</h2>Telefon 123<style>no</style>".encode("latin-1")
    )
    assert await read_document(path) == [
        DocumentPart("", "Vorwort"),
        DocumentPart("Über uns", "Wir sind drei.\nÄnne\nBen"),
        DocumentPart("Kontakt", "Telefon 123"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
async def test_text_is_read_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Größe\n\nÄnderung".encode(encoding))
    assert await read_document(path) == [DocumentPart("", "Größe\nÄnderung")]


HOSTILE = {
    "bomb.pdf": (lambda: pdfs.bomb(600 << 20), "memory|processor time|damaged"),
    "loop.pdf": (pdfs.loop, "damaged|nested|processor time|no text"),
    "nested.pdf": (lambda: pdfs.nested(200_000), "nested|damaged|processor time|parser has failed"),
    "form_loop.pdf": (pdfs.form_loop, "no text|nested|damaged|processor time"),
    "nonsense.pdf": (lambda: b"%PDF-1.4 nonsense", "damaged"),
    "none.pdf": (lambda: b"", "damaged"),
    "scan.pdf": (lambda: with_pages(["", ""]), "no text"),
    "deep.html": (lambda: b"<div>" * 400_000, "processor time|memory|no text|parser has failed"),
    "long.txt": (lambda: b"words and words\n" * 100_000, "more than 1 MiB of text"),
    "large.txt": (lambda: b"a" * (5 << 20), "5,242,880 bytes"),
    "book.doc": (lambda: b"PK", "only files that end in .pdf"),
}


VARIANTS = {"none.pdf", "form_loop.pdf"}
"""Those that only `make thorough` reads: the gate has another one of each kind."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if name in VARIANTS else [])
        for name in HOSTILE
    ],
)
async def test_a_hostile_document_fails_alone_with_a_reason(tmp_path: Path, name: str) -> None:
    make, why = HOSTILE[name]
    (tmp_path / name).write_bytes(make())
    limits = msgspec.structs.replace(SMALL, cpu_s=1) if "processor time" in why else SMALL
    with pytest.raises(DocumentError, match=why):
        await read_document(tmp_path / name, limits)


async def test_an_encrypted_pdf_says_so(tmp_path: Path) -> None:
    plain = tmp_path / "plain.pdf"
    plain.write_bytes(with_pages(["secret"]))
    writer = PdfWriter(clone_from=PdfReader(plain))
    writer.encrypt("password", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    with pytest.raises(DocumentError, match="encrypted"):
        await read_document(tmp_path / "locked.pdf")


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "a.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(tmp_path / "b.txt")
    for name in ("a.txt", "b.txt", "c.txt"):
        with pytest.raises(DocumentError):
            await read_document(tmp_path / name)


async def test_a_parser_that_waits_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.setattr("component.memory.document_reader._WORKER", worker)
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(DocumentError, match=r"more than 0\.5 s"):
        await read_document(tmp_path / "a.txt", DocumentLimits(wait_s=0.5))


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("b'{}\\n' * 200_000", "too many parts"),
        ('b\'{"links": [["", ""]%s]}\' % (b\',["",""]\' * 20_000)', "has failed"),
        ("b'[' * 100_000", "has failed"),
    ],
)
async def test_the_output_of_a_compromised_parser_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, reason: str
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(f"import sys\nsys.stdout.buffer.write({output})\n")
    monkeypatch.setattr("component.memory.document_reader._WORKER", worker)
    with pytest.raises(DocumentError, match=reason):
        await read_data("text", b"")


async def test_a_parser_can_only_read_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import fcntl, json, os\n"
        "mode = fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE\n"
        "print(json.dumps({'text': f'{os.read(0, 9).decode()} {mode == os.O_RDONLY}'}))\n"
    )
    monkeypatch.setattr("component.memory.document_reader._WORKER", worker)
    (piece,) = await read_data("text", b"given")
    assert piece.text == "given True"


@given(
    st.lists(
        st.builds(
            DocumentPiece,
            text=st.text(alphabet="ab. \n€", max_size=400).map(lambda text: text * 9),
            page=st.integers(0, 3),
        )
    )
)
def test_parts_are_short_and_contain_the_whole_text(pieces: list[DocumentPiece]) -> None:
    parts = list(split_parts(pieces))
    assert all(part.text.strip() and len(part.text) <= 1201 for part in parts)
    kept = "".join("".join(part.text.split()) for part in parts)
    assert kept == "".join("".join(piece.text.split()) for piece in pieces)
