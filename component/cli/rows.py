"""Values that a command gave, as tables: rows with columns, or one thing with its fields."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_STYLES = {"failed": "red", "rejected": "red", "running": "green", "input-required": "yellow"}


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table: a column for each field that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        # An id is there to be copied, so it is never cut.
        table.add_column(_title(name), overflow="fold", no_wrap=name == "id")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    _console().print(table)


def print_sheet(sheet: Mapping[str, Any]) -> None:
    """Print one thing: a line for each of its fields."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in sheet.items():
        table.add_row(_title(name), _cell(value))
    _console().print(table)


def _console() -> Console:
    # In a pipe a line is not cut to a width that nobody has.
    return Console(width=None if sys.stdout.isatty() else 200)


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _cell(value: Any) -> Text:
    text = _said(value)
    # What a terminal would act on comes from others, and is shown instead.
    shown = "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
    return Text(shown, style=_STYLES.get(text, ""))


def _said(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_title(str(key)).lower()} {_said(each)}" for key, each in value.items())
    if isinstance(value, list):
        if all(isinstance(each, Mapping) for each in value):
            return "\n".join(" ".join(map(_said, each.values())) for each in value)
        return ", ".join(map(_said, value))
    return str(value)
