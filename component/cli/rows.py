"""Prints the values of commands as tables: rows with columns, or one object with its fields."""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from component.commands import span

_STYLES = {"failed": "red", "rejected": "red", "running": "green", "input-required": "yellow"}
_WHOLE = frozenset(("id", "name", "state", "scope", "of"))
"""Columns that people copy or compare at a glance, so they are never broken."""
_SECONDS = "_s"
"""The suffix of the name of a number of seconds."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z")


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table: a column for each field that any of them has.

    The id of objects with a name is left out: commands accept the name.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if "name" in columns and "id" in columns:
        columns.remove("id")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        cells = (str(row.get(name)) for row in rows)
        whole = name in _WHOLE or any(map(_TIME.fullmatch, cells))
        title = _title(name)
        table.add_column(title, overflow="fold", no_wrap=whole, min_width=len(title))
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    print_table(table)


def print_sheet(sheet: Mapping[str, Any]) -> None:
    """Print one object: a line for each of its fields."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in sheet.items():
        seconds = name.endswith(_SECONDS) and isinstance(value, int)
        table.add_row(_title(name), _cell(span(value) if seconds else value))
    print_table(table)


def print_table(table: Table) -> None:
    """Print a table; in a pipe no line is truncated or padded."""
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _title(name: str) -> str:
    return name.removesuffix(_SECONDS).replace("_", " ").capitalize()


def _cell(value: Any) -> Text:
    text = _cell_text(value)
    # Control characters come from strangers, so they are shown instead of sent to the terminal.
    shown = "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
    return Text(shown, style=_STYLES.get(text, ""))


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{_title(str(key)).lower()} {_cell_text(each)}" for key, each in value.items()
        )
    if isinstance(value, list):
        if all(isinstance(each, Mapping) for each in value):
            return "\n".join(" ".join(map(_cell_text, each.values())) for each in value)
        return ", ".join(map(_cell_text, value))
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    if isinstance(value, str) and (time := _TIME.fullmatch(value)):
        return f"{time[1]} {time[2]}Z"
    return str(value)
