"""Markup that models write into their text, found while the text arrives: reasoning between tags,
and messages of OpenAI's Harmony format.

gpt-oss writes that format, and some servers pass it on as text
(https://cookbook.openai.com/articles/openai-harmony). An answer consists of messages, and a header
says for whom each is:

| message | meaning |
|---|---|
| `<|channel|>analysis<|message|>…<|end|>` | reasoning |
| `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>` | a tool call |
| `<|channel|>commentary<|message|>…<|end|>`, `<|channel|>final<|message|>…<|return|>` | said |

`<|start|>assistant` stands before each message but the first; the recipient may follow it.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

_FENCE: Final = "```"


@functools.cache
def _tables(marks: tuple[str, ...]) -> tuple[re.Pattern[str], frozenset[str], frozenset[str], int]:
    """Return a pattern of marks, their beginnings, first characters and greatest length."""
    alternatives = "|".join(map(re.escape, marks))
    pattern = re.compile(f"`?({alternatives})|{_FENCE}", re.IGNORECASE | re.ASCII)
    whole = (_FENCE, *marks, *(f"`{mark}" for mark in marks))
    beginnings = frozenset(each[:end].lower() for each in whole for end in range(1, len(each)))
    first = frozenset(each[0].lower() for each in whole)
    return pattern, beginnings, first, max(map(len, beginnings))


class Marks:
    """Splits a text that arrives in pieces at certain marks, which may span pieces.

    A mark in code is text: inside a fence of Markdown, or right after a backtick. Upper and lower
    case are the same.

    Attributes:
        in_code: whether code is recognized. In reasoning it is not: fences may lack their end.
            Setting it ends a fence.
    """

    def __init__(self, marks: Iterable[str]) -> None:
        tables = _tables(tuple(marks))
        self._pattern, self._beginnings, self._first, self._longest = tables
        self._rest = ""
        self._fenced = False
        self._in_code = True

    @property
    def in_code(self) -> bool:
        """See above."""
        return self._in_code

    @in_code.setter
    def in_code(self, value: bool) -> None:
        self._in_code, self._fenced = value, False

    def feed(self, piece: str, *, last: bool = False) -> Iterator[tuple[str, str]]:
        """Process the next piece. Yields texts, each with the mark that follows it, or an empty
        mark.

        The beginning of a mark is held back until the next piece, unless this is the `last` one.
        """
        text, self._rest = self._rest + piece, ""
        if text and self._first.isdisjoint(text):  # nearly always
            yield text, ""
            return
        begin = at = 0
        held = len(text)
        while match := self._pattern.search(text, at):
            if match[1] is None and not (last or self._fenced) and self._may_go_on(text, match):
                held = match.start()
                break
            at = match.end()
            in_code = self._in_code and (self._fenced or match.start() < match.start(1))
            if match[1] is None or (in_code and match[1].startswith(_FENCE)):
                self._fenced ^= self._in_code
            elif not in_code:
                yield text[begin : match.start(1)], match[1]
                begin = at
        end = held if last or held < len(text) else held - self._unfinished(text, at)
        self._rest = text[end:]
        if end > begin:
            yield text[begin:end], ""

    def rest(self) -> str:
        """Return and clear the text that is held back."""
        text, self._rest = self._rest, ""
        return text

    def _may_go_on(self, text: str, fence: re.Match[str]) -> bool:
        """Whether a fence may be the beginning of a mark, such as that of `tool_code`."""
        rest = text[fence.start() : fence.start() + self._longest + 1]
        return rest.lower() in self._beginnings

    def _unfinished(self, text: str, at: int) -> int:
        """The length of the end of the text that may be the beginning of a mark."""
        tail = text[max(at, len(text) - self._longest) :]
        if self._first.isdisjoint(tail):
            return 0
        for start in range(len(tail)):
            if tail[start:].lower() in self._beginnings:
                return len(tail) - start
        return 0


_OPENING: Final = (
    "<think>",
    "<thinking>",
    "<thought>",
    "<seed:think>",
    "[think]",
    "<|start_thinking|>",
)
_CLOSING: Final = (
    "</think>",
    "</thinking>",
    "</thought>",
    "</seed:think>",
    "[/think]",
    "<|end_thinking|>",
)

ThoughtPiece: TypeAlias = tuple[Literal["said", "thought", "unsaid"], str]
"""A piece of what is said, or of reasoning. `unsaid`: all that was said so far is reasoning."""


class WrittenThoughts:
    """Separates reasoning from what is said, wherever the pieces of the answer are cut.

    Reasoning that does not end is reasoning up to the end of the answer. A closing tag without an
    opening one ends reasoning that began with the answer: some templates write the opening tag
    into the prompt. White space around reasoning belongs to it.

    Args:
        opened: whether the prompt of this model ends with the opening tag. Then nothing counts as
            said before the closing tag, or before the end of an answer without tags.

    Attributes:
        was_opened: whether the answer began with reasoning that had no opening tag.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self.was_opened = False
        self._marks = Marks(_OPENING + _CLOSING)
        self._state: Literal["before", "thought", "after", "said"] = "before"
        self._holding = opened
        self._held: list[str] = []  # until it is known whether it was said
        self._tags = False

    def feed(self, text: str) -> Iterator[ThoughtPiece]:
        """Take the next piece of the answer."""
        return self._pieces(text, last=False)

    def end(self) -> Iterator[ThoughtPiece]:
        """The answer is complete: give the rest."""
        yield from self._pieces("", last=True)
        yield from self._release("said" if self._state == "before" else "thought")

    def apart(self) -> Iterator[ThoughtPiece]:
        """The server sends reasoning apart from the text: what was held was said."""
        if self._holding:
            self._holding = False
            yield from self._release("said")

    def _pieces(self, piece: str, *, last: bool) -> Iterator[ThoughtPiece]:
        for text, mark in self._marks.feed(piece, last=last):
            if text:
                yield from self._text(text)
            if mark:
                yield from self._tag(mark)

    def _tag(self, mark: str) -> Iterator[ThoughtPiece]:
        closing = mark.lower() in _CLOSING
        if closing and self._state != "thought":
            self.was_opened = self.was_opened or not self._tags
            yield "unsaid", ""
            yield from self._release("thought")
        elif self._state != "thought":
            blank = not "".join(self._held).strip()
            yield from self._release("thought" if blank else "said")
        yield "thought", mark
        self._tags, self._holding = True, False
        if closing or self._state != "thought":
            self._state = "after" if closing else "thought"
        self._marks.in_code = self._state != "thought"

    def _text(self, text: str) -> Iterator[ThoughtPiece]:
        if self._state == "thought":
            yield "thought", text
        elif self._holding or (self._state != "said" and text.isspace()):
            self._held.append(text)
        elif self._state == "said":
            yield "said", text
        else:
            bare = text.lstrip()
            space = text[: len(text) - len(bare)]
            yield from self._release("thought" if self._state == "after" else "said", space)
            self._state = "said"
            yield "said", bare

    def _release(self, kind: Literal["said", "thought"], more: str = "") -> Iterator[ThoughtPiece]:
        held, self._held = "".join((*self._held, more)), []
        if held:
            yield kind, held


