"""The process that reads one document: a script that imports no other module of this project.

Its arguments are the kind of document and its limits; the document is its standard input. It is
confined before it starts (`component.sandbox.launch`). On standard output it writes a line of JSON
for each piece of text, `{"text": …, "page": number}` or `{"text": …, "heading": …}`, or
`{"error": …}`. Of a web page the first piece has the title as its heading; the last is
`{"links": [[text, URL]]}`.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

Piece = dict[str, Any]

_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w-]{1,40})", re.IGNORECASE)
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_HTML_HEADING: Final = re.compile(r"h[1-6]")
_NOT_SHOWN: Final = ("script", "style", "template", "noscript", "svg", "head")
_AROUND: Final = (
    "nav, aside, footer, dialog, button, select, textarea, [hidden], [aria-hidden=true],"
    " [role=navigation], [role=banner], [role=contentinfo], [style*='display:none' i],"
    " [style*='display: none' i], [style*='visibility:hidden' i], [style*='visibility: hidden' i]"
)
"""Matches what surrounds the text of a page, and what browsers do not show."""
_MAIN: Final = ("main, [role=main]", "article")
_LINKS: Final = 200
_LONGEST_LINK: Final = 2_000
_MARKS: Final = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_BLOCKS: Final = frozenset(
    [
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset"),
        *("figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "nav", "ol"),
        *("p", "pre", "section", "table", "td", "th", "tr", "ul"),
    ]
)


_MOST_UNPACKED: Final = 64 << 20
"""Bytes of one office document that are unpacked."""
_MOST_COLUMNS: Final = 1_000
_LONGEST_HEADING: Final = 200
_SPACES: Final = {
    "tab": "\t",
    "br": "\n",
    "cr": "\n",
    "line-break": "\n",
    "s": " ",
    "p": "\n",
    "h": "\n",
    "tr": "\n",
    "table-row": "\n",
    "tc": "\t",
    "table-cell": "\t",
}
_LEFT_OUT: Final = ("Fallback", "annotation", "tracked-changes")


class DamagedError(Exception):
    """A document cannot be read; the message completes "handbook.docx cannot be read: "."""


def main() -> None:
    """Read the document and write its text."""
    kind, memory, output = sys.argv[1], *map(int, sys.argv[2:4])
    left = output
    try:
        for piece in _READERS[kind](sys.stdin.buffer.read()):
            line = json.dumps(piece).encode() + b"\n"
            left -= len(line)
            if left < 0:
                _write({"error": f"it has more than {output >> 20} MiB of text"})
                return
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    except MemoryError:
        _write({"error": f"reading it takes more than {memory >> 20} MiB of memory"})
    except RecursionError:
        _write({"error": "it is nested too deeply"})
    except ImportError:
        _write(
            {"error": "reading it needs the extra: pip install 'xmpp-agent-component[documents]'"}
        )
    except DamagedError as error:
        _write({"error": str(error)})
    except Exception as error:  # noqa: BLE001 - all errors of a parser are about this document
        _write({"error": f"it is damaged: {type(error).__name__}: {error}"[:500]})


def pdf(data: bytes) -> Iterator[Piece]:
    """Yield the text of each page."""
    import logging  # noqa: PLC0415 - only here

    import pypdf  # noqa: PLC0415 - of an extra, and slow to import

    logging.disable()  # warnings about the document are not useful
    reader = pypdf.PdfReader(BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        yield {"error": "it is encrypted"}
        return
    for number, page in enumerate(reader.pages, 1):
        yield {"text": page.extract_text(), "page": number}


def html(data: bytes) -> Iterator[Piece]:
    """Yield the text under each heading."""
    tree = _parsed(data)
    tree.strip_tags(list(_NOT_SHOWN))
    yield from _under_headings(tree.root)


def page(data: bytes) -> Iterator[Piece]:
    """Yield the title of a web page, its main text under each heading, and its links."""
    tree = _parsed(data)
    title = tree.css_first("title")
    yield {"heading": "" if title is None else " ".join(title.text().split())}
    tree.strip_tags(list(_NOT_SHOWN))
    for node in tree.css(_AROUND):
        node.decompose()
    root = tree.body or tree.root
    for selector in _MAIN:
        # If there are several, the page is a list, and all of it is the main text.
        found = tree.css(selector)
        if len(found) == 1 and len(found[0].text(deep=True).split()) > 20:
            root = found[0]
            break
    yield from _under_headings(root)
    links = [] if root is None else root.css("a[href]")
    targets = [
        [" ".join(link.text(deep=True).split())[:200], link.attributes.get("href") or ""]
        for link in links[:_LINKS]
    ]
    yield {"links": [each for each in targets if 0 < len(each[1]) <= _LONGEST_LINK]}


def _parsed(data: bytes) -> Any:
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - of an extra

    found = _CHARSET.search(data[:2048])
    return LexborHTMLParser(decoded(data, found[1].decode("ascii", "replace") if found else ""))


def _under_headings(root: Any) -> Iterator[Piece]:
    heading, text = "", []
    of_heading = 0  # text nodes still to come that belong to the heading
    for node in () if root is None else root.traverse(include_text=True):
        tag = node.tag
        if tag == "-text":
            if of_heading:
                of_heading -= 1
            else:
                text.append(node.text_content or "")
        elif tag is not None and _HTML_HEADING.fullmatch(tag):
            yield {"text": _spaced("".join(text)), "heading": heading}
            heading, text = " ".join(node.text(deep=True).split()), []
            inner = node.traverse(include_text=True)
            of_heading = sum(1 for each in inner if each.tag == "-text")
        elif tag in _BLOCKS:
            text.append("\n\n")
    yield {"text": _spaced("".join(text)), "heading": heading}


def markdown(data: bytes) -> Iterator[Piece]:
    """Yield the text under each heading, with the path of its headings."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in decoded(data).splitlines():
        mark = line.lstrip()[:3]
        if mark in {"```", "~~~"}:
            fence = "" if mark == fence else fence or mark
        found = None if fence else _HEADING.match(line)
        if found is None:
            lines.append(line)
            continue
        yield {"text": "\n".join(lines), "heading": " > ".join(title for _, title in path)}
        level = len(found[1])
        path = [*((deep, title) for deep, title in path if deep < level), (level, found[2])]
        lines = []
    yield {"text": "\n".join(lines), "heading": " > ".join(title for _, title in path)}


