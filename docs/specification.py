"""Renders the specification to docs/specification.html: `make docs`, from the project's folder.

The document is in the XSF's format; this is a stylesheet of our own for it, in one file. First it
writes the schemas of protocol_schemas into the document's section "XML Schema", so that there is
one place to change them.
"""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "xep" / "protoxep" / "urn-fluux-agent-0.xml"
SCHEMAS = ROOT / "protocol_schemas"
TARGET = ROOT / "docs" / "specification.html"

_SCHEMA = re.compile(
    r"(<code caption='(\w+\.(?:xsd|schema\.json))'><!\[CDATA\[\n).*?(\]\]></code>)", re.DOTALL
)
_SECTION = re.compile(r"section[1-5]")
_KEYWORD = re.compile(r"\b(?:MUST|SHOULD|MAY)(?: NOT)?\b")
_XML = re.compile(r"(?P<c><!--.*?-->)|(?P<t></?[\w:.-]+|/?>)|(?P<s>'[^']*'|\"[^\"]*\")", re.DOTALL)
_SAME = {"p": "p", "ul": "ul", "ol": "ol", "li": "li", "dl": "dl", "dt": "dt", "dd": "dd"}
_SAME |= {"tt": "code", "em": "em", "strong": "strong", "tr": "tr", "td": "td"}

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fdfdfb; --faint: #6a6f76;
  --rule: #d9dbd7; --tint: #f2f3ef; --link: #0b57a4; --must: #9a2a17; --tag: #1f5f3f;
  --string: #7a4a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e5e3; --paper: #17191b; --faint: #9aa0a6;
  --rule: #373b3f; --tint: #212427; --link: #84b9f2; --must: #f0977f; --tag: #8fd0ac;
  --string: #e0b877 } }
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.55;
  font-family: Charter, "Bitstream Charter", Georgia, serif; font-size: 1.05rem }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1.25rem 6rem }
h1, h2, h3, h4, nav, table, figcaption, .meta, .id { font-family: system-ui, sans-serif }
h1 { font-size: 2.1rem; margin: 1rem 0 .25rem } h2 { margin-top: 3rem; font-size: 1.5rem }
h3 { margin-top: 2rem; font-size: 1.2rem } h4 { margin-top: 1.5rem; font-size: 1rem }
h2, h3, h4 { break-after: avoid } h2 { border-top: 1px solid var(--rule); padding-top: 1rem }
a { color: var(--link); text-underline-offset: .15em } :target { background: var(--tint) }
.meta, figcaption, .number { color: var(--faint) } .meta { font-size: .9rem }
nav ol { list-style: none; padding-left: 0; columns: 2; column-gap: 2rem; font-size: .9rem }
nav ol ol { columns: 1; padding-left: 1.5rem; font-size: .95em }
nav li { break-inside: avoid } nav a { text-decoration: none }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .86em }
pre { background: var(--tint); border: 1px solid var(--rule); border-radius: .3rem; margin: .3rem 0;
  padding: .8rem 1rem; overflow-x: auto; line-height: 1.4; font-size: .95rem }
figure { margin: 1.5rem 0 } figcaption { font-size: .85rem } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; width: 100% }
th, td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule);
  padding: .4rem .8rem .4rem 0 }
dt { font-weight: bold; margin-top: .6rem } .key { color: var(--must); font-size: .85em;
  font-family: system-ui, sans-serif; font-weight: 600; letter-spacing: .02em }
.id { font-size: .62rem; margin-left: .25em; color: var(--faint); text-decoration: none;
  white-space: nowrap; vertical-align: super }
.x-t { color: var(--tag) } .x-s { color: var(--string) } .x-c { color: var(--faint) }
@media print { body { font-size: 10pt; background: none } main { max-width: none; padding: 0 }
  pre, table { font-size: 8pt } pre { white-space: pre-wrap; overflow-wrap: anywhere }
  a { color: inherit } figure, tr { break-inside: avoid } nav { break-after: page } }
@media (max-width: 36rem) { nav ol { columns: 1 } }
"""


def read(text: str) -> ET.Element:
    """The document. The legal notice of the XSF is an entity that only its own tools resolve."""
    parser = ET.XMLParser()  # noqa: S314 - it is a file of our own
    parser.entity["LEGALNOTICE"] = ""
    parser.feed(text.encode())
    return parser.close()


def with_schemas(text: str) -> str:
    """The document's text, with the schemas as they are in protocol_schemas."""

    def schema(found: re.Match[str]) -> str:
        return found[1] + (SCHEMAS / found[2]).read_text("utf-8") + found[3]

    return _SCHEMA.sub(schema, text)


