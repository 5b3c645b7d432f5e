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
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

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
    return LexborHTMLParser(_decoded(data, found[1].decode("ascii", "replace") if found else ""))


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
    for line in _decoded(data).splitlines():
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
    yield {"text": _decoded(data), "heading": ""}


def _decoded(data: bytes, charset: str = "") -> str:
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


_READERS: Final = {"pdf": pdf, "html": html, "markdown": markdown, "page": page, "text": plain}

if __name__ == "__main__":
    main()
