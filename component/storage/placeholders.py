"""Translation of the placeholder `?` to psycopg's `%s`, so that both databases use `?`."""

import re
from typing import Final

# Texts, names and comments, in which `?` is not a placeholder.
_PARTS: Final = re.compile(
    r"(?P<skip>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)|(?P<mark>\?)", re.DOTALL
)


class Placeholders:
    """Translates statements and caches the results, since a program has few statements."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def translate(self, sql: str) -> str:
        """Return the statement in psycopg's syntax, with or without parameters."""
        known = self._known.get(sql)
        if known is None:
            known = self._known[sql] = _PARTS.sub(_translated, sql.replace("%", "%%"))
        return known


def _translated(match: re.Match[str]) -> str:
    return "%s" if match["mark"] else match[0]
