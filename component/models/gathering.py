"""Builds an answer from the chunks of chat completions."""

from collections.abc import Sequence
from typing import Any

from component.models import chat_wire, finish_reasons
from component.models.adapter import ProviderFaultError
from component.models.answer_draft import AnswerDraft, DraftCall
from component.models.chat_text import AnswerText, TextReader
from component.models.chat_wire import Call, Choice, Chunk, Part, Said
from component.models.faults import read_fault
from component.models.protocol import OnText
from component.models.reasoning import Reasoning
from component.models.tolerant_json import BadJSONError, arguments_in
from component.models.usage import Figures, Reported, later_usage, with_reasoning


class Gathering:
    """Reads one answer of chat completions.

    Args:
        on_text: receives each piece of text.
        tells_cost: whether the provider reports the cost.
        text: separates reasoning and calls from the text; None if there are none in it.
    """

    def __init__(
        self,
        on_text: OnText | None,
        *,
        tells_cost: bool = False,
        text: TextReader | None = None,
    ) -> None:
        self.draft = AnswerDraft(on_text, self.end)
        self._reasoning = Reasoning(self.draft)
        self._text = (text or AnswerText)(self.draft, self._reasoning)
        self._tells_cost = tells_cost
        self._calls: list[_Growing] = []

    def event(self, data: bytes) -> bool:
        """Read one event; see AnswerReader.event."""
        if data == b"[DONE]":
            self.end()
            return True
        self._read(data)
        return False

    def document(self, data: bytes) -> None:
        """Read a whole answer; see AnswerReader.document."""
        self._read(data.strip())
        self.end()

    def end(self) -> None:
        """End the answer, and add text that was held back."""
        self._text.end()
        self._reasoning.end()

    def _read(self, data: bytes) -> None:
        if not data.startswith(b"{"):
            raise BadJSONError("it is not an object")
        chunk = chat_wire.decode(data)
        fault = chunk.error or chunk.object == "error"
        if fault or (not chunk.choices and _is_fault(chunk)):
            raise ProviderFaultError(read_fault(0, data))
        self.take(chunk)
        if more := chat_wire.more_fields(data):
            self.draft.began = True
            self._reasoning.add_more(more)

    def take(self, chunk: Chunk) -> None:
        """Process the next chunk. Raises TooMuchError."""
        self.draft.count()
        if chunk.usage is not None:
            self.draft.used = later_usage(self.draft.used, chunk.usage)
        if chunk.choices:
            # The request asks for one choice only.
            self._choice(chunk.choices[0])

    def reported(self, figures: Figures) -> Reported:
        """The figures of `usage`; see AnswerReader.reported."""
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

    def _choice(self, choice: Choice) -> None:
        said = choice.delta or choice.message or Said()
        if said.reasoning_content or said.reasoning or said.reasoning_details:
            self._text.apart()
            self._reasoning.add_fields(
                {
                    "reasoning_details": said.reasoning_details,
                    "reasoning_content": said.reasoning_content,
                    "reasoning": said.reasoning,
                }
            )
        content = said.content
        if isinstance(content, str):
            self._text.feed(content)
        elif content:
            self._parts(content)
        if said.refusal:
            self._text.feed(said.refusal)
        for call in said.tool_calls or ():
            self._grow(chat_wire.call_of(call))
        if said.function_call is not None and not said.tool_calls:
            self._grow(Call(function=said.function_call))
        if reason := choice.finish_reason:
            self.end()
            finish_reasons.end(self.draft, reason)

    def _parts(self, content: Sequence[Part]) -> None:
        for part in content:
            if reasoning := part.reasoning:
                self._text.apart()
                self._reasoning.add("thinking", reasoning)
            if part.text:
                self._text.feed(part.text)

    def _grow(self, piece: Call) -> None:
        """Add a piece to the call that it belongs to."""
        function = piece.function
        name = (function and function.name) or ""
        arguments = function.arguments if function else None
        growing = self._begun(piece, name, arguments) if name else self._continued(piece)
        if growing is None:
            self._text.before_call()
            growing = _Growing(piece.index, self.draft.call(piece.named, name))
            self._calls.append(growing)
        call = growing.call
        call.id = call.id or piece.named
        if piece.fields:
            self.draft.add_fields(call, piece.fields)
        call.name = call.name or name
        if isinstance(arguments, dict):
            call.pieces, growing.characters = [], 0
        added = arguments_in(arguments)
        if added and not growing.repeats(added):
            growing.characters += len(added)
            self.draft.add_arguments(call, added)

    def _begun(self, piece: Call, name: str, arguments: Any) -> "_Growing | None":
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

    def _continued(self, piece: Call) -> "_Growing | None":
        """The call that a piece without a name continues: that with its index, its id, or the last
        one. None if there is none, or if the last one is whole.
        """
        if piece.index is not None:
            for one in reversed(self._calls):
                if one.index == piece.index:
                    return one
        if piece.named:
            for one in reversed(self._calls):
                if one.call.id == piece.named:
                    return one
        last = self._calls[-1] if self._calls else None
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
