"""Texts with placeholders in braces, such as `/cities/{city}`; `{{` and `}}` stand for a brace."""

import re
from typing import Final

from component.settings.kinds import refusal

_TOKEN: Final = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")


def pieces_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return the text as pairs of a literal text and the placeholder after it, which is empty after
    the last one. Raises ValueError for a single brace.
    """
    found: list[tuple[str, str]] = []
    literal, end = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[end : token.start()]
        end = token.end()
        if token[0] in ("{{", "}}"):
            literal += token[0][0]
        elif token[1] is None:
            raise ValueError(f"a single {token[0]}: write {token[0] * 2} for a brace")
        else:
            found.append((literal, token[1].strip()))
            literal = ""
    return (*found, (literal + text[end:], ""))


def names_in(value: object) -> set[str]:
    """Return the placeholders in all texts of a JSON value. Raises a refusal."""
    match value:
        case str():
            try:
                return {name for _, name in pieces_of(value) if name}
            except ValueError as error:
                raise refusal(f"has {error}") from None
        case dict():
            return {name for each in value.values() for name in names_in(each)}
        case list() | tuple():
            return {name for each in value for name in names_in(each)}
    return set()
