"""Decides what a completion is: calls, an answer, or a reason to ask the model once more."""

import unicodedata
from typing import Final

import msgspec

from component.agent import prompt, sentences
from component.models.messages import ToolCall
from component.models.protocol import Completion

_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cn", "Mn", "Me", "Zl", "Zp", "Zs"))
"""Categories of characters that show nothing by themselves: combining marks need a letter."""
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Fillers of Hangul and an empty pattern of Braille, which are letters and symbols to Unicode."""


class Weighed(msgspec.Struct, frozen=True):
    """One of three: `calls` to make, an `answer`, or `again`, a note with which to ask once more.

    `notice` is a sentence of the service that follows the answer, or replaces it. `partial` is the
    answer so far, which the next completion continues.
    """

    calls: tuple[ToolCall, ...] = ()
    answer: str = ""
    notice: str = ""
    again: str = ""
    partial: str = ""


def weigh(
    completion: Completion, *, partial: str, retried: bool, tools: bool, unread: bool = False
) -> Weighed:
    """Decide what a completion is.

    `partial` is the beginning of an answer that was cut off, `retried` says whether the model was
    already asked again in this turn, `tools` whether it may call tools; if not, this was its last
    completion, `unread` whether it had the markup of a call that could not be made, which
    was removed. If the answer is empty or cut off, the model is asked once more; after that the
    person gets the incomplete answer, or a sentence of the service. Nothing is called if the
    arguments of one of the calls may not be whole.
    """
    text = partial + completion.paragraphs
    cut_off = completion.finish == "length"
    calls = completion.tool_calls if tools and completion.finish != "content_filter" else ()
    said = text if is_visible(text) else ""
    if calls:
        doubtful = cut_off or not all(call.arguments for call in calls)
        if not doubtful or all(_whole(call.arguments) for call in calls):
            return Weighed(calls=calls)
        if not retried:
            return Weighed(again=prompt.CUT_CALLS)
        return Weighed(answer=said, notice="" if said else sentences.NO_ROOM)
    if completion.finish == "content_filter":
        return Weighed(answer=said, notice="" if said else sentences.FILTERED)
    if not said:
        # A model that ends at the limit without a word has used all its tokens for reasoning.
        if not tools:
            return Weighed(notice=sentences.REASONED if cut_off else sentences.NO_ANSWER)
        if not retried:
            if unread and not cut_off:
                return Weighed(again=prompt.UNREAD_CALL)
            return Weighed(again=prompt.REASONED if cut_off else prompt.EMPTY)
        return Weighed(notice=sentences.REASONED if cut_off else sentences.EMPTY)
    if cut_off:
        if tools and not partial and not retried:
            return Weighed(again=prompt.CONTINUE, partial=text)
        return Weighed(answer=text, notice=sentences.CUT_OFF)
    return Weighed(answer=text)


def is_visible(text: str) -> bool:
    """Return whether a text has a character that can be seen: U+200B, for example, cannot."""
    return any(one not in _BLANK and unicodedata.category(one) not in _INVISIBLE for one in text)


def _whole(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True