def plain(data: bytes) -> Iterator[Piece]:
    """Yield the text."""
    yield {"text": decoded(data), "heading": ""}


class Package:
    """An office document: a ZIP archive of XML files, of which a bounded part is unpacked."""

    def __init__(self, data: bytes) -> None:
        self._archive = zipfile.ZipFile(BytesIO(data))
        self._left = _MOST_UNPACKED

    def numbered(self, pattern: str) -> list[str]:
        """Return the names that match a pattern, in the order of the number that it captures."""
        names = self._archive.namelist()
        found = [
            (int(each[1]), each[0]) for each in map(re.compile(pattern).fullmatch, names) if each
        ]
        return [name for _, name in sorted(found)]

    def tree(self, name: str) -> Element:
        """Return the root of an XML file; an empty one if there is no such file.

        A document type is refused: it can define entities, which grow or lead elsewhere.
        """
        try:
            with self._archive.open(name) as file:
                data = file.read(self._left + 1)
        except KeyError:
            return Element("none")
        self._left -= len(data)
        if self._left < 0:
            raise DamagedError(f"it has more than {_MOST_UNPACKED >> 20} MiB when it is unpacked")
        if b"<!DOCTYPE" in data or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DamagedError("its XML has a document type, or is not UTF-8")
        root = ElementTree.fromstring(data)  # noqa: S314 - it has no entities, and this process is confined
        for parent in list(root.iter()):
            for child in [one for one in parent if _local(one) in _LEFT_OUT]:
                parent.remove(child)
        return root


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _of(root: Element, *names: str) -> list[Element]:
    return [each for each in root.iter() if _local(each) in names]


def _attribute(element: Element, name: str) -> str:
    found = [value for key, value in element.items() if key.rpartition("}")[2] == name]
    return found[0] if found else ""


def docx(data: bytes) -> Iterator[Piece]:
    """Yield the text of a document of Word, then its notes."""
    package = Package(data)
    for name in ("document", "footnotes", "endnotes"):
        yield {"text": _office_text(package.tree(f"word/{name}.xml")), "heading": ""}


def pptx(data: bytes) -> Iterator[Piece]:
    """Yield the text of each slide of PowerPoint."""
    package = Package(data)
    for number, name in enumerate(package.numbered(r"ppt/slides/slide(\d{1,6})\.xml"), 1):
        yield {"text": _office_text(package.tree(name)), "heading": f"slide {number}"}


def _office_text(root: Element) -> str:
    """Return the texts of Word and PowerPoint, which are in elements `t`."""
    return _lines(
        (_local(each), each.text or "") for each in root.iter() if _local(each) != "tblGrid"
    )


