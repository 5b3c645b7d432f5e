"""Removes the languages of code blocks, which message styling (XEP-0393 §5.1.2) does not have.

Markdown names the language of a block after its first fence, and clients show that word as text.
"""

import re
from typing import Final

_OPENING: Final = r"((?:[ \t]*>)*)([ \t]*)(`{3,}|~{3,})([^`]*)"
"""Matches the first line of a block: quotation markers, indentation, fence, and the rest."""
_TILDES: Final = r"[ \t>]*~{3,}\s*"
"""Matches the last line of a block between tildes."""
_LANGUAGE: Final = r"\s*\S{0,40}?(?:\s*\{[^{}]*\}|\s+[\w.:-]+=(?:\"[^\"]*\"|\S+))*\s*"
"""Matches a language with its attributes: `python`, `{.python}`, `js title="a b.js"`."""


def without_languages(text: str) -> str:
    """Return a text whose code blocks do not begin with the name of a language.

    Other words after the first fence of a block become a line of the block. The content of blocks,
    and text without blocks, is not changed.
    """
    if "```" not in text and "~~~" not in text:
        return text
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines) if re.fullmatch(_TILDES, line)]
    found: list[str] = []
    inside = closing = ""
    for number, line in enumerate(lines):
        if closing and re.match(inside, line):
            if re.fullmatch(closing, line):
                closing = ""
            found.append(line)
            continue
        # If it was open, the quotation that contains it ends here (XEP-0393 §5.1.3).
        closing = ""
        opening = re.fullmatch(_OPENING, line)
        if opening is None:
            found.append(line)
            continue
        quotation, indentation, fence, rest = opening.groups()
        is_language = re.fullmatch(_LANGUAGE, rest) is not None
        if fence[0] == "~" and not (is_language and ends and ends[-1] > number):
            found.append(line)  # a drawing, or a title underlined with tildes
            continue
        inside = rf"(?:[ \t]*>){{{quotation.count('>')}}}"
        is_indented = indentation.removeprefix(" ") if quotation else indentation
        before = r"[ \t]*" if is_indented else " ?" if quotation else ""
        closing = rf"{inside}{before}{fence[0]}{{{len(fence)},}}\s*"
        found.append(f"{quotation}{indentation}{fence}")
        if not is_language:
            found.append(f"{quotation}{indentation}{rest.strip()}")
    return "\n".join(found)
