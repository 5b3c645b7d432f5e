"""`?` becomes `%s`: one way to write parameters for both databases."""

import re
from typing import Final

# What a `?` means nothing in: text, names, comments. And `%`, which psycopg would read.
_PARTS: Final = re.compile(
    r"(?P<skip>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)|(?P<mark>\?)", re.DOTALL
)


class Placeholders:
    """Remembers what it has translated: the statements of a program are few."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def translate(self, sql: str) -> str:
        """Return the statement as psycopg wants it, with parameters or without."""
        known = self._known.get(sql)
        if known is None:
            known = self._known[sql] = _PARTS.sub(_translated, sql.replace("%", "%%"))
        return known


def _translated(match: re.Match[str]) -> str:
    return "%s" if match["mark"] else match[0]
