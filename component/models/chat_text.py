"""Separates the text of an answer of chat completions into text, reasoning and calls."""

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from component.models import harmony
from component.models.answer_draft import AnswerDraft
from component.models.answer_limits import OPAQUE_BYTES, TooMuchError
from component.models.harmony import FramedCall, Harmony
from component.models.protocol import ModelRequest
from component.models.reasoning import Reasoning
from component.models.tool_names import ToolNames
from component.models.written_calls import WrittenCalls
from component.models.written_thoughts import Piece, WrittenThoughts

_OPENED: Final = re.compile(r"\br1\b|qwq|thinking|reason", re.IGNORECASE)
"""Models whose templates write `<think>` into the prompt."""


class AnswerText:
    """A text without reasoning or calls."""

    def __init__(self, draft: AnswerDraft, reasoning: Reasoning) -> None:
        self._draft = draft
        self._reasoning = reasoning
        self._begun = False

    def feed(self, text: str) -> None:
        """Process the next piece. All methods raise TooMuchError."""
        if text and not self._begun:
            # Some servers send a byte order mark, which would hide how the answer begins.
            text = text.removeprefix("\ufeff")
            self._begun = bool(text)
        if text:
            self._reasoning.flush()
            self._draft.say(text)

    def apart(self) -> None:
        """Note that the server sends reasoning separately from the text."""

    def before_call(self) -> None:
        """Note that a tool call follows."""
        self._reasoning.flush()

    def end(self) -> None:
        """End the text."""


class Habits:
    """The known habits of a model.

    Attributes:
        opened: whether its answers begin with reasoning that has no opening tag.
    """

    def __init__(self, model: str) -> None:
        self.opened = _OPENED.search(model) is not None


class MixedText(AnswerText):
    """A text in which there may be reasoning and calls; see Harmony, WrittenThoughts and
    WrittenCalls.
    """

    def __init__(
        self, draft: AnswerDraft, reasoning: Reasoning, calls: WrittenCalls, habits: Habits
    ) -> None:
        super().__init__(draft, reasoning)
        self._habits = habits
        self._harmony = Harmony()
        self._thoughts = WrittenThoughts(opened=habits.opened)
        self._calls = calls
        self._characters = 0
        self._native_calls = False

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if not self._characters:
            text = text.removeprefix("\ufeff")
        self._characters += len(text)
        if self._characters > OPAQUE_BYTES:
            raise TooMuchError(f"a text of more than {OPAQUE_BYTES:,} characters")
        self._draft.began = self._draft.began or bool(text)
        for piece in self._harmony.feed(text):
            self._take_framed(piece)

    def apart(self) -> None:
        """Note that the server sends reasoning separately from the text."""
        for piece in self._thoughts.apart():
            self._take(piece)

    def before_call(self) -> None:
        """Note that a tool call follows."""
        self._native_calls = True
        self._say(self._calls.stop())
        self._reasoning.flush()

    def end(self) -> None:
        """No more of the text comes."""
        for framed in self._harmony.end():
            self._take_framed(framed)
        for piece in self._thoughts.end():
            self._take(piece)
        if self._characters:
            self._habits.opened = self._thoughts.was_opened
        rest, calls = self._calls.end()
        self._say(rest)
        for name, arguments in calls:
            self._make(name, arguments)

    def _take_framed(self, piece: harmony.Piece) -> None:
        if isinstance(piece, FramedCall):
            self._call(piece)
            return
        kind, text = piece
        match kind:
            case "plain":
                for each in self._thoughts.feed(text):
                    self._take(each)
            case "said":
                self._say(text)
            case "thought":
                # The templates of this format refuse messages with its marks.
                self._reasoning.add("reasoning", text)

    def _call(self, framed: FramedCall) -> None:
        call = self._calls.framed(framed.source, framed.name, framed.arguments)
        if call is not None:
            self._make(*call)
        elif framed.is_thought:
            self._reasoning.add("reasoning", framed.source)
        else:
            self._say(framed.source)

    def _make(self, name: str, arguments: str) -> None:
        self._reasoning.flush()
        self._draft.add_arguments(self._draft.call("", name), arguments)

    def _take(self, piece: Piece) -> None:
        kind, text = piece
        match kind:
            case "said":
                self._say(self._calls.feed(text))
            case "thought":
                self._reasoning.add("text", text)
            case "unsaid":
                text = self._draft.withdraw() + self._calls.withdraw()
                if text:
                    self._reasoning.add("text", text)

    def _say(self, text: str) -> None:
        super().feed(text)


TextReader: TypeAlias = Callable[[AnswerDraft, Reasoning], AnswerText]
"""Makes the reader for the text of one answer."""


def mixed_text(request: ModelRequest, names: ToolNames, habits: Habits) -> TextReader:
    """How to read the text of an answer to this request."""
    offered = request.tools if request.tool_choice != "none" else ()
    tools = {names.theirs(tool.name): _schema(bytes(tool.parameters)) for tool in offered}

    def is_quoted(text: str) -> bool:
        return any(text in message.text for message in request.messages if _is_heard(message.role))

    def make(draft: AnswerDraft, reasoning: Reasoning) -> AnswerText:
        return MixedText(draft, reasoning, WrittenCalls(tools, is_quoted), habits)

    return make


def _is_heard(role: str) -> bool:
    return role in ("user", "tool")


def _schema(encoded: bytes) -> dict[str, Any]:
    schema = json.loads(encoded)
    return schema if isinstance(schema, dict) else {}