def render(document: ET.Element) -> str:
    """The document as one HTML page that is well-formed XML as well."""
    html = ET.Element("html", lang="en")
    header = document.find("header")
    assert header is not None
    head = ET.SubElement(html, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    ET.SubElement(head, "title").text = f"{_header(header, 'title')} (urn:fluux:agent:0)"
    ET.SubElement(head, "style").text = STYLE
    main = ET.SubElement(ET.SubElement(html, "body"), "main")
    ET.SubElement(main, "h1").text = _header(header, "title")
    version, date = _header(header, "revision/version"), _header(header, "revision/date")
    meta = f"urn:fluux:agent:0 · version {version} · {date} · {_header(header, 'status')}"
    ET.SubElement(main, "p", {"class": "meta"}).text = meta
    ET.SubElement(main, "p").text = _header(header, "abstract")
    numbers = dict(_numbers(document))
    contents = ET.SubElement(main, "nav", {"aria-label": "Contents"})
    _contents(document, contents, numbers)
    page = _Page(numbers)
    for section in document.iterfind("section1"):
        page.section(section, main, 2)
    return "<!DOCTYPE html>\n" + ET.tostring(html, encoding="unicode") + "\n"


def _header(header: ET.Element, path: str) -> str:
    return " ".join((header.findtext(path) or "").split())


def _sections(element: ET.Element) -> list[ET.Element]:
    return [child for child in element if _SECTION.fullmatch(child.tag)]


def _numbers(element: ET.Element, before: str = "") -> list[tuple[str, str]]:
    """The number of each section, by its anchor."""
    found = []
    for count, section in enumerate(_sections(element), 1):
        number = f"{before}{count}"
        found += [(section.get("anchor", ""), number), *_numbers(section, number + ".")]
    return found


def _contents(element: ET.Element, parent: ET.Element, numbers: dict[str, str]) -> None:
    sections = _sections(element)
    if not sections or element.tag == "section2":
        return
    entries = ET.SubElement(parent, "ol")
    for section in sections:
        anchor = section.get("anchor", "")
        entry = ET.SubElement(entries, "li")
        link = ET.SubElement(entry, "a", href=f"#{anchor}")
        link.text = f"{numbers[anchor]} {section.get('topic')}"
        _contents(section, entry, numbers)


class _Page:
    """Writes sections, and what stands in them."""

    def __init__(self, numbers: dict[str, str]) -> None:
        self.numbers = numbers
        self.examples = 0

    def section(self, section: ET.Element, parent: ET.Element, level: int) -> None:
        anchor = section.get("anchor", "")
        made = ET.SubElement(parent, "section", id=anchor)
        heading = ET.SubElement(made, f"h{level}")
        ET.SubElement(heading, "span", {"class": "number"}).text = self.numbers[anchor] + " "
        heading[0].tail = section.get("topic")
        for child in section:
            if _SECTION.fullmatch(child.tag):
                self.section(child, made, level + 1)
            else:
                self.block(child, made)

    def block(self, element: ET.Element, parent: ET.Element) -> None:
        if element.tag in ("example", "code"):
            self._listing(element, parent)
        elif element.tag == "table":
            figure = ET.SubElement(parent, "figure")
            ET.SubElement(figure, "figcaption").text = element.get("caption")
            table = ET.SubElement(ET.SubElement(figure, "div", {"class": "scroll"}), "table")
            for row in element:
                self._inside(row, ET.SubElement(table, "tr"))
        elif element.tag == "di":
            for child in element:
                self.block(child, parent)
        else:
            self._inside(element, ET.SubElement(parent, _SAME[element.tag]))

    def _listing(self, element: ET.Element, parent: ET.Element) -> None:
        figure = ET.SubElement(parent, "figure")
        caption = element.get("caption")
        if element.tag == "example":
            self.examples += 1
            caption = f"Example {self.examples}. {caption}"
        if caption:
            ET.SubElement(figure, "figcaption").text = caption
        pre = ET.SubElement(ET.SubElement(figure, "pre"), "code")
        text = (element.text or "").strip("\n")
        if "<" not in text:
            pre.set("style", "white-space: pre-wrap; overflow-wrap: anywhere")
        end = 0
        for token in _XML.finditer(text):
            _add_text(pre, text[end : token.start()])
            ET.SubElement(pre, "span", {"class": f"x-{token.lastgroup}"}).text = token.group()
            end = token.end()
        _add_text(pre, text[end:])

    def _inside(self, element: ET.Element, made: ET.Element, *, normative: bool = False) -> None:
        """Copy text and phrases of ``element`` into ``made``."""
        self._text(made, element.text, normative=normative)
        for child in element:
            if child.tag == "span":
                id_ = child.get("class", "")
                sentence = ET.SubElement(made, "span", id=id_)
                self._inside(child, sentence, normative=True)
                mark = {"class": "id", "href": f"#{id_}"}
                ET.SubElement(sentence, "a", mark).text = id_
            elif child.tag == "link":
                url = child.get("url", "")
                link = ET.SubElement(made, "a", href=url)
                self._inside(child, link)
                if url[1:] in self.numbers:
                    link.set("title", f"section {self.numbers[url[1:]]}")
            elif child.tag in ("li", "di", "dt", "dd"):
                self.block(child, made)
            elif child.tag == "th":
                self._inside(child, ET.SubElement(made, "th", scope="col"))
            else:
                self._inside(child, ET.SubElement(made, _SAME[child.tag]), normative=normative)
            self._text(made, child.tail, normative=normative)

    @staticmethod
    def _text(made: ET.Element, text: str | None, *, normative: bool) -> None:
        end = 0
        for word in _KEYWORD.finditer(text or "") if normative else ():
            _add_text(made, (text or "")[end : word.start()])
            ET.SubElement(made, "span", {"class": "key"}).text = word.group()
            end = word.end()
        _add_text(made, (text or "")[end:])


def _add_text(made: ET.Element, text: str) -> None:
    """Text after whatever stands in ``made``."""
    if len(made):
        made[-1].tail = (made[-1].tail or "") + text
    else:
        made.text = (made.text or "") + text


def main() -> None:
    """Bring the schemas in the document up to date, and render it."""
    text = with_schemas(SOURCE.read_text("utf-8"))
    SOURCE.write_text(text, "utf-8")
    TARGET.write_text(render(read(text)), "utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