def _lines(elements: Iterable[tuple[str, str]]) -> str:
    """Join texts and what separates them; a cell begins with no line of its own."""
    text, in_cell = [], False
    for name, content in elements:
        if name == "t":
            text.append(content)
        elif not (name == "p" and in_cell):
            text.append(_SPACES.get(name, ""))
        in_cell = name in ("tc", "table-cell") or (in_cell and name not in ("p", "h"))
    lines = (line.strip() for line in "".join(text).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def xlsx(data: bytes) -> Iterator[Piece]:
    """Yield the rows of each sheet of Excel."""
    package = Package(data)
    strings = [
        "".join(each.text or "" for each in _of(one, "t"))
        for one in _of(package.tree("xl/sharedStrings.xml"), "si")
    ]
    names = [_attribute(one, "name") for one in _of(package.tree("xl/workbook.xml"), "sheet")]
    for at, name in enumerate(package.numbered(r"xl/worksheets/sheet(\d{1,6})\.xml")):
        rows = []
        for row in _of(package.tree(name), "row"):
            cells: list[str] = []
            for cell in row:
                before = min(_column(_attribute(cell, "r")), _MOST_COLUMNS)
                cells += [""] * (before - len(cells))
                value = "".join(each.text or "" for each in _of(cell, "v", "t"))
                if _attribute(cell, "t") == "s" and value.isdecimal():
                    value = strings[int(value)] if int(value) < len(strings) else ""
                cells.append(value)
            rows.append(cells)
        yield _table(names[at] if at < len(names) else f"sheet {at + 1}", rows)


def _column(reference: str) -> int:
    """Return the number of columns before that of a cell such as `C7`."""
    found = 0
    for letter in reference.rstrip("0123456789").upper()[:3]:
        found = found * 26 + ord(letter) - ord("A") + 1
    return max(0, found - 1)


def ods(data: bytes) -> Iterator[Piece]:
    """Yield the rows of each table of an OpenDocument spreadsheet."""
    for table in _of(Package(data).tree("content.xml"), "table"):
        rows = []
        for row in _of(table, "table-row"):
            cells: list[str] = []
            for cell in _of(row, "table-cell", "covered-table-cell"):
                repeated = _attribute(cell, "number-columns-repeated")
                value = " ".join("".join(one.itertext()) for one in _of(cell, "p"))
                times = int(repeated) if repeated.isdecimal() else 1
                cells += [value] * min(times, _MOST_COLUMNS - len(cells))
            rows.append(cells)
        yield _table(_attribute(table, "name"), rows)


def _table(name: str, rows: Iterable[list[str]]) -> Piece:
    """Return a table with a row on each line; empty cells at the end of a row are left out."""
    lines = ("\t".join(" ".join(cell.split()) for cell in row).rstrip() for row in rows)
    return {"text": "\n".join(filter(None, lines)), "heading": name[:_LONGEST_HEADING]}


def odt(data: bytes) -> Iterator[Piece]:
    """Yield the text of an OpenDocument text."""
    yield {"text": _open_text(Package(data).tree("content.xml")), "heading": ""}


def odp(data: bytes) -> Iterator[Piece]:
    """Yield the text of each slide of an OpenDocument presentation."""
    for number, slide in enumerate(_of(Package(data).tree("content.xml"), "page"), 1):
        yield {"text": _open_text(slide), "heading": f"slide {number}"}


def _open_text(root: Element) -> str:
    """Return the texts of OpenDocument, which are in paragraphs and headings."""
    found: list[tuple[str, str]] = []
    known: set[Element] = set()
    for each in root.iter():
        name = _local(each)
        if name in ("s", "tab", "line-break"):
            each.text = _SPACES[name]
    for each in root.iter():
        name = _local(each)
        if name in ("p", "h") and each not in known:
            known.update(each.iter())
            found += [(name, ""), ("t", "".join(each.itertext()))]
        elif name in ("table-row", "table-cell"):
            found.append((name, ""))
    return _lines(found)


def decoded(data: bytes, charset: str = "") -> str:
    """Decode a text in the encoding of its mark, a given one, UTF-8, or Windows-1252."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    for name in (charset, "utf-8"):
        try:
            return data.decode(name) if name else data.decode()
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("cp1252", "replace")


def _spaced(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.split("\n\n"))
    return "\n\n".join(line for line in lines if line)


def _write(piece: Piece) -> None:
    sys.stdout.buffer.write(json.dumps(piece).encode() + b"\n")
    sys.stdout.buffer.flush()


_READERS: Final = {
    "pdf": pdf,
    "html": html,
    "markdown": markdown,
    "page": page,
    "text": plain,
    "docx": docx,
    "xlsx": xlsx,
    "pptx": pptx,
    "odt": odt,
    "ods": ods,
    "odp": odp,
}

if __name__ == "__main__":
    main()
