"""XML laid out for people: one element a line, namespaces where they change."""

import textwrap
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from xep.binding.escaping import escape_attribute, escape_text

_INDENT = "  "
_XML = "{http://www.w3.org/XML/1998/namespace"


def layout(element: Element, width: int = 100, parent_namespace: str = "") -> Iterator[str]:
    """Yield the lines that show ``element``; a long start tag continues on the next line.

    White space is added between elements, so the output is for reading only.
    """
    namespace, _, local = element.tag.rpartition("}")
    namespace = namespace.removeprefix("{")
    head = f"<{local}"
    if namespace != parent_namespace:
        head += f" xmlns='{escape_attribute(namespace)}'"
    for name, value in element.items():
        of, _, short = name.rpartition("}")
        spelled = f"xml:{short}" if of == _XML else name
        head += f" {spelled}='{escape_attribute(value)}'"
    text = escape_text((element.text or "").strip())
    if not len(element):
        whole = f"{head}>{text}</{local}>" if text else head + "/>"
        yield from _wrapped(whole, width)
        return
    yield from _wrapped(head + ">", width)
    if text:
        yield from _wrapped(_INDENT + text, width)
    for child in element:
        for line in layout(child, width - len(_INDENT), namespace):
            yield _INDENT + line
    yield f"</{local}>"


def _wrapped(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        if len(line) <= width:
            yield line
            continue
        yield from textwrap.wrap(
            line,
            width,
            subsequent_indent=_INDENT * 2,
            break_long_words=False,
            break_on_hyphens=False,
        )
