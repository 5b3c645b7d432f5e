"""Finds the line of each key in a TOML file, for error sentences.

`tomllib` does not keep positions. This module reads headers and keys line by line and assumes valid
TOML; in the worst case it finds no line or a neighbouring one, but it never raises.
"""

import re

_HEADER = re.compile(r"^\s*(?P<open>\[\[?)\s*(?P<key>[^\]#]+?)\s*\]")
_KEY = re.compile(r"""^\s*(?P<key>(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_LONG_QUOTES = ('"""', "'''")
# Everything that may contain or start a string: long quotes first, because an empty string looks
# like half of one.
_TOKEN = re.compile(r"""\"{3}|'{3}|"(?:\\.|[^"\\])*"|'[^']*'|#.*""")


def lines_of_keys(text: str) -> dict[tuple[str | int, ...], int]:
    """Return the line, counted from 1, of every key and header found in `text`.

    A path is the key's names from the root down, with an index after the name of an array of
    tables: `("policy", "rules", 0, "skills")`.
    """
    found: dict[tuple[str | int, ...], int] = {}
    tables: dict[tuple[str, ...], int] = {}
    section: tuple[str | int, ...] = ()
    open_quote: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        inside = open_quote is not None
        open_quote = _quote_after(line, open_quote)
        if inside:
            continue
        if header := _HEADER.match(line):
            names = _names(header["key"])
            section = names
            if header["open"] == "[[":
                index = tables.get(names, -1) + 1
                tables[names] = index
                section = (*names, index)
            found.setdefault(names, number)
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            path = section
            for name in _names(key["key"]):
                path = (*path, name)
                found.setdefault(path, number)
    return found


def line_of(path: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int]) -> int | None:
    """Return the line of `path`, or of the nearest key above it, or None."""
    while path:
        if (line := lines.get(path)) is not None:
            return line
        path = path[:-1]
    return None


def _quote_after(line: str, open_quote: str | None) -> str | None:
    """Return the long quote that is still open at the end of `line`."""
    position = 0
    while True:
        if open_quote is not None:
            if (end := line.find(open_quote, position)) < 0:
                return open_quote
            open_quote, position = None, end + 3
        elif (token := _TOKEN.search(line, position)) is not None:
            position = token.end()
            if token[0] in _LONG_QUOTES:
                open_quote = token[0]
        else:
            return None


def _names(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(key))
