"""The words after a slash command: `/tasks running limit=5`, `/skills "new mails" today`.

Words go to the parameters in their order, then `name=value` to those it names. Quotation marks
hold words with spaces together. A parameter that is an array takes all the words left: those that
come after it are given by name only. What follows the word that an outline names as `verbatim` is
the value of one parameter, whatever is in it.
"""

import re
import shlex

from component.commands.definition import AnyOutline, CommandError, Outline, P

_NAMED = re.compile(r"([A-Za-z_][\w-]*)=(.*)", re.DOTALL)
_LONGEST_SHOWN = 40
# Phones write these by themselves where people mean the plain ones.
_QUOTES = str.maketrans("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '""')


def read_words(outline: Outline[P], text: str) -> P:
    """The parameters of a command, from the words after its name.

    Raises CommandError, naming the word that is wrong.
    """
    if outline.verbatim is not None:
        word, param = outline.verbatim
        first, *rest = text.split(maxsplit=1) or [""]
        if first.casefold() == word:
            return outline.read([(next(iter(outline.readers)), word), (param, "".join(rest))])
    return outline.read(_assigned(outline, split(text)))


def split(text: str) -> list[str]:
    """The words of a line as a shell reads them, with the marks that phones write for quotes too.

    Raises CommandError if a quotation mark or a backslash has no end.
    """
    try:
        return shlex.split(text.translate(_QUOTES))
    except ValueError:
        last = text.rsplit(maxsplit=1)[-1]
        raise CommandError(
            f"A quotation mark or a backslash before {_shown(last)} has no end: close it, or put"
            ' what holds one between quotation marks, as in "what\'s new".'
        ) from None


def _assigned(outline: AnyOutline, words: list[str]) -> list[tuple[str, str]]:
    """Each word with the name of its parameter."""
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
                f"{_shown(word)} stands after {named}=…: words without a name come first, and"
                " words with spaces go between quotation marks."
            )
        elif taken < len(names):
            pairs.append((names[taken], word))
            # One that can hold several keeps the place for all the rest.
            taken += not outline.readers[names[taken]].items
        else:
            raise CommandError(
                f"{_shown(word)} is one word too many for /{outline.name}{_which(names)}"
                + (" What holds spaces goes between quotation marks." if names else "")
            )
    return pairs


def _which(names: list[str]) -> str:
    return f": it takes {', '.join(names)}." if names else ": it takes none."


def _shown(word: str) -> str:
    """A word of somebody else's, fit for a sentence."""
    if len(word) > _LONGEST_SHOWN:
        word = word[: _LONGEST_SHOWN - 1] + "…"
    return repr(word)
