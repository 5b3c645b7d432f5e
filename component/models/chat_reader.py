"""Reads answers of chat completions.

What is optional, repeated or of another type in one server or another is so here.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from component.models.adapter import AnswerReader, fault_in
from component.models.answer_draft import DraftCall
from component.models.answer_limits import BadJSONError, arguments_in, decode_as
from component.models.chat_text import Habits, MixedText, Reasoning, more_fields
from component.models.protocol import ContextOverflowError, OnText
from component.models.usage import Reported, UsageFigures, later_usage, with_reasoning
from component.models.written_calls import WrittenCalls


class _Function(msgspec.Struct):
    """Name and arguments, or a piece of them. Some servers give arguments as an object."""

    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    """A tool call, or a piece of one. Some servers count ids, or write the index as a text.

    `fields` are all other ones, which belong to it.
    """

    index: int | str | None = None
    id: Any = None
    function: _Function | None = None
    fields: dict[str, Any] = {}

    @property
    def named(self) -> str:
        """The id as a text; empty if there is none."""
        return self.id if isinstance(self.id, str) else "" if self.id is None else str(self.id)


class _Part(msgspec.Struct):
    """A part of a text. Mistral's `thinking` is a list of texts."""

    text: str | None = None
    thinking: Any = None

    @property
    def reasoning(self) -> str:
        """The text of `thinking`."""
        if isinstance(self.thinking, str):
            return self.thinking
        parts = self.thinking if isinstance(self.thinking, list) else []
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        return "".join([text for text in texts if isinstance(text, str)])


class _Said(msgspec.Struct):
    """A message, or a piece of one. `refusal` is the text that OpenAI sends instead of `content`.

    Servers send reasoning in one or more of the three other fields. `function_call` is a call as it
    was before there could be several.
    """

    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: _Function | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None


class _Choice(msgspec.Struct):
    """One of the answers; we ask for one. A stream has `delta`, a whole answer `message`."""

    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _Progress(msgspec.Struct):
    """How much of the prompt llama.cpp has read; `total` is its number of tokens."""

    total: int = 0


class Chunk(msgspec.Struct):
    """One event of a stream, or a whole answer. `error` is one that came after the beginning;
    `base_resp` is that of MiniMax, which answers with status 200.
    """

    choices: list[_Choice] | None = None
    usage: Any = None  # `component.models.usage` checks it: some servers send invalid values
    error: Any = None
    object: str | None = None
    prompt_progress: _Progress | None = None
    message: Any = None
    code: Any = None
    base_resp: Any = None


_chunks = msgspec.json.Decoder(Chunk)
_OWN: Final = ("index", "id", "type", "function")


def _call_of(said: dict[str, Any]) -> _Call:
    fields = {key: value for key, value in said.items() if key not in _OWN and value is not None}
    function = said.get("function")
    if isinstance(function, dict) and len(function) > 2:
        inner = {key: v for key, v in function.items() if key not in ("name", "arguments")}
        if inner:
            fields["function"] = inner
    known: dict[str, Any] = {"fields": fields}
    known |= {key: said[key] for key in ("index", "id", "function") if key in said}
    try:
        return msgspec.convert(known, _Call)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadJSONError(str(error)) from None


