"""The answer of a model while it arrives, within the limits of `answer_limits`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    CALLS,
    EVENTS,
    ID_CHARACTERS,
    NAME_CHARACTERS,
    OPAQUE_BYTES,
    TEXT_CHARACTERS,
    BadJSONError,
    TooMuchError,
    encode_any,
    is_object,
)
from component.models.messages import (
    AnswerPart,
    OpaquePart,
    TextPart,
    ToolCall,
    add_fields,
    encoded_fields,
    is_portable_id,
    storable,
    with_distinct_ids,
)
from component.models.protocol import Finish, OnText, Void
from component.models.tool_schemas import ToolNames

# Why a model stopped, as providers write it. Chat completions and messages share these tables,
# because gateways translate one into the other.
_COMPLETE: Final = frozenset(
    (
        *("stop", "tool_calls", "tool_call", "function_call", "tool_use", "end_turn", "eos"),
        *("eos_token", "stop_sequence", "pause_turn", "completed", "complete", "done"),
    )
)
"""The model was done, or calls tools."""
_INCOMPLETE: Final[Mapping[str, Finish]] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",  # Anthropic, Zhipu
    "context_length_exceeded": "length",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",  # Bedrock
    "refusal": "content_filter",
    "safety": "content_filter",
    "prohibited_content": "content_filter",  # Gemini, as the two below
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "sensitive": "content_filter",  # Zhipu
}
_FAILED: Final = frozenset(
    (
        "error",  # OpenRouter: a fault of the provider behind it
        *("abort", "aborted", "cancelled", "canceled"),  # vLLM, SGLang
        *("insufficient_system_resource", "network_error", "timeout"),  # DeepSeek, Zhipu
        *("engine_error", "internal_error"),
        "malformed_function_call",  # Gemini: the model has written a call that nobody can read
    )
)


class DraftCall(msgspec.Struct):
    """A tool call that may still be incomplete.

    Attributes:
        begun_with: the arguments that came with its beginning. They count if no piece follows.
        cut: whether the provider says that it is not complete.
        fields: what the provider wants back.
    """

    id: str
    name: str
    pieces: list[str] = []
    begun_with: str = ""
    cut: bool = False
    fields: dict[str, Any] = {}

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces) or self.begun_with


_Text: TypeAlias = list[str]
"""The pieces of a text."""


class AnswerDraft:
    """Collects the parts of an answer in the order in which they began.

    All methods that add something raise TooMuchError beyond a limit.

    Attributes:
        told: whether `on_text` was given a piece of it.
        shown: whether a person has seen a piece of it.
        began: whether the model has produced anything, reasoning included.
        finished: whether the provider has said why the model stopped.
        failed: whether it stopped because of a fault of the provider.
        paused: whether the provider wants to be called again to continue (`pause_turn`).
        lost: whether a piece of a call belongs to no call that is known.
        used: the provider's report of tokens and cost, unchecked; None if there is none.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self.told = self.shown = self.began = False
        self.finished = self.failed = self.paused = self.lost = False
        self.used: Any = None
        self._on_text = on_text
        self._parts: list[_Text | DraftCall | msgspec.Raw] = []
        self._finish: Finish | None = None
        self._calls_whole = False
        self._events = self._text_characters = self._arguments_characters = self._opaque_bytes = 0
        self._withdrawn = 0  # parts from the beginning without a text, as far as known

    # -- adding ----------------------------------------------------------------------------------

    def count(self) -> None:
        """Count an event of any kind."""
        self._events += 1
        if self._events > EVENTS:
            raise TooMuchError(f"more than {EVENTS:,} events in one answer")

    def say(self, text: str) -> None:
        """Add a piece of text."""
        self._text_characters += len(text)
        if self._text_characters > TEXT_CHARACTERS:
            raise TooMuchError(f"a text of more than {TEXT_CHARACTERS:,} characters")
        self.began = True
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, list):
            last = []
            self._parts.append(last)
        last.append(text)
        if self._on_text is not None:
            self.told = True
            if self._on_text(text):
                self.shown = True

    def withdraw(self) -> str:
        """Remove and return the texts so far, because they are something else."""
        # Only new parts are searched, because an answer may withdraw thousands of times.
        new = self._parts[self._withdrawn :]
        texts = [part for part in new if isinstance(part, list)]
        if texts:
            self._parts[self._withdrawn :] = [part for part in new if not isinstance(part, list)]
        self._withdrawn = len(self._parts)
        if not texts:
            return ""
        self._text_characters = 0
        if self.told and self._on_text is not None:
            self._on_text(Void.WITHDRAWN)
            self.told = False
        return "".join([piece for text in texts for piece in text])

    def call(self, id_: str, name: str) -> DraftCall:
        """Begin a tool call."""
        if len(self.calls_begun) == CALLS:
            raise TooMuchError(f"more than {CALLS} tool calls in one answer")
        self.began = True
        call = DraftCall(id_, name)
        self._parts.append(call)
        return call

    def add_arguments(self, call: DraftCall, piece: str) -> None:
        """Add a piece of the arguments of a call."""
        self._count_arguments(piece)
        call.pieces.append(piece)

    def begin_arguments(self, call: DraftCall, arguments: str) -> None:
        """Add the arguments that a call begins with."""
        self._count_arguments(arguments)
        call.begun_with = arguments

    def _count_arguments(self, piece: str) -> None:
        self._arguments_characters += len(piece)
        if self._arguments_characters > ARGUMENTS_CHARACTERS:
            raise TooMuchError(
                f"tool calls with more than {ARGUMENTS_CHARACTERS:,} characters of arguments"
            )

    def add_fields(
        self, call: DraftCall, said: Mapping[str, Any], known: Collection[str] = ()
    ) -> None:
        """Add what the provider sends beside a call, or a piece of it, but for `known` fields."""
        fields = {key: v for key, v in said.items() if key not in known and v is not None}
        if not fields:
            return
        try:
            self._count_opaque(len(encode_any(fields)))
        except BadJSONError:
            return
        add_fields(call.fields, fields)

    def opaque(self, data: bytes) -> None:
        """Add JSON that only the provider understands."""
        self.began = True
        self._count_opaque(len(data))
        self._parts.append(msgspec.Raw(data))

    def reasoning(self, piece: str) -> None:
        """Count a piece of reasoning, which the reader keeps until it is complete."""
        self.began = True
        self._count_opaque(len(piece))

    def _count_opaque(self, size: int) -> None:
        self._opaque_bytes += size
        if self._opaque_bytes > OPAQUE_BYTES:
            raise TooMuchError(f"reasoning of more than {OPAQUE_BYTES:,} bytes")

    def end(self, reason: str) -> None:
        """Record why the model stopped, in the words of a provider.

        After a reason that is not known the text counts, and a call without arguments does not:
        they may be missing.
        """
        reason = reason.lower()
        self.finish(_INCOMPLETE.get(reason), calls_whole=reason in _COMPLETE)
        self.failed = reason in _FAILED

    def finish(self, finish: Finish | None, *, calls_whole: bool) -> None:
        """Record why the model stopped; `calls_whole` says whether the calls are whole then."""
        self.finished = True
        self._finish = finish
        self._calls_whole = calls_whole

    # -- the answer ------------------------------------------------------------------------------

    @property
    def calls_begun(self) -> Sequence[DraftCall]:
        """The calls so far."""
        return [part for part in self._parts if isinstance(part, DraftCall)]

    @property
    def anything(self) -> bool:
        """Whether there is a text or a call."""
        return any(not isinstance(part, msgspec.Raw) for part in self._parts)

    @property
    def complete(self) -> bool:
        """Whether the answer is complete."""
        return self.finished and not self.failed

    @property
    def incoherent(self) -> bool:
        """Whether a piece of a call is left of which nobody knows what is to be called."""
        return self.lost or any(call.arguments and not call.name for call in self.calls_begun)

    @property
    def finish_reason(self) -> Finish:
        """Why the model stopped."""
        if self._finish is not None:
            return self._finish
        return "tool_calls" if any(call.name for call in self.calls_begun) else "stop"

    def cut(self) -> None:
        """End the answer here, as if the model had no tokens left, and remove incomplete calls."""
        self._parts = [
            part
            for part in self._parts
            if not isinstance(part, DraftCall) or is_object(part.arguments)
        ]
        self.finish("length", calls_whole=False)

    def parts(self, names: ToolNames, origin: str, used: set[str]) -> tuple[AnswerPart, ...]:
        """The parts, with ids of calls that are not in `used`. Calls without a name are left out.

        A call whose arguments are not there has none, `{}`, if the provider says that the answer is
        complete. Otherwise they may be missing, and are an empty text, which is not JSON. The same
        holds for `{}` in an answer that was cut off, because some servers send `{}` first.

        `origin` names adapter and model in opaque parts.
        """
        calls = [call for call in self.calls_begun if call.name]
        ids = iter(
            with_distinct_ids([ToolCall(_usable_id(call.id), "", "") for call in calls], used)
        )
        found: list[AnswerPart] = []
        for part in self._parts:
            if isinstance(part, DraftCall):
                if part.name:
                    name = names.ours(storable(part.name[:NAME_CHARACTERS]))
                    arguments = _encoded_once(storable(part.arguments))
                    if not arguments or (arguments == "{}" and self._finish == "length"):
                        arguments = "{}" if self._calls_whole and not part.cut else ""
                    arguments = names.our_arguments(name, arguments)
                    id_ = next(ids).id
                    if fields := _fields(part, id_):
                        found.append(OpaquePart(origin, fields))
                    found.append(ToolCall(id_, name, arguments))
            elif isinstance(part, list):
                if text := storable("".join(part)):
                    found.append(TextPart(text))
            else:
                found.append(OpaquePart(origin, part))
        return tuple(found)


def _encoded_once(arguments: str) -> str:
    """Return arguments without the second encoding that some servers add: an object in a string."""
    if not arguments.startswith('"'):
        return arguments
    try:
        inner = msgspec.json.decode(arguments, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return arguments
    return inner if inner.startswith("{") else arguments


def _fields(call: DraftCall, id_: str) -> msgspec.Raw | None:
    """What goes back with a call: its fields, and its id if other providers get another one."""
    fields = call.fields
    if id_ == call.id and not is_portable_id(id_):
        fields = {"id": id_, **fields}
    data = encoded_fields(fields) if fields else None
    return None if data is None else msgspec.Raw(data)


def _usable_id(id_: str) -> str:
    """Return an id; an empty one, which a random one replaces, if it cannot be stored."""
    return id_ if len(id_) <= ID_CHARACTERS and storable(id_) == id_ else ""
