"""Answers in OpenAI's Harmony format, which gpt-oss writes and some servers pass on as text
(https://cookbook.openai.com/articles/openai-harmony).

An answer consists of messages. A header says for whom each is:

| message | meaning |
|---|---|
| `<|channel|>analysis<|message|>…<|end|>` | reasoning |
| `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>` | a tool call |
| `<|channel|>commentary<|message|>…<|end|>`, `<|channel|>final<|message|>…<|return|>` | said |

`<|start|>assistant` stands before each message but the first; the recipient may follow it.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from component.models.marks import Marks

_BEGINNINGS: Final = ("<|channel|>", "<|start|>")
_HEADER: Final = (*_BEGINNINGS, "<|constrain|>")
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
_MESSAGE: Final = "<|message|>"
_LONGEST_MARK: Final = max(map(len, _BEGINNINGS))
_LONGEST_HEADER: Final = 512
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*+(\w++)")
_RECIPIENT: Final = re.compile(r"\bto=(?:functions\.)?([^\s<>|]++)")


class FramedCall(msgspec.Struct, frozen=True):
    """A call, unchecked.

    Attributes:
        source: the text that it was read from.
        is_thought: whether it stands in reasoning, which is never said.
    """

    source: str
    name: str
    arguments: str
    is_thought: bool


Piece: TypeAlias = tuple[Literal["plain", "said", "thought"], str] | FramedCall
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

    def feed(self, text: str) -> Iterator[Piece]:
        """Take the next piece of the answer."""
        if self._state == "unknown":
            text = self._begun(text)
        if self._state == "plain":
            if text:
                yield "plain", text
        elif text:
            yield from self._pieces(text)

    def end(self) -> Iterator[Piece]:
        """The answer is complete: give the rest."""
        if self._state == "unknown":
            if text := self._release():
                self._state = "plain"
                yield "plain", text
        elif self._state != "plain":
            yield from self._pieces("", last=True)
            yield from self._ended("")

    def _begun(self, text: str) -> str:
        """Decide by its beginning whether the answer has this format; give the text if that is
        decided.
        """
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

    def _pieces(self, piece: str, *, last: bool = False) -> Iterator[Piece]:
        for text, mark in self._marks.feed(piece, last=last):
            if text:
                yield from self._text(text)
            if mark:
                yield from self._mark(mark)

    def _text(self, text: str) -> Iterator[Piece]:
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

    def _say(self, text: str) -> Iterator[Piece]:
        if self._separate:
            self._separate = False
            yield "said", "\n\n"
        self._has_said = True
        yield "said", text

    def _mark(self, mark: str) -> Iterator[Piece]:
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

    def _ended(self, mark: str) -> Iterator[Piece]:
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
