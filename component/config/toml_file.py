"""The text of a configuration file: `${VAR}` in its strings, and the line of each key.

`${VAR}` is the value of the variable, `${VAR:-default}` uses the default if it is missing or empty
(as in the shell), `$${` is a plain `${`. The value of a variable is not expanded again.

`tomllib` does not keep positions. `lines_of_keys` reads headers and keys line by line and assumes
valid TOML; in the worst case it finds no line or a neighbouring one, but it never raises.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]

_REFERENCE = (
    r"\$\$\{"  # an escaped brace
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|(?P<broken>\$\{)"
)


class ExpansionError(ValueError):
    """A string cannot be expanded; the text continues a sentence that begins with the
    key's name.
    """


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return `text` with every reference replaced.

    Raises ExpansionError if a variable is missing and has no default, or `${` is not a reference.
    """
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match["broken"]:
            raise ExpansionError(
                "has a ${ that is not a variable: write ${NAME} or ${NAME:-default}, and $${ for "
                "a plain ${"
            )
        if (name := match["name"]) is None:
            return "${"
        if match["default"] is not None:
            return variables.get(name) or match["default"]
        if name not in variables:
            missing.append(name)
        return variables.get(name, "")

    expanded = re.sub(_REFERENCE, value, text)
    if missing:
        names = " and ".join(f"${{{name}}}" for name in dict.fromkeys(missing))
        raise ExpansionError(f"uses {names}, which is not set")
    return expanded


def escape(text: str) -> str:
    """Return `text` so that `expand` gives it back unchanged."""
    return text.replace("${", "$${")


def expand_all(
    value: Any, variables: Mapping[str, str], failed: Callable[[Path, str], None], path: Path = ()
) -> Any:
    """Expand every string in a parsed TOML value; keys are not changed.

    A string that cannot be expanded is reported to `failed(path, reason)` and not changed.
    """
    if isinstance(value, str):
        try:
            return expand(value, variables)
        except ExpansionError as error:
            failed(path, str(error))
            return value
    if isinstance(value, dict):
        return {k: expand_all(v, variables, failed, (*path, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [expand_all(v, variables, failed, (*path, i)) for i, v in enumerate(value)]
    return value


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value below `value` that is not a table."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    else:
        yield path


_HEADER = r"^\s*(?P<open>\[\[?)\s*(?P<key>[^\]#]+?)\s*\]"
_KEY = r"""^\s*(?P<key>(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*="""
_PART = r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'"""
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
        if header := re.match(_HEADER, line):
            names = _names(header["key"])
            section = names
            if header["open"] == "[[":
                index = tables.get(names, -1) + 1
                tables[names] = index
                section = (*names, index)
            found.setdefault(names, number)
            found.setdefault(section, number)
        elif key := re.match(_KEY, line):
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
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))
