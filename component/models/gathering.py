"""From the pieces of a streamed answer to the whole of it."""

from collections.abc import Mapping

import msgspec

from component.models import call_ids
from component.models.chat_wire import Call, Choice, Chunk, Said, Used
from component.models.protocol import Finish, OnText, ToolCall

_FINISH: Mapping[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
}


class Gathering:
    """Takes the chunks of one answer.

    Attributes:
        text: what was said so far.
        told: whether a part of it was passed on to `on_text`.
        finished: whether the server has said why it stopped.
        used: the tokens, if the server told.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self.told = False
        self.used: Used | None = None
        self._on_text = on_text
        self._pieces: list[str] = []
        self._reason: str | None = None
        self._calls: list[_Growing] = []

    def take(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        if chunk.usage is not None:
            self.used = chunk.usage
        for choice in chunk.choices or ():
            self._choice(choice)

    def _choice(self, choice: Choice) -> None:
        said = choice.delta or choice.message or Said()
        if text := said.text:
            self._pieces.append(text)
            if self._on_text is not None:
                self.told = True
                self._on_text(text)
        for call in said.tool_calls or ():
            self._grow(call)
        if choice.finish_reason:
            self._reason = choice.finish_reason

    def _grow(self, piece: Call) -> None:
        """Add to the call that the piece belongs to.

        That is the one of the same index; some servers give each call whole, and all index 0, or
        none at all: then one with another id or name, or a name after all arguments, is a new call.
        """
        function = piece.function
        name = (function and function.name) or ""
        growing = self._call_of(piece, name)
        if growing is None:
            growing = _Growing(piece.index, piece.id or "", name)
            self._calls.append(growing)
        growing.id = growing.id or piece.id or ""
        growing.name = growing.name or name
        arguments = function.arguments if function else None
        if isinstance(arguments, dict):
            growing.pieces = [msgspec.json.encode(arguments).decode()]
        elif arguments:
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
        """What was said so far."""
        return "".join(self._pieces)

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
                ToolCall(call.id, call.name, "".join(call.pieces) or "{}")
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

    @property
    def whole(self) -> bool:
        """Whether the arguments are a JSON text by themselves."""
        try:
            msgspec.json.decode("".join(self.pieces))
        except msgspec.DecodeError:
            return False
        return True
