"""Decides what an answer of a model is: calls, a text with directives, or a repetition."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from component.agent import prompt, sentences
from component.agent.untrusted_text import Fence
from component.models.messages import ToolCall, map_text
from component.models.protocol import Completion, ModelRequest
from component.models.written_calls import without_calls

_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cn", "Mn", "Me", "Zl", "Zp", "Zs"))
"""Categories of characters that show nothing by themselves: combining marks need a letter."""
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Fillers of Hangul and an empty pattern of Braille, which are letters and symbols to Unicode."""


def cleaned(completion: Completion, fence: Fence, asked: ModelRequest) -> tuple[Completion, bool]:
    """Return a completion without the word of the fences, which is secret, and without markup of
    calls, which models write in many forms and nobody can read. Quotations of what the model was
    shown are kept.

    The second value says whether there was such markup.
    """
    has_markup = False

    def is_quoted(text: str) -> bool:
        return any(text in one.text for one in asked.messages if one.role in ("user", "tool"))

    def clean(text: str) -> str:
        nonlocal has_markup
        readable = without_calls(text, is_quoted)
        has_markup = has_markup or readable != text
        return fence.out_of(readable)

    parts = [
        msgspec.structs.replace(part, arguments=fence.without_word(part.arguments))
        if isinstance(part, ToolCall)
        else part
        for part in map_text(completion.parts, clean)
    ]
    return msgspec.structs.replace(completion, parts=tuple(parts)), has_markup


def readable(fence: Fence, text: str) -> str:
    """Return the text of an unfinished answer as the person may see it."""
    return fence.out_of(without_calls(text, lambda _quoted: False))


class Verdict(msgspec.Struct, frozen=True):
    """One of three: `calls` to make, an `answer`, or `again`, a note with which to ask once more.

    `notice` is a sentence of the service that follows the answer, or replaces it. `partial` is the
    answer so far, which the next completion continues.
    """

    calls: tuple[ToolCall, ...] = ()
    answer: str = ""
    notice: str = ""
    again: str = ""
    partial: str = ""


def classify(
    completion: Completion, *, partial: str, retried: bool, tools: bool, unread: bool = False
) -> Verdict:
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
            return Verdict(calls=calls)
        if not retried:
            return Verdict(again=prompt.CUT_CALLS)
        return Verdict(answer=said, notice="" if said else sentences.NO_ROOM)
    if completion.finish == "content_filter":
        return Verdict(answer=said, notice="" if said else sentences.FILTERED)
    if not said:
        # A model that ends at the limit without a word has used all its tokens for reasoning.
        if not tools:
            return Verdict(notice=sentences.REASONED if cut_off else sentences.NO_ANSWER)
        if not retried:
            if unread and not cut_off:
                return Verdict(again=prompt.UNREAD_CALL)
            return Verdict(again=prompt.REASONED if cut_off else prompt.EMPTY)
        return Verdict(notice=sentences.REASONED if cut_off else sentences.EMPTY)
    if cut_off:
        if tools and not partial and not retried:
            return Verdict(again=prompt.CONTINUE, partial=text)
        return Verdict(answer=text, notice=sentences.CUT_OFF)
    return Verdict(answer=text)


def is_visible(text: str) -> bool:
    """Return whether a text has a character that can be seen: U+200B, for example, cannot."""
    return any(one not in _BLANK and unicodedata.category(one) not in _INVISIBLE for one in text)


def _whole(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True


SILENT: Final = "[[silent]]"
"""The directive that nothing is sent."""
LONGEST_DELAY_S: Final = 3600.0
"""Maximum delay of an answer, in seconds."""

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_CODE_OR_DIRECTIVE: Final = re.compile(
    r"(?P<code>```.*?(?:```|\Z)|`[^`\n]+`)"
    r"|(?P<space>[ \t]*)\[\[\s*(?:(?P<silent>silent)"
    r"|delay\s*:\s*(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<unit>ms|s|m))\s*\]\]",
    re.DOTALL | re.IGNORECASE,
)


class Directed(msgspec.Struct, frozen=True):
    """An answer without its directives; with `silent` it is not sent."""

    text: str
    silent: bool = False
    delay_s: float = 0.0


def directed(answer: str) -> Directed:
    """Remove the directives from an answer. Of several delays the longest counts."""
    if "[[" not in answer:
        return Directed(answer)
    silent, delay_s, found = False, 0.0, False

    def take(match: re.Match[str]) -> str:
        nonlocal silent, delay_s, found
        if match["code"] is not None:
            return match[0]
        found = True
        if match["silent"]:
            silent = True
        else:
            seconds = float(match["number"]) * _UNITS_S[match["unit"].lower()]
            delay_s = max(delay_s, min(seconds, LONGEST_DELAY_S))
        return ""

    text = _CODE_OR_DIRECTIVE.sub(take, answer)
    return Directed(text.strip() if found else answer, silent, delay_s)


_PATTERN: Final = (
    "You have called {name} {times} times with the same arguments and the same result."
)
_WARNINGS: Final = (
    "{pattern} That does not help. Try something different, or answer with what you have.",
    (
        "{pattern} You have been warned before. Do not make this call again: use another tool or"
        " other arguments, or answer the person now and say what is missing."
    ),
    (
        "{pattern} This is warning number {warnings}. Call no tool any more. Answer the person now"
        " with what you have, and say what you could not do. At most {left} calls of the model are"
        " left in this turn."
    ),
)


class Guard:
    """The calls of one turn.

    Args:
        max_iterations: maximum number of model calls.
        same_call: number of calls with the same arguments and result from which on it warns.

    Attributes:
        asked: how often the model was asked.
        warnings: how often it was warned.
    """

    def __init__(self, max_iterations: int, same_call: int) -> None:
        self.asked = 0
        self.warnings = 0
        self._max_iterations = max_iterations
        self._same_call = same_call
        self._seen: Counter[tuple[str, bytes, bytes]] = Counter()

    @property
    def last(self) -> bool:
        """Whether the next call of the model is the last one that is allowed in this turn."""
        return self.asked + 1 >= self._max_iterations

    def judge(self, calls: Sequence[ToolCall], results: Sequence[str | None]) -> str:
        """Count the calls of one answer with their results; None for a call without a result yet.

        Returns a warning for the model, or an empty string. Callers count `asked` themselves.
        """
        made = {
            (call.name, canonical(call.arguments), _digest(result))
            for call, result in zip(calls, results, strict=True)
            if result is not None
        }
        self._seen.update(made)
        repeated = [(self._seen[each], each[0]) for each in made]
        times, name = max(repeated, default=(0, ""))
        if times < self._same_call:
            return ""
        self.warnings += 1
        warning = _WARNINGS[min(self.warnings, len(_WARNINGS)) - 1]
        return warning.format(
            pattern=_PATTERN.format(name=name, times=times),
            warnings=self.warnings,
            left=max(0, self._max_iterations - self.asked),
        )


def canonical(arguments: str) -> bytes:
    """Return arguments in canonical JSON; unchanged if they are not JSON."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return arguments.strip().encode(errors="surrogatepass")


def _digest(result: str) -> bytes:
    return hashlib.blake2b(result.encode(errors="surrogatepass"), digest_size=16).digest()
