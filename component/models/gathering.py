"""From the pieces of a streamed answer to the whole of it."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from component.models import call_ids
from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    CALLS,
    EVENTS,
    ID_CHARACTERS,
    NAME_CHARACTERS,
    TEXT_CHARACTERS,
    TooMuchError,
)
from component.models.chat_wire import Call, Choice, Chunk, Said
from component.models.protocol import Finish, OnText, ToolCall
from component.models.storable import storable

_FINISH: Mapping[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
}


class Gathering:
    """Takes the chunks of one answer, within the bounds of `answer_limits`.

    Attributes:
        text: what was said so far.
        told: whether a part of it was passed on to `on_text`.
        finished: whether the server has said why it stopped.
        used: what the server says of tokens and cost, unchecked; None if it says nothing.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self.told = False
        self.used: Any = None
        self._on_text = on_text
        self._pieces: list[str] = []
        self._events = 0
        self._text_characters = 0
        self._arguments_characters = 0
        self._reason: str | None = None
        self._calls: list[_Growing] = []

    def count(self) -> None:
        """Count an event, whatever is in it. Raises TooMuchError."""
        self._events += 1
        if self._events > EVENTS:
            raise TooMuchError(f"more than {EVENTS:,} events in one answer")

    def take(self, chunk: Chunk) -> None:
        """Take the next chunk. Raises TooMuchError."""
        self.count()
        if chunk.usage is not None:
            self.used = chunk.usage
        if chunk.choices:
            # One answer was asked for.
            self._choice(chunk.choices[0])

    def _choice(self, choice: Choice) -> None:
        said = choice.delta or choice.message or Said()
        if text := said.text:
            self.say(text)
        for call in said.tool_calls or ():
            self._grow(call)
        if choice.finish_reason:
            self._reason = choice.finish_reason

    def say(self, text: str) -> None:
        """Take a piece of the text. Raises TooMuchError."""
        self._text_characters += len(text)
        if self._text_characters > TEXT_CHARACTERS:
            raise TooMuchError(f"a text of more than {TEXT_CHARACTERS:,} characters")
        self._pieces.append(text)
        if self._on_text is not None:
            self.told = True
            self._on_text(text)

    def _grow(self, piece: Call) -> None:
        """Add to the call that the piece belongs to.

        That is the one of the same index; some servers give each call whole, and all index 0, or
        none at all: then one with another id or name, or a name after all arguments, is a new call.
        """
        function = piece.function
        name = (function and function.name) or ""
        growing = self._call_of(piece, name)
        if growing is None:
            if len(self._calls) == CALLS:
                raise TooMuchError(f"more than {CALLS} tool calls in one answer")
            growing = _Growing(piece.index, piece.id or "", name)
            self._calls.append(growing)
        growing.id = growing.id or piece.id or ""
        growing.name = growing.name or name
        arguments = function.arguments if function else None
        if isinstance(arguments, dict):
            arguments = _encoded(arguments)
            growing.pieces = []
        if arguments:
            self._arguments_characters += len(arguments)
            if self._arguments_characters > ARGUMENTS_CHARACTERS:
                raise TooMuchError(
                    f"tool calls with more than {ARGUMENTS_CHARACTERS:,} characters of arguments"
                )
            growing.pieces.append(arguments)

    def _call_of(self, piece: Call, name: str) -> "_Growing | None":
        of_index = (c for c in reversed(self._calls) if piece.index in (None, c.index))
        last = next(of_index, None)
        if last is None or (piece.id and last.id):
            return last if last is not None and piece.id == last.id else None
        if name and name != last.name:
            return None
        more = piece.function.arguments if piece.function else None
        return None if name and more and last.whole else last

    @property
    def text(self) -> str:
        """What was said so far, fit to be stored and sent."""
        return storable("".join(self._pieces))

    @property
    def anything(self) -> bool:
        """Whether there is a text or a call."""
        return bool(self._pieces or self._calls)

    @property
    def finished(self) -> bool:
        """Whether the server has said why it stopped."""
        return self._reason is not None

    @property
    def failed(self) -> bool:
        """Whether it stopped for a fault of its own, as OpenRouter tells it."""
        return self._reason == "error"

    @property
    def complete(self) -> bool:
        """Whether all is there that it wanted to say."""
        return self.finished and not self.failed

    def calls(self, used: set[str]) -> tuple[ToolCall, ...]:
        """Give the calls, with ids that are not in `used`. One without a name is none."""
        return call_ids.distinct(
            (
                ToolCall(
                    _fit_id(call.id),
                    storable(call.name[:NAME_CHARACTERS]),
                    storable("".join(call.pieces)) or "{}",
                )
                for call in self._calls
                if call.name
            ),
            used,
        )

    @property
    def finish(self) -> Finish:
        """Why it stopped. Servers say `stop` for calls, and `tool_calls` where there are none."""
        known = _FINISH.get((self._reason or "").lower())
        return known or ("tool_calls" if any(call.name for call in self._calls) else "stop")


class _Growing:
    """A call of which pieces are still to come."""

    def __init__(self, index: int | None, id_: str, name: str) -> None:
        self.index = index
        self.id = id_
        self.name = name
        self.pieces: list[str] = []
        self._read = 0  # pieces that `whole` has looked at
        self._depth = 0
        self._begun = False
        self._in_string = False
        self._escaped = False

    @property
    def whole(self) -> bool:
        """Whether the arguments are an object that has ended. Reads each piece once."""
        for piece in self.pieces[self._read :]:
            for char in piece:
                self._look(char)
        self._read = len(self.pieces)
        return self._begun and self._depth == 0 and not self._in_string

    def _look(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif self._in_string:
            self._escaped = char == "\\"
            self._in_string = char != '"'
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._begun = True
            self._depth += 1
        elif char in "}]":
            self._depth -= 1


def _fit_id(said: str) -> str:
    """An id as it came, or none if it cannot be kept; another one is then made up."""
    return said if len(said) <= ID_CHARACTERS and storable(said) == said else ""


def _encoded(arguments: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except RecursionError:
        return "(nested too deeply)"  # no JSON: the model is told so, and nothing is called
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(arguments)  # halves of surrogate pairs, integers of any size
