"""Tool calls that models write into the text of an answer, in one of the forms of `call_forms`.

A server that knows the template of its model takes them out of the text; many do not.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from component.models.answer_limits import CALLS, TEXT_CHARACTERS, TooMuchError, too_complex
from component.models.call_forms import (
    FENCE,
    OPENINGS,
    Call,
    NoCallError,
    Parameters,
    blocks,
    read,
)
from component.models.marks import Marks

_UNOPENED: Final = tuple([f'{{{space}"name"' for space in ("", " ", "\n", "\n ", "\n  ", "\n    ")])
"""Beginnings of a call whose opening tag is missing; its closing tag shows that it is one."""
_CLOSING: Final = "</tool_call>"
_MARKS: Final = ("<tool_call>", "[tool_calls]", "<|python_tag|>", *OPENINGS, *_UNOPENED)
_LANGUAGES: Final = ("", "json", "tool_call", "tool_code", "tool")
_LONGESTFENCE: Final = 32


class WrittenCalls:
    """Finds calls at the end of an answer, wherever its pieces are cut.

    A call counts where its form is certain: it names a tool of the request, its arguments are a
    JSON object, nothing but calls follows, and it is not in code. Everything else is text.

    Args:
        tools: the tools of the request by the names that the model knows, each with its JSON
            Schema.
        is_quoted: whether the model was shown this text, so that it may be a quotation.
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
        """Read a call that stands in a frame of its own; None if it does not count. Raises
        TooMuchError.

        Args:
            source: the text of the model from which name and arguments come.
        """
        self._framed += 1
        if self._framed > CALLS:
            raise TooMuchError(f"more than {CALLS} tool calls in one answer")
        try:
            if name not in self._tools or self._is_quoted(source) or too_complex(arguments):
                return None
            return read({"name": name, "arguments": arguments.strip()})
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
        """Read what was held. Raises NoCallError."""
        if too_complex(held):
            raise NoCallError
        if self._within and held[:1] == "{" and _CLOSING not in held.lower():
            raise NoCallError
        empty = True
        for number, (source, call) in enumerate(blocks(held)):
            if number == CALLS:
                raise TooMuchError(f"more than {CALLS} tool calls in one answer")
            if isinstance(call, Parameters):
                name, arguments = call.typed(self._tools.get(call.name, {}))
            else:
                name, arguments = read(call)
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
