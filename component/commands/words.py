"""Parses the words after a slash command: `/tasks running limit=5`, `/skills "new mails" today`.

Words are assigned to the parameters in their order, then `name=value` to those it names. Quotation
marks group words with spaces. A parameter that is an array takes all remaining words: parameters
after it are given by name only. The text after the word that an outline names as `verbatim` is the
value of one parameter, unchanged.
"""

import re
import shlex

from component.commands.definition import AnyOutline, CommandError, Outline, P

_NAMED = re.compile(r"([A-Za-z_][\w-]*)=(.*)", re.DOTALL)
_LONGEST_SHOWN = 40
# Phones write these automatically instead of the plain ones, each language its own.
_QUOTES = str.maketrans("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '""')
_PAIRS = ("\u201c\u201d", "\u201e\u201c\u201d", "\u201d\u201d", "\u00ab\u00bb", "\u00bb\u00ab",
          "\u2018\u2019", "\u201a\u2018\u2019", "\u2039\u203a", "\u203a\u2039",
          "\u300c\u300d", "\u300e\u300f")  # fmt: skip
"""Quotation marks that open, and those that close what they have opened."""
_QUOTED = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?P<typographic>(?<![^\s=])(?:"""
    + "|".join(f"{pair[0]}[^{pair[0]}]*?[{pair[1:]}]" for pair in _PAIRS)
    + r"))(?!\S)",
    re.DOTALL,
)
"""Matches a text in typographic quotation marks, and one in plain ones, which stays as it is."""


def read_words(outline: Outline[P], text: str) -> P:
    """Return the parameters of a command, from the words after its name.

    Raises CommandError, naming the word that is wrong.
    """
    first, *rest = text.split(maxsplit=1) or [""]
    word = first.casefold()
    if word in outline.verbatim:
        found = (outline.verbatim[word], "".join(rest))
        return outline.read([(next(iter(outline.readers)), word), found])
    return outline.read(_assigned(outline, split(text)))


def split(text: str) -> list[str]:
    """Split a line into words like a shell, and accept the typographic quotes that phones write.

    Raises CommandError if a quotation mark or a backslash has no end.
    """
    try:
        return shlex.split(_QUOTED.sub(_with_plain_quotes, text).translate(_QUOTES))
    except ValueError:
        last = text.rsplit(maxsplit=1)[-1]
        raise CommandError(
            f"A quotation mark or a backslash before {_shown(last)} is incomplete: put"
            ' text that contains one in quotation marks, as in "what\'s new".'
        ) from None


def _with_plain_quotes(found: re.Match[str]) -> str:
    typographic = found["typographic"]
    return found.group() if typographic is None else shlex.quote(typographic[1:-1].strip())


def _assigned(outline: AnyOutline, words: list[str]) -> list[tuple[str, str]]:
    """Return each word with the name of its parameter."""
    names = list(outline.readers)
    pairs: list[tuple[str, str]] = []
    named: str | None = None
    taken = 0
    for word in words:
        if found := _NAMED.fullmatch(word):
            named = found[1]
            if named not in outline.readers:
                raise CommandError(f"/{outline.name} has no {_shown(named)}{_which(names)}", named)
            pairs.append((named, found[2]))
        elif named is not None:
            raise CommandError(
                f"{_shown(word)} comes after {named}=…: write words without a name first, and put"
                " words with spaces in quotation marks."
            )
        elif taken < len(names):
            pairs.append((names[taken], word))
            # One that can have several values takes all the rest.
            taken += not outline.readers[names[taken]].items
        else:
            raise CommandError(
                f"{_shown(word)} is one word too many for /{outline.name}{_which(names)}"
                + (" Put text with spaces in quotation marks." if names else "")
            )
    return pairs


def _which(names: list[str]) -> str:
    return f": its parameters are {', '.join(names)}." if names else ": it has no parameters."


def _shown(word: str) -> str:
    """Return a word of the user, made safe for a sentence."""
    if len(word) > _LONGEST_SHOWN:
        word = word[: _LONGEST_SHOWN - 1] + "…"
    return repr(word)
