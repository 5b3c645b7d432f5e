"""Example exchanges for a very small model, which imitates them better than it follows
descriptions.

They call the tool whose words are in the question. If no tool has a word of it, the examples have
only answers.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from component.models.messages import (
    ModelMessage,
    ToolCall,
    call_message,
    text_message,
    text_of,
)
from component.models.protocol import ModelRequest, Tool

_ANSWERS = (
    ("Hello!", "Hello! What can I do for you?"),
    ("Who are you?", "I am your assistant. I can talk with you and use tools."),
    ("Thank you!", "You are welcome."),
)
_TEXTS = ("blue-7.txt", "My green house")
_WORD = re.compile(r"[a-z]{3,}")
_SUCH_AS = re.compile(r"such as ([^\s,;]*[^\s,;.])")
_STEM = 5  # letters: words with the same beginning count as the same word
_COMMON = re.compile(
    "about|all|and|any|are|ask|can|could|did|does|for|from|give|had|has|have|him|her|his|how|its|let"
    "|may|not|now|one|our|out|please|see|some|such|than|that|the|their|them|then|there|these|they"
    "|this|use|was|were|what|when|where|which|who|why|will|with|would|you|your"
)


def with_examples(request: ModelRequest) -> ModelRequest:
    """Add examples before a question; none after a result of a tool, or without tools."""
    messages = request.messages
    if not (request.tools and messages and messages[-1].role == "user"):
        return request
    # After the conversation, because the model imitates the messages just before.
    shown = examples(request.tools, text_of(messages[-1].parts[-1:]))
    messages = (*messages[:-1], *shown, messages[-1])
    return msgspec.structs.replace(request, messages=messages)


def examples(tools: Sequence[Tool], question: str) -> list[ModelMessage]:
    """Make the exchanges to add before a question."""
    tool = fitting_tool(tools, question)
    if tool is None:
        return [
            message
            for said, answer in _ANSWERS
            for message in (text_message("user", said), text_message("assistant", answer))
        ]
    schema, name = msgspec.json.decode(tool.parameters), _spoken(tool.name)
    out = []
    for turn, words in enumerate((name, f"Please {name.lower()}")):
        arguments = _arguments(schema, turn)
        values = ", ".join(map(str, arguments.values()))
        call = ToolCall(f"example{turn}", tool.name, json.dumps(arguments, ensure_ascii=False))
        out += [
            text_message("user", f"{words} {values}."),
            call_message("", (call,)),
        ]
    return out


def fitting_tool(tools: Iterable[Tool], question: str) -> Tool | None:
    """Return the tool that shares most words with a question; words of its name count twice."""
    asked = _stems(question)
    best, most = None, 0
    for tool in tools:
        name, description = _stems(_spoken(tool.name)), _stems(tool.description)
        shared = 2 * len(asked & name) + len(asked & description)
        if shared > most:
            best, most = tool, shared
    return best


def _spoken(name: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def _stems(text: str) -> set[str]:
    return {word[:_STEM] for word in _WORD.findall(text.lower()) if not _COMMON.fullmatch(word)}


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _arguments(schema: Any, turn: int) -> dict[str, Any]:
    """Make the required arguments, or the first one if none is required."""
    properties = _properties(schema)
    named = schema.get("required") if properties else None
    required = [name for name in properties if isinstance(named, list) and name in named]
    return {name: _value(properties[name], turn) for name in required or list(properties)[:1]}


def _value(schema: Any, turn: int) -> Any:
    """Make a value; another one in each turn, or it is taken for the only one."""
    if not isinstance(schema, dict):
        return _TEXTS[turn]
    for key in ("examples", "enum"):
        if isinstance(values := schema.get(key), list) and values:
            return values[turn % len(values)]
    if "const" in schema:
        return schema["const"]
    if not turn and (found := _SUCH_AS.search(str(schema.get("description", "")))):
        return found[1]
    match schema.get("type"):
        case "integer" | "number":
            least = schema.get("minimum", 1)
            return least + turn if isinstance(least, int | float) else turn
        case "boolean":
            return not turn
        case "array":
            return []
        case "object":
            return {}
        case _:
            return _TEXTS[turn]
