"""Reasoning that compatible servers send in other fields than the text, or in the text.

The parts of an answer keep it in the form in which the server wants it back, as a JSON object with
one of these fields:

| field | servers |
|---|---|
| `reasoning_content` | DeepSeek, Qwen, Moonshot, Zhipu, SGLang, older vLLM |
| `reasoning` | vLLM, Ollama, Groq, Together, OpenRouter |
| `reasoning_details` | OpenRouter: a list with signatures |
| `thinking` | Mistral: a part of the content |
| `text` | all others: a part of the text itself, tags included |
| `extra_content` and others of `MORE_FIELDS` | Gemini, LiteLLM: signatures beside the text |

Those beside a call are in `call_fields`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from component.models import call_fields
from component.models.answer_draft import AnswerDraft
from component.models.chat_wire import MORE_FIELDS
from component.models.messages import OpaquePart, Part, TextPart
from component.models.storable import storable
from component.models.tolerant_json import BadJSONError, encode_any

FIELDS: Final = ("reasoning_details", "reasoning_content", "reasoning")
"""The fields of a message. Servers that send several of them repeat themselves."""
_GROWING: Final = ("text", "summary", "data")


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

    def add_fields(self, said: Mapping[str, Any]) -> bool:
        """Add the values that a message, or a piece of one, has for `FIELDS`. Returns whether it
        has any.
        """
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
            return True
        return False

    def add_more(self, fields: Mapping[str, Any]) -> None:
        """Add other fields of a message, or of a piece of one, that go back with it."""
        try:
            self._draft.reasoning(encode_any(fields).decode())
        except BadJSONError:
            return
        call_fields.add_fields(self._more, fields)

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
        try:
            data = encode_any(fields)
            msgspec.json.decode(data)
        except (BadJSONError, msgspec.DecodeError):
            return  # halves of characters, or nested too deeply: nobody wants to get it back
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


def returned(parts: Iterable[Part]) -> dict[str, Any]:
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
                    call_fields.add_fields(fields, {field: value})
    text = "".join([each.get("text", "") for each in content])
    plain = all(each["type"] == "text" for each in content)
    return {"content": text if plain else content} | fields


def _say(content: list[dict[str, Any]], text: str) -> None:
    if content and content[-1]["type"] == "text":
        content[-1]["text"] += text
    else:
        content.append({"type": "text", "text": text})
