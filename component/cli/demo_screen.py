"""The output of the demo: the steps, and each stanza sent and received."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Final
from xml.etree.ElementTree import fromstring

import anyio
import click

from component.cli.xml_view import layout
from xep.stanza import Incoming

_TURNING: Final = "◐◓◑◒"
_TURN_S: Final = 0.2


def title(text: str) -> None:
    """Show the title of a part."""
    click.echo("\n" + click.style(text, bold=True))


def step(who: str, what: str) -> None:
    """Show the next step, and who does it."""
    click.echo("\n" + click.style(f"{who} {what}", fg="cyan", bold=True))


def note(text: str) -> None:
    """Show a note between the stanzas."""
    click.echo(f"  … {text}")


def sent(xml: str) -> None:
    """Show a sent stanza."""
    _show("→", "green", xml)


def came(stanza: Incoming) -> None:
    """Show a received stanza."""
    _show("←", "yellow", stanza.forward())


@asynccontextmanager
async def waiting(text: str) -> AsyncIterator[None]:
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
    lines = list(layout(whole, parent_namespace=namespace))
    click.echo(click.style(f"  {arrow} ", fg=colour, bold=True) + lines[0])
    for line in lines[1:]:
        click.echo("    " + line)
