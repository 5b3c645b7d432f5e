"""The text of an answer of chat completions, with the reasoning and the calls that are in it.

Reasoning comes in other fields than the text, or in the text. The parts of an answer keep it in the
form in which the server wants it back, as a JSON object with one of these fields:

| field | servers |
|---|---|
| `reasoning_content` | DeepSeek, Qwen, Moonshot, Zhipu, SGLang, older vLLM |
| `reasoning` | vLLM, Ollama, Groq, Together, OpenRouter |
| `reasoning_details` | OpenRouter: a list with signatures |
| `thinking` | Mistral: a part of the content |
| `text` | all others: a part of the text itself, tags included |
| `extra_content` and others of `MORE_FIELDS` | Gemini, LiteLLM: signatures beside the text |

Those beside a call are in `messages.with_fields`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from component.models.answer_draft import AnswerDraft
from component.models.answer_limits import (
    OPAQUE_BYTES,
    BadJSONError,
    TooMuchError,
    decode_any,
    encode_any,
    encoded_object,
)
from component.models.messages import OpaquePart, Part, TextPart, add_fields, storable
from component.models.protocol import ModelRequest
from component.models.tool_schemas import ToolNames
from component.models.written_calls import WrittenCalls
from component.models.written_text import (
    FramedCall,
    Harmony,
    HarmonyPiece,
    ThoughtPiece,
    WrittenThoughts,
)

FIELDS: Final = ("reasoning_details", "reasoning_content", "reasoning")
"""The fields of a message. Servers that send several of them repeat themselves."""
_GROWING: Final = ("text", "summary", "data")
_MORE: Final = (
    r"extra_content|provider_specific_fields|thinking_blocks|reasoning_(?!content\b|details\b)\w+"
    r"|thought\w*|\w*(signature|encrypted|opaque)\w*"
)
MORE_FIELDS: Final = re.compile(_MORE)
"""Names of fields that go back to the provider that has sent them."""
_MAY_HAVE_MORE: Final = re.compile(rf'"({_MORE})"\s*:'.encode())


def more_fields(data: bytes) -> dict[str, Any]:
    """Return fields of a message, or of a piece of one, that its provider wants back and that have
    no other place: signatures, sealed reasoning, whatever they are called.
    """
    if not _MAY_HAVE_MORE.search(data):
        return {}
    try:
        choice = decode_any(data)["choices"][0]
        said = choice.get("delta") or choice["message"]
        return {k: v for k, v in said.items() if v and MORE_FIELDS.fullmatch(k)}
    except (BadJSONError, AttributeError, TypeError, LookupError):
        return {}


class Reasoning:
    """Collects reasoning, and adds it to the draft as an opaque part in its place."""

    def __init__(self, draft: AnswerDraft) -> None:
        self._draft = draft
        self._field = ""
        self._used = ""
        self._pieces: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._more: dict[str, Any] = {}

    def add(self, field: str, piece: str) -> None:
        """Add a piece of reasoning."""
        self._begin(field)
        self._draft.reasoning(piece)
        self._pieces.append(piece)

    def add_fields(self, said: Mapping[str, Any]) -> None:
        """Add the value that a message, or a piece of one, has for one of `FIELDS`."""
        for field in FIELDS:
            value = said.get(field)
            if not value or (self._used and field != self._used):
                continue
            if field == "reasoning_details":
                if not isinstance(value, list):
                    continue
                self._begin(field)
                for detail in value:
                    if isinstance(detail, dict):
                        self._detail(detail)
            elif isinstance(value, str):
                self.add(field, value)
            else:
                continue
            self._used = field
            return

    def add_more(self, fields: Mapping[str, Any]) -> None:
        """Add other fields of a message, or of a piece of one, that go back with it."""
        try:
            self._draft.reasoning(encode_any(fields).decode())
        except BadJSONError:
            return
        add_fields(self._more, fields)

    def end(self) -> None:
        """The answer has ended."""
        self.flush()
        more, self._more = self._more, {}
        if more:
            self._keep(more)

    def flush(self) -> None:
        """The reasoning has ended for now: something else follows."""
        field, self._field = self._field, ""
        if not field:
            return
        value: Any = storable("".join(self._pieces))
        if field == "reasoning_details":
            value = [_joined(detail) for detail in self._details]
        elif field == "thinking":
            value = [{"type": "text", "text": value}]
        self._pieces, self._details = [], []
        self._keep({field: value})

    def _keep(self, fields: Mapping[str, Any]) -> None:
        if (data := encoded_object(fields)) is not None:
            self._draft.opaque(data)

    def _begin(self, field: str) -> None:
        if self._field != field:
            self.flush()
            self._field = field

    def _detail(self, detail: dict[str, Any]) -> None:
        """Add a piece of a list; pieces of one entry have its type and index."""
        try:
            self._draft.reasoning(encode_any(detail).decode())
        except BadJSONError:
            return
        last = self._details[-1] if self._details else {}
        same = all(last.get(key) == detail.get(key) for key in ("type", "index"))
        if not same or detail.get("index") is None:
            last = {}
            self._details.append(last)
        for key, value in detail.items():
            if key in _GROWING and isinstance(value, str):
                pieces = last.get(key)
                if not isinstance(pieces, list):
                    pieces = last[key] = []
                pieces.append(value)
            elif value is not None or key not in last:
                last[key] = value


def _joined(detail: dict[str, Any]) -> dict[str, Any]:
    return {
        key: storable("".join(value)) if key in _GROWING and isinstance(value, list) else value
        for key, value in detail.items()
    }


def returned_content(parts: Iterable[Part]) -> dict[str, Any]:
    """The content and the fields of an assistant's message, with its reasoning in their form.

    The content is a list if the reasoning is a part of it, otherwise a text.
    """
    content: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, TextPart):
            _say(content, part.text)
        elif isinstance(part, OpaquePart):
            data = msgspec.json.decode(part.data)
            for field, value in data.items() if isinstance(data, dict) else ():
                if field == "text":
                    _say(content, value)
                elif field == "thinking":
                    content.append({"type": "thinking", "thinking": value})
                elif field in FIELDS:
                    fields[field] = fields[field] + value if field in fields else value
                elif MORE_FIELDS.fullmatch(field):
                    add_fields(fields, {field: value})
    text = "".join([each.get("text", "") for each in content])
    plain = all(each["type"] == "text" for each in content)
    return {"content": text if plain else content} | fields


def _say(content: list[dict[str, Any]], text: str) -> None:
    if content and content[-1]["type"] == "text":
        content[-1]["text"] += text
    else:
        content.append({"type": "text", "text": text})


_OPENED: Final = re.compile(r"\br1\b|qwq|thinking|reason", re.IGNORECASE)
"""Models whose templates write `<think>` into the prompt."""


class Habits:
    """The habits of a model: `opened` if answers begin with reasoning without its opening tag."""

    def __init__(self, model: str) -> None:
        self.opened = _OPENED.search(model) is not None


class MixedText:
    """A text in which there may be reasoning and calls."""

    def __init__(
        self, draft: AnswerDraft, reasoning: Reasoning, calls: WrittenCalls, habits: Habits
    ) -> None:
        self._draft = draft
        self._reasoning = reasoning
        self._habits = habits
        self._harmony = Harmony()
        self._thoughts = WrittenThoughts(opened=habits.opened)
        self._calls = calls
        self._characters = 0

    def feed(self, text: str) -> None:
        """Take the next piece. All methods raise TooMuchError."""
        if not self._characters:
            # Some servers send a byte order mark, which would hide how the answer begins.
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
        self._say(self._calls.stop())

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

    def _take_framed(self, piece: HarmonyPiece) -> None:
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

    def _take(self, piece: ThoughtPiece) -> None:
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
        if text:
            self._reasoning.flush()
            self._draft.say(text)


def written_calls(request: ModelRequest, names: ToolNames) -> WrittenCalls:
    """Make the reader for calls in the text of an answer to this request."""
    offered = request.tools if request.tool_choice != "none" else ()
    schemas = {names.theirs(tool.name): json.loads(bytes(tool.parameters)) for tool in offered}
    heard = [message for message in request.messages if message.role in ("user", "tool")]
    return WrittenCalls(
        {name: schema if isinstance(schema, dict) else {} for name, schema in schemas.items()},
        lambda text: any(text in message.text for message in heard),
    )