class ChatReader(AnswerReader):
    """Reads one answer of chat completions.

    Args:
        calls: reads calls in the text; None if there are neither calls nor reasoning in it.
        tells_cost: whether the provider reports the cost.
        room: the tokens of the context, and those that the answer may have; None if they are not
            known. llama.cpp reports the tokens of a prompt before it reads it, and would cut the
            answer.
    """

    def __init__(
        self,
        on_text: OnText | None,
        *,
        calls: WrittenCalls | None = None,
        habits: Habits | None = None,
        tells_cost: bool = False,
        room: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(on_text)
        self._reasoning = Reasoning(self.draft)
        self._text: MixedText | None = None
        if calls is not None:
            self._text = MixedText(self.draft, self._reasoning, calls, habits or Habits(""))
        self._tells_cost = tells_cost
        self._room = room
        self._calls: list[_Growing] = []

    def end(self) -> None:
        """See AnswerReader.end."""
        if self._text is not None:
            self._text.end()
        self._reasoning.end()

    def _event(self, data: bytes) -> bool:
        chunk = decode_as(_chunks, data)
        fault = chunk.error or chunk.object == "error"
        if fault or (not chunk.choices and _is_fault(chunk)):
            raise fault_in(data)
        self.take(chunk)
        if more := more_fields(data):
            self.draft.began = True
            self._reasoning.add_more(more)
        return False

    def _document(self, data: bytes) -> None:
        self._event(data)

    def take(self, chunk: Chunk) -> None:
        """Process the next chunk. Raises TooMuchError, ContextOverflowError."""
        if chunk.prompt_progress is not None:
            # Reading goes on: the timeout between tokens counts from here.
            self.draft.began = True
            self._check_prompt(chunk.prompt_progress.total)
        if chunk.usage is not None:
            self.draft.used = later_usage(self.draft.used, chunk.usage)
        if chunk.choices:
            # The request asks for one choice only.
            self._choice(chunk.choices[0])

    def _check_prompt(self, tokens: int) -> None:
        if self._room is not None and tokens + self._room[1] > self._room[0]:
            raise ContextOverflowError(
                f"the prompt has {tokens} tokens and the answer may have {self._room[1]}, but the"
                f" context has {self._room[0]}"
            )

    def reported(self, figures: UsageFigures) -> Reported:
        """See AnswerReader.reported."""
        detail_in = figures.inside("prompt_tokens_details")
        detail_out = figures.inside("completion_tokens_details")
        cached = detail_in.tokens("cached_tokens")
        if cached is None:  # DeepSeek
            cached = figures.tokens("prompt_cache_hit_tokens")
        found = Reported(
            tokens_in=figures.tokens("prompt_tokens"),
            tokens_out=figures.tokens("completion_tokens"),
            cache_read=cached or 0,
            cache_write=detail_in.tokens("cache_write_tokens") or 0,
            reasoning=detail_out.tokens("reasoning_tokens") or 0,
            usd=figures.usd("cost") if self._tells_cost else None,
        )
        return with_reasoning(found, figures)

    def _choice(self, choice: _Choice) -> None:
        said = choice.delta or choice.message or _Said()
        if said.reasoning_content or said.reasoning or said.reasoning_details:
            self._apart()
            self._reasoning.add_fields(
                {
                    "reasoning_details": said.reasoning_details,
                    "reasoning_content": said.reasoning_content,
                    "reasoning": said.reasoning,
                }
            )
        content = said.content
        if isinstance(content, str):
            self._say(content)
        elif content:
            self._parts(content)
        if said.refusal:
            self._say(said.refusal)
        for call in said.tool_calls or ():
            self._grow(_call_of(call))
        if said.function_call is not None and not said.tool_calls:
            self._grow(_Call(function=said.function_call))
        if reason := choice.finish_reason:
            self.end()
            self.draft.end(reason)

    def _apart(self) -> None:
        if self._text is not None:
            self._text.apart()

    def _say(self, text: str) -> None:
        if self._text is not None:
            self._text.feed(text)
        elif text:
            self._reasoning.flush()
            self.draft.say(text)

    def _parts(self, content: Sequence[_Part]) -> None:
        for part in content:
            if reasoning := part.reasoning:
                self._apart()
                self._reasoning.add("thinking", reasoning)
            if part.text:
                self._say(part.text)

    def _grow(self, piece: _Call) -> None:
        function = piece.function
        name = (function and function.name) or ""
        arguments = function.arguments if function else None
        growing = self._begun(piece, name, arguments) if name else self._continued(piece)
        if growing is None:
            if self._text is not None:
                self._text.before_call()
            self._reasoning.flush()
            growing = _Growing(piece.index, self.draft.call(piece.named, name))
            self._calls.append(growing)
        call = growing.call
        call.id = call.id or piece.named
        self.draft.add_fields(call, piece.fields)
        call.name = call.name or name
        if isinstance(arguments, dict):
            call.pieces, growing.characters = [], 0
        added = arguments_in(arguments)
        if added and not growing.repeats(added):
            growing.characters += len(added)
            self.draft.add_arguments(call, added)

    def _begun(self, piece: _Call, name: str, arguments: Any) -> "_Growing | None":
        """The call that a piece with a name belongs to; None if it begins one.

        Some servers repeat the name in each piece, or the whole call at the end, and some give each
        piece another id. Others send whole calls, all with index 0 or without one.
        """
        of_index = (c for c in reversed(self._calls) if piece.index in (None, c.index))
        last = next(of_index, None)
        if piece.index is None and piece.named:
            of_id = (c for c in self._calls if (c.call.id, c.call.name) == (piece.named, name))
            last = next(of_id, last)
        if last is None or (last.call.name and last.call.name != name):
            return None
        repeated = bool(piece.named) and piece.named == last.call.id
        return None if last.whole and arguments and not repeated else last

    def _continued(self, piece: _Call) -> "_Growing | None":
        """The call that a piece without a name continues: that with its index, its id, or the last
        one. None if there is none, or if the last one is whole.
        """
        latest = self._calls[::-1]
        of_index = (c for c in latest if piece.index is not None and c.index == piece.index)
        of_id = (c for c in latest if piece.named and c.call.id == piece.named)
        if (found := next(of_index, None) or next(of_id, None)) is not None:
            return found
        last = latest[0] if latest else None
        return None if last is not None and last.whole else last


class _Growing:
    """A call whose pieces are still arriving."""

    def __init__(self, index: int | str | None, call: DraftCall) -> None:
        self.index = index
        self.call = call
        self.characters = 0
        self._read = 0  # the number of pieces that `whole` has read
        self._depth = 0
        self._begun = False
        self._in_string = False
        self._escaped = False

    def repeats(self, arguments: str) -> bool:
        """Whether these are the arguments so far, which are whole. Joins them only if they may be
        the same, as there may be many pieces.
        """
        same = self.whole and len(arguments) == self.characters
        return same and arguments == "".join(self.call.pieces)

    @property
    def whole(self) -> bool:
        """Whether the arguments are a complete object. Reads each piece once."""
        pieces = self.call.pieces
        for piece in pieces[self._read :]:
            for char in piece:
                self._look(char)
        self._read = len(pieces)
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


def _is_fault(chunk: Chunk) -> bool:
    """Whether an event without an answer is an error that other fields than `error` have."""
    result = chunk.base_resp
    if isinstance(result, dict) and result.get("status_code"):
        return True
    return chunk.choices is None and bool(chunk.code and chunk.message)