_BEGINNINGS: Final = ("<|channel|>", "<|start|>")
_HEADER: Final = (*_BEGINNINGS, "<|constrain|>")
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
_MESSAGE: Final = "<|message|>"
_LONGEST_MARK: Final = max(map(len, _BEGINNINGS))
_LONGEST_HEADER: Final = 512
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*+(\w++)")
_RECIPIENT: Final = re.compile(r"\bto=(?:functions\.)?([^\s<>|]++)")


class FramedCall(msgspec.Struct, frozen=True):
    """A call, unchecked, and the text that it was read from. `is_thought` says whether it stands in
    reasoning, which is never said.
    """

    source: str
    name: str
    arguments: str
    is_thought: bool


HarmonyPiece: TypeAlias = tuple[Literal["plain", "said", "thought"], str] | FramedCall
"""A piece of an answer in another format, of what is said, or of reasoning; or a call."""


class Harmony:
    """Takes an answer in the Harmony format apart, wherever its pieces are cut.

    An answer has this format if it begins with a header. All others are `plain`.
    """

    def __init__(self) -> None:
        self._marks = Marks((*_HEADER, _MESSAGE, *_ENDS))
        self._state: Literal["unknown", "plain", "between", "header", "call", "said", "thought"]
        self._state = "unknown"
        self._beginning = ""
        self._held: list[str] = []  # the beginning, a header, or the arguments of a call
        self._held_characters = 0
        self._header = ""  # of the message that is being read
        self._has_said = self._separate = False

    def feed(self, text: str) -> Iterator[HarmonyPiece]:
        """Take the next piece of the answer."""
        if self._state == "unknown":
            text = self._begun(text)
        if self._state == "plain":
            if text:
                yield "plain", text
        elif text:
            yield from self._pieces(text)

    def end(self) -> Iterator[HarmonyPiece]:
        """The answer is complete: give the rest."""
        if self._state == "unknown":
            if text := self._release():
                self._state = "plain"
                yield "plain", text
        elif self._state != "plain":
            yield from self._pieces("", last=True)
            yield from self._ended("")

    def _begun(self, text: str) -> str:
        """Decide by its beginning if this format is used; give the text once that is decided."""
        self._hold(text)
        self._beginning = self._beginning + text if self._beginning else text.lstrip()
        beginning = self._beginning[:_LONGEST_MARK].lower()
        if beginning.startswith(_BEGINNINGS):
            self._state = "between"
        elif any(mark.startswith(beginning) for mark in _BEGINNINGS):
            return ""
        else:
            self._state = "plain"
        return self._release()

    def _pieces(self, piece: str, *, last: bool = False) -> Iterator[HarmonyPiece]:
        for text, mark in self._marks.feed(piece, last=last):
            if text:
                yield from self._text(text)
            if mark:
                yield from self._mark(mark)

    def _text(self, text: str) -> Iterator[HarmonyPiece]:
        if self._state == "header":
            self._hold(text)
            if self._held_characters > _LONGEST_HEADER:
                self._state = "said"
                yield from self._say(self._release())
        elif self._state == "call":
            self._hold(text)
        elif self._state == "thought":
            yield "thought", text
        elif self._state == "said":
            yield from self._say(text)
        elif text := text.lstrip():  # between two messages
            self._state = "said"
            yield from self._say(text)

    def _say(self, text: str) -> Iterator[HarmonyPiece]:
        if self._separate:
            self._separate = False
            yield "said", "\n\n"
        self._has_said = True
        yield "said", text

    def _mark(self, mark: str) -> Iterator[HarmonyPiece]:
        kind = mark.lower()
        if kind == _MESSAGE and self._state == "header":
            self._message(mark)
        elif kind in _ENDS:
            yield from self._ended(mark)
        elif kind in _HEADER and self._state == "header":
            yield from self._text(mark)
        elif kind in _BEGINNINGS:
            yield from self._ended("")
            self._state = "header"
            yield from self._text(mark)
        else:
            yield from self._text(mark)

    def _message(self, mark: str) -> None:
        """The header is complete."""
        self._header = self._release() + mark
        if _RECIPIENT.search(self._header):
            self._state = "call"
        elif self._is_reasoning:
            self._state = "thought"
        else:
            self._state = "said"
            self._separate = self._has_said
        # Neither reasoning nor arguments are Markdown.
        self._marks.in_code = self._state == "said"

    @property
    def _is_reasoning(self) -> bool:
        channel = _CHANNEL.search(self._header)
        return channel is not None and channel[1] == "analysis"

    def _ended(self, mark: str) -> Iterator[HarmonyPiece]:
        """A message has ended, or a header without a message."""
        held, state, self._state = self._release(), self._state, "between"
        self._marks.in_code = False
        if state == "call":
            recipient = _RECIPIENT.search(self._header)
            assert recipient is not None, "it made this a call"
            source = self._header + held + mark
            yield FramedCall(source, recipient[1], held, self._is_reasoning)
        elif held:
            yield from self._say(held)

    def _hold(self, text: str) -> None:
        self._held.append(text)
        self._held_characters += len(text)

    def _release(self) -> str:
        text = "".join(self._held)
        self._held, self._held_characters = [], 0
        return text
