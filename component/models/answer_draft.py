"""The answer of a model while it arrives, within the limits of `answer_limits`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from component.models import call_fields, call_ids
from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    CALLS,
    EVENTS,
    ID_CHARACTERS,
    NAME_CHARACTERS,
    OPAQUE_BYTES,
    TEXT_CHARACTERS,
    TooMuchError,
)
from component.models.messages import AnswerPart, OpaquePart, TextPart, ToolCall
from component.models.protocol import Finish, OnText, Void
from component.models.storable import storable
from component.models.tolerant_json import BadJSONError, encode_any
from component.models.tool_names import ToolNames


class DraftCall:
    """A tool call that may still be incomplete.

    Attributes:
        pieces: the pieces of its arguments.
        begun_with: the arguments that came with its beginning. They count if no piece follows.
        cut: whether the provider says that it is not complete.
        fields: what the provider wants back.
    """

    def __init__(self, id_: str, name: str) -> None:
        self.id = id_
        self.name = name
        self.pieces: list[str] = []
        self.begun_with = ""
        self.cut = False
        self.fields: dict[str, Any] = {}

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces) or self.begun_with

    @property
    def complete(self) -> bool:
        """Whether the arguments are a JSON object."""
        try:
            msgspec.json.decode(self.arguments, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
        return True


class _DraftText:
    def __init__(self) -> None:
        self.pieces: list[str] = []


class AnswerDraft:
    """Collects the parts of an answer in the order in which they began.

    All methods that add something raise TooMuchError beyond a limit.

    Args:
        on_text: receives each piece of text.
        before_cut: adds text that the reader holds back, before the answer is cut off.

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

    def __init__(
        self, on_text: OnText | None, before_cut: Callable[[], None] = lambda: None
    ) -> None:
        self.told = self.shown = False
        self.began = False
        self.finished = False
        self.failed = False
        self.paused = False
        self.lost = False
        self.used: Any = None
        self._on_text = on_text
        self._before_cut = before_cut
        self._parts: list[_DraftText | DraftCall | msgspec.Raw] = []
        self._finish: Finish | None = None
        self._calls_whole = False
        self._events = 0
        self._text_characters = 0
        self._arguments_characters = 0
        self._opaque_bytes = 0
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
        if not isinstance(last, _DraftText):
            last = _DraftText()
            self._parts.append(last)
        last.pieces.append(text)
        if self._on_text is not None:
            self.told = True
            if self._on_text(text):
                self.shown = True

    def withdraw(self) -> str:
        """Remove and return the texts so far, because they are something else."""
        # Only new parts are searched, because an answer may withdraw thousands of times.
        new = self._parts[self._withdrawn :]
        texts = [part for part in new if isinstance(part, _DraftText)]
        if texts:
            self._parts[self._withdrawn :] = [p for p in new if not isinstance(p, _DraftText)]
        self._withdrawn = len(self._parts)
        if not texts:
            return ""
        self._text_characters = 0
        if self.told and self._on_text is not None:
            self._on_text(Void.WITHDRAWN)
            self.told = False
        return "".join([piece for text in texts for piece in text.pieces])

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

    def add_fields(self, call: DraftCall, fields: Mapping[str, Any]) -> None:
        """Add what the provider sends beside a call, or a piece of it."""
        try:
            self._count_opaque(len(encode_any(fields)))
        except BadJSONError:
            return
        call_fields.add_fields(call.fields, fields)

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

    def finish(self, finish: Finish | None, *, calls_whole: bool) -> None:
        """Record why the model stopped; None if it was done or calls tools. `calls_whole` says
        whether the calls are whole then.
        """
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
        self._before_cut()
        self._parts = [
            part for part in self._parts if not isinstance(part, DraftCall) or part.complete
        ]
        self.finish("length", calls_whole=False)

    def parts(self, names: ToolNames, origin: str, used: set[str]) -> tuple[AnswerPart, ...]:
        """The parts, with ids of calls that are not in `used`. Calls without a name are left out.

        A call whose arguments are not there has none, `{}`, if the provider says that the answer is
        complete. Otherwise they may be missing, and are an empty text, which is not JSON. The same
        holds for `{}` in an answer that was cut off, because some servers send `{}` first.

        `origin` names adapter and model in opaque parts.
        """
        ids = iter(
            call_ids.distinct(
                [
                    ToolCall(_usable_id(call.id), call.name, "")
                    for call in self.calls_begun
                    if call.name
                ],
                used,
            )
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
            elif isinstance(part, _DraftText):
                if text := storable("".join(part.pieces)):
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
    if id_ == call.id and not call_ids.is_portable(id_):
        fields = {"id": id_, **fields}
    data = call_fields.encoded_fields(fields) if fields else None
    return None if data is None else msgspec.Raw(data)


def _usable_id(id_: str) -> str:
    """Return an id; an empty one, which a random one replaces, if it cannot be stored."""
    return id_ if len(id_) <= ID_CHARACTERS and storable(id_) == id_ else ""
