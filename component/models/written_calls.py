"""Tool calls that models write into the text of an answer, in one of the forms of `call_forms`.

A server that knows the template of its model takes them out of the text; many do not.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from component.models.answer_limits import CALLS, TEXT_CHARACTERS, TooMuchError, too_complex
from component.models.call_forms import (
    FENCE,
    OPENINGS,
    Call,
    NoCallError,
    Parameters,
    between,
    call_blocks,
    calls_at,
    checked_call,
)
from component.models.written_text import Marks

_UNOPENED: Final = tuple([f'{{{space}"name"' for space in ("", " ", "\n", "\n ", "\n  ", "\n    ")])
"""Beginnings of a call whose opening tag is missing; its closing tag shows that it is one."""
_CLOSING: Final = "</tool_call>"
_MARKS: Final = (*OPENINGS, *_UNOPENED)
_LANGUAGES: Final = ("", "json", "tool_call", "tool_code", "tool")
_LONGESTFENCE: Final = 32


class WrittenCalls:
    """Finds calls at the end of an answer, wherever its pieces are cut.

    A call counts where its form is certain: it names a tool of the request, its arguments are a
    JSON object, nothing but calls follows, and it is not in code. Everything else is text.

    `tools` are the JSON Schemas of the tools by the names that the model knows; `is_quoted` says
    whether the model was shown a text, so that it may be a quotation.
    """

    def __init__(
        self, tools: Mapping[str, Mapping[str, Any]], is_quoted: Callable[[str], bool]
    ) -> None:
        self._tools = tools
        self._is_quoted = is_quoted
        self._framed = 0
        self._marks: Marks
        self._head: str
        self._held: list[str]
        self._held_characters: int
        self._begun: bool
        self._within: bool
        self._clear()

    def feed(self, text: str) -> str:
        """Take the next piece of the text; give what is certainly no call."""
        if not self._tools:
            return text
        if self._held:
            self._hold(text)
            return ""
        if not self._begun:
            self._head += text
            begun = _begins_as_json(self._head)
            if begun is None:
                return ""
            text, self._head, self._begun = self._head, "", True
            if begun:
                self._hold(text)
                return ""
        return self._scanned(text)

    def end(self) -> tuple[str, list[Call]]:
        """The answer is complete: give the rest of the text, and the calls."""
        text = "" if self._held else self._scanned(self._head, last=True)
        held = "".join(self._held)
        try:
            return text, list(self._calls(held)) if held else []
        except NoCallError:
            return text + held, []
        finally:
            self._clear()

    def framed(self, source: str, name: str, arguments: str) -> Call | None:
        """Read a call that stands in a frame of its own, with the text that it comes from; None if
        it does not count. Raises TooMuchError.
        """
        self._framed += 1
        if self._framed > CALLS:
            raise TooMuchError(f"more than {CALLS} tool calls in one answer")
        try:
            if name not in self._tools or self._is_quoted(source) or too_complex(arguments):
                return None
            return checked_call({"name": name, "arguments": arguments.strip()})
        except NoCallError:
            return None

    def stop(self) -> str:
        """Give the rest of the text, in which no call counts: the server sends calls apart."""
        text = self.withdraw()
        self._tools = {}
        return text

    def withdraw(self) -> str:
        """Give what was held back, which is forgotten."""
        text = "".join((*self._held, self._head, self._marks.rest()))
        self._clear()
        return text

    def _clear(self) -> None:
        self._marks = Marks(_MARKS)
        self._head, self._held, self._held_characters = "", [], 0
        self._begun = not self._tools
        self._within = False  # whether what is held began at a mark

    def _scanned(self, text: str, *, last: bool = False) -> str:
        out = []
        for part, mark in self._marks.feed(text, last=last):
            if self._held:
                self._hold(part + mark)
            else:
                out.append(part)
                if mark:
                    self._within = True
                    self._hold(mark)
        if self._held:
            self._hold(self._marks.rest())
        return "".join(out)

    def _hold(self, text: str) -> None:
        self._held.append(text)
        self._held_characters += len(text)
        if self._held_characters > TEXT_CHARACTERS:
            raise TooMuchError(f"a text of more than {TEXT_CHARACTERS:,} characters")

    def _calls(self, held: str) -> Iterator[Call]:
        if too_complex(held):
            raise NoCallError
        if self._within and held[:1] == "{" and _CLOSING not in held.lower():
            raise NoCallError
        empty = True
        for number, (source, call) in enumerate(call_blocks(held)):
            if number == CALLS:
                raise TooMuchError(f"more than {CALLS} tool calls in one answer")
            if isinstance(call, Parameters):
                name, arguments = call.typed(self._tools.get(call.name, {}))
            else:
                name, arguments = checked_call(call)
            if name not in self._tools or self._is_quoted(source):
                raise NoCallError
            yield name, arguments
            empty = False
        if empty:
            raise NoCallError


def _begins(text: str, word: str) -> bool | None:
    """Whether a text begins with a word; None if it may go on to."""
    return None if text != word and word.startswith(text) else text.startswith(word)


def _begins_as_json(head: str) -> bool | None:
    """Whether an answer begins as JSON or as a fence around it; None if that is not certain yet."""
    bare = head.lstrip()
    if not bare or "```".startswith(bare):
        return None
    if not bare.startswith("```"):
        if bare[0] == "[":
            return bare[1:].lstrip()[:1] == "{" if bare[1:].strip() else None
        return bare[0] == "{" or _begins(bare, "functools[")
    language, newline, rest = bare[3:].partition("\n")
    language = language.strip()
    if len(bare) > _LONGESTFENCE and not FENCE.match(bare):
        return False
    if not newline:
        return None if any(each.startswith(language) for each in _LANGUAGES) else False
    if language not in _LANGUAGES:
        return False
    return rest.lstrip()[0] in "[{" if rest.strip() else None


# -- markup of calls in texts for people -----------------------------------------------------------
#
# A call that could be made is not in the text any more. What is left is a call that is not whole,
# names no tool of the request, or comes in the middle of a text; nobody can read it.

_LONGEST_MARK: Final = max(map(len, OPENINGS))
_BEGINNINGS: Final = "|".join(map(re.escape, OPENINGS))
_HARMONY: Final = (
    r"<\|(?:start|channel)\|>[^<>|\n]{0,80}?(?:<\|channel\|>[^<>|\n]{0,80}?)?\bto=[^\s<>|]++"
)
_MARKED: Final = re.compile(
    r"(?P<code>```(?!tool_c(?:ode|all)\b).*?(?:```|\Z)|`[^`\n]++`)"
    rf"|(?P<harmony>{_HARMONY})"
    rf"|(?P<call>{_BEGINNINGS}|<start_function_call>|<\|tool_call>|<longcat_tool_call>"
    r"|<\|tools_prefix\|>|<\|tool_call:begin\|>|<xai:function_call |<function\("
    r"|<[|\uff5c]tool[_\u2581]outputs?[_\u2581]begin[|\uff5c]>)"
    r"|(?P<bare>\bfunctools(?=\[\{))"
    # Ends of calls without a beginning, and of an answer.
    r"|(?P<end></(?:\w++:)?(?:tool_calls?|function_calls?)>|<[|\uff5c](?:tool[\w\u2581 :]*+end"
    r"|im_end|eot_id|eom_id|end_of_text|endoftext|role_end|(?:start|end)_response"
    r"|end\u2581of\u2581sentence)[|\uff5c]>|<start_function_response>|</s>\Z)",
    re.DOTALL | re.IGNORECASE,
)
_CLOSINGS: Final = re.compile(
    r"</(?:[|\uff5c]DSML[|\uff5c]|\w++:|longcat_)?(?:tool_calls?|toolcall|function_calls?|invoke"
    r"|function)>|<[|\uff5c](?:tool[\w\u2581 :]*+end|/tool_call|end_action|action_end|python_end"
    r"|tools_suffix)[|\uff5c]>"
    r"|<end_function_call>|<tool_call\|>|\n```(?![a-z])",
    re.IGNORECASE,
)
_HARMONY_END: Final = re.compile(r"<\|(?:call|end|return)\|>")
_PAYLOAD: Final = re.compile(r"\s*+(?:[\[{<(\"']|```|[\w.:/-]++\s*+(?:[\[{<>(`:\"]|\Z)|\Z)")
_PART_OF_END: Final = re.compile(r"\s*+(?:<[|\uff5c/]?[^\s<>]*+|`{1,3})\Z")
_BEGUN: Final = re.compile(r"begin[|\uff5c]>\s*+\Z|<tool_call>\s*+\Z", re.IGNORECASE)
_PART_OF_MARK: Final = re.compile(r"(?:<|\[|```)[^\s<>]{3,48}+\Z")
_UNOPENED_CALL: Final = re.compile(r"\{\s*+\"(?:name|type|function)\"\s*+:")


def without_calls(text: str, is_quoted: Callable[[str], bool] = lambda _: False) -> str:
    """Return a text without the markup of calls, except in code and where `is_quoted` says that the
    model was shown it.

    The texts around a call become paragraphs.
    """
    kept: list[str] = []
    at = begin = removed = 0
    while match := _MARKED.search(text, at):
        at = match.end()
        if match["code"]:
            continue
        if removed == CALLS:
            begin = len(text)
            break
        start = match.start()
        end = at if match["end"] else _end(text, match)
        if is_quoted(text[start:end].strip()):
            at = end
            continue
        removed += 1
        if match["end"]:
            start = _unopened(text, begin, start)
        kept.append(text[begin:start])
        at = begin = end
    if cut := _PART_OF_MARK.search(text, begin):
        beginning = cut[0].lower()
        if any(mark.startswith(beginning) for mark in OPENINGS):
            removed += 1
            text = text[: cut.start()]
    if not removed:
        return text
    kept.append(text[begin:])
    return "\n\n".join([part.strip() for part in kept if part.strip()])


def _unopened(text: str, begin: int, end: int) -> int:
    """Where the call begins whose closing tag is at `end`; there, if none does."""
    found = list(_UNOPENED_CALL.finditer(text, begin, end))
    return found[-1].start() if found else end


def _end(text: str, match: re.Match[str]) -> int:
    """Where the markup ends that begins at a mark."""
    if match["harmony"]:
        closing = _HARMONY_END.search(text, match.end())
        return len(text) if closing is None else closing.end()
    end, is_call = _read(text, match.end() if match["bare"] else match.start())
    end = max(end, match.end())
    following = _MARKED.search(text, end)
    closing = _CLOSINGS.search(text, end)
    if closing is not None and (
        following is None or closing.start() <= following.start() or following["code"]
    ):
        return _read(text, closing.end())[0]
    if is_call and _PART_OF_END.match(text, end):
        return len(text)
    if is_call and not _BEGUN.search(text[max(match.start(), end - _LONGEST_MARK) : end]):
        return end
    return len(text) if _PAYLOAD.match(text, end) else end


def _read(text: str, at: int) -> tuple[int, bool]:
    """Read marks and whole calls; return where they end, and whether there was a call."""
    is_call = False
    for _ in range(CALLS):
        at = between(text, at)
        try:
            _, at = calls_at(text, at)
        except NoCallError:
            break
        is_call = True
    return at, is_call
