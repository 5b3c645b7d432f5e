"""Requirements of chat completions servers beyond OpenAI's API, learned from their errors.

A refused request is sent again in the form that the server wants, and so are all later ones.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import structlog

from component.models.chat_wire import MORE_FIELDS
from component.models.faults import Fault
from component.models.messages import ModelMessage, TextPart, text_message
from component.models.reasoning import FIELDS

_log = structlog.get_logger("component.models")

Quirk: TypeAlias = Literal[
    "alternating roles",
    "no system message",
    "ids of nine characters",
    "reasoning in every message",
    "no reasoning",
    "signatures of calls",
]

_FIELD: Final = re.compile(
    rf"\b({'|'.join(FIELDS)}|thinking|thinking_blocks|extra_content|provider_specific_fields"
    r"|thought_signature)\b"
)
_REFUSALS: Final[Mapping[Quirk, re.Pattern[str]]] = {
    # Templates of Mistral and Gemma, and Mistral's API.
    "alternating roles": re.compile(
        r"roles must alternate|unexpected role '?\w+'? after|must alternate between", re.IGNORECASE
    ),
    "no system message": re.compile(
        r"system (role|message|prompt)s? (is |are )?not supported", re.IGNORECASE
    ),
    "ids of nine characters": re.compile(
        r"tool[ _]call id.{0,80}length (of|is|must be) 9|tool[ _]call ids? should be alphanumeric",
        re.IGNORECASE | re.DOTALL,
    ),
    # DeepSeek and Moonshot, of messages that another model wrote.
    "reasoning in every message": re.compile(
        r"reasoning_content\W.{0,60}(must be passed back|is missing|is required)"
        r"|missing .?reasoning_content",
        re.IGNORECASE | re.DOTALL,
    ),
    # Gemini, of calls that another model has made.
    "signatures of calls": re.compile(r"missing a .?thought.?signature", re.IGNORECASE),
}
_UNREAD: Final = re.compile(
    r"extra (inputs|fields)|not (be )?(supported|permitted|allowed)|unexpected|unknown|unrecognized"
    r"|please remove",  # DeepSeek's first models
    re.IGNORECASE,
)
_UNSIGNED: Final = "skip_thought_signature_validator"
_EARLIER: Final = "[Earlier messages are not shown.]"
_READ: Final = "I have the results."
_ID: Final = re.compile("[A-Za-z0-9]{9}")


class Quirks:
    """The demands that one server has made. Without any, nothing is changed."""

    def __init__(self) -> None:
        self._known: set[Quirk] = set()

    def learn(self, fault: Fault) -> bool:
        """Learn a requirement from an error; False if it is not a new one."""
        for quirk, refusal in _REFUSALS.items():
            if refusal.search(fault.message):
                return self._add(quirk)
        unread = _FIELD.search(fault.message) and _UNREAD.search(fault.message)
        return bool(unread) and self._add("no reasoning")

    def _add(self, quirk: Quirk) -> bool:
        if quirk in self._known:
            return False
        self._known.add(quirk)
        _log.info("a model server wants requests in another form", form=quirk)
        return True

    def arranged(self, messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
        """The messages, whose roles are normalized, in the order that the server wants."""
        out = list(messages)
        if "no system message" in self._known and out and out[0].role == "system":
            system, *rest = out
            if rest and rest[0].role == "user":
                parts = (TextPart(f"{system.text}\n\n"), *rest[0].parts)
                out = [ModelMessage("user", parts), *rest[1:]]
            else:
                out = [text_message("user", system.text), *rest]
        if "alternating roles" in self._known:
            out = _alternating(out)
        return tuple(out)

    def written(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The translated messages with the fields that the server wants."""
        changes: dict[Quirk, Callable[[dict[str, Any]], None]] = {
            "ids of nine characters": _shorten,
            "no reasoning": _without_reasoning,
            "reasoning in every message": _with_reasoning,
            "signatures of calls": _with_signatures,
        }
        for quirk, change in changes.items():
            if quirk in self._known:
                for message in messages:
                    change(message)
        return messages


def _alternating(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Have the user begin, and an assistant's message between results and the user.

    Templates do not count calls and results: the user before and after them would be in a row.
    """
    out: list[ModelMessage] = []
    for message in messages:
        if message.role == "assistant" and (not out or out[-1].role == "system"):
            out.append(text_message("user", _EARLIER))
        elif message.role == "user" and out and out[-1].role == "tool":
            out.append(text_message("assistant", _READ))
        out.append(message)
    return out


def _shorten(message: dict[str, Any]) -> None:
    if "tool_call_id" in message:
        message["tool_call_id"] = _short(message["tool_call_id"])
    for call in message.get("tool_calls", ()):
        call["id"] = _short(call["id"])


def _short(id_: str) -> str:
    """An id of nine letters and digits, the same for the same id."""
    return id_ if _ID.fullmatch(id_) else hashlib.sha256(id_.encode()).hexdigest()[:9]


def _without_reasoning(message: dict[str, Any]) -> None:
    for field in [key for key in message if key in FIELDS or MORE_FIELDS.fullmatch(key)]:
        del message[field]
    for call in message.get("tool_calls", ()):
        for field in [key for key in call if key not in ("id", "type", "function")]:
            del call[field]
    if isinstance(message.get("content"), list) and message["role"] == "assistant":
        parts = [part for part in message["content"] if part["type"] != "thinking"]
        text = "".join([part["text"] for part in parts])
        message["content"] = text if text or "tool_calls" not in message else None


def _with_signatures(message: dict[str, Any]) -> None:
    """Sign the first call of a message, as Google's documentation says for calls of other models
    (https://ai.google.dev/gemini-api/docs/thought-signatures).
    """
    for call in message.get("tool_calls", ())[:1]:
        call.setdefault("extra_content", {"google": {"thought_signature": _UNSIGNED}})


def _with_reasoning(message: dict[str, Any]) -> None:
    if message["role"] == "assistant":
        message.setdefault("reasoning_content", "")
