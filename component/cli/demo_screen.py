"""The output of the demo: the steps, and what is said or each stanza. It fits 80 columns."""

import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Final
from xml.etree.ElementTree import Element, fromstring

import anyio
import click

from xep.binding.escaping import escape_attribute, escape_text
from xep.stanza import Incoming

_COLUMNS: Final = 80
_INDENT = "  "
_WIDTH: Final = _COLUMNS - 2 * len(_INDENT)
_XML = "{http://www.w3.org/XML/1998/namespace"


def xml_lines(element: Element, width: int = _WIDTH, parent_namespace: str = "") -> Iterator[str]:
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
        for line in xml_lines(child, width - len(_INDENT), namespace):
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


_TURNING: Final = "◐◓◑◒"
_TURN_S: Final = 0.2


def _lines(text: str, width: int) -> list[str]:
    """Return the lines of a paragraph; commands and addresses are not broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def title(text: str) -> None:
    """Show the title of a part."""
    click.echo("\n" + click.style("\n".join(_lines(text, _COLUMNS)), bold=True))


def step(who: str, what: str) -> None:
    """Show the next step, and who does it."""
    text = "\n".join(_lines(f"{who} {what}", _COLUMNS))
    click.echo("\n" + click.style(text, fg="cyan", bold=True))


def note(text: str) -> None:
    """Show a note of the demo itself."""
    for number, line in enumerate(_lines(text, _COLUMNS - 4)):
        click.echo(f"  {' ' if number else '…'} {line}")


def paragraph(text: str) -> None:
    """Show an explanation."""
    click.echo("\n".join(_lines(" ".join(text.split()), _COLUMNS)))


def said(who: str, words: str) -> None:
    """Show what somebody says, below each other with a column for the names."""
    first = f"  {who:<8}"
    for line in words.splitlines() or [""]:
        for part in _lines(line, _COLUMNS - len(first)) or [""]:
            click.echo(click.style(first, bold=True) + part)
            first = " " * len(first)


def sent(xml: str) -> None:
    """Show a sent stanza."""
    _show("→", "green", xml)


def came(stanza: Incoming) -> None:
    """Show a received stanza."""
    _show("←", "yellow", stanza.forward())


@asynccontextmanager
async def spinner(text: str) -> AsyncIterator[None]:
    """Show what is waited for, in a line that is erased on a terminal and stays in a pipe."""
    if not sys.stdout.isatty():
        note(text)
        yield
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_turn, text)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
            click.echo("\r\x1b[K", nl=False)


async def _turn(text: str) -> None:
    for sign in cycle(_TURNING):
        click.echo(f"\r  {sign} {text}", nl=False)
        await anyio.sleep(_TURN_S)


def _show(arrow: str, colour: str, xml: str) -> None:
    whole = fromstring(xml)  # noqa: S314 - what our own encoder wrote
    # The namespace of a stanza is omitted.
    namespace = whole.tag[1:].rpartition("}")[0] if whole.tag.startswith("{") else ""
    lines = list(xml_lines(whole, parent_namespace=namespace))
    click.echo(click.style(f"  {arrow} ", fg=colour, bold=True) + lines[0])
    for line in lines[1:]:
        click.echo("    " + line)
