"""Tool calls for models that do not support them.

The prompt describes the tools, and the output is constrained by a JSON Schema in which the model
either answers or calls one of them:

    {"answer": "It is noon."}
    {"tool": "clock", "arguments": {"zone": "UTC"}}

The first key decides which of the two it is, so that a small model decides once, early.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from component.models.answer_limits import NAME_CHARACTERS, NESTED_TOO_DEEPLY, too_complex
from component.models.contents import adapted
from component.models.messages import (
    ModelMessage,
    Role,
    ToolCall,
    ToolResultPart,
    answer_parts,
    call_ids_of,
    call_message,
    storable,
    text_message,
    text_of,
    with_distinct_ids,
)
from component.models.protocol import Completion, Model, ModelRequest, OnText, Tool, Void, Wrapped

# Measured with the small local model on five requests for a tool and five for none: one sample line
# for each choice worked best. It copies schemas, or samples that are separate from the tools.
_HOW = """Reply with one JSON object and nothing else. What the user wants decides which:
- Says hello, thanks, or asks in general: {"answer": "..."}"""
_FENCE = "```"
_HEAD = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_LONGEST_HEAD = 256
_STRING = re.compile(r'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_PART_OF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
# The first half of a surrogate pair at the end, whose other half may follow.
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SAYS_NOTHING = {"type", "title", "description", "properties"}
_CUT_CALL = re.compile(
    r'\s*\{\s*"tool"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*,?\s*(?:"arguments"\s*:\s*(.*))?', re.DOTALL
)


class Constrained(Wrapped):
    """Adds tool calls to a model that does not support them. Answers are still streamed.

    A `very_small` model gets examples, and has to answer as soon as it has a result, since it would
    repeat the same call.
    """

    def __init__(self, model: Model, *, very_small: bool = False) -> None:
        super().__init__(model)
        self._very_small = very_small

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete.

        Small models often repeat a call. If the model repeats a call of this turn exactly, it is
        asked once more, and can only answer.
        """
        if not request.tools:
            return await self._model.complete(constrain(request), on_text)
        if self._very_small:
            request = with_examples(request)
        has_result = bool(request.messages) and request.messages[-1].role == "tool"
        if request.tool_choice == "none" or (self._very_small and has_result):
            return await self._asked(request, on_text, answer_only=True)
        completion = await self._asked(request, on_text)
        if not _repeats(completion, request):
            return completion
        again = await self._asked(request, on_text, answer_only=True)
        return msgspec.structs.replace(again, usage=completion.usage + again.usage)

    async def _asked(
        self, request: ModelRequest, on_text: OnText | None, *, answer_only: bool = False
    ) -> Completion:
        constrained = constrain(request, answer_only=answer_only)
        if on_text is None:
            return parse(await self._model.complete(constrained), request)
        reader, told = AnswerText(), 0

        def on_piece(piece: str | Void) -> bool:
            nonlocal reader, told
            if isinstance(piece, Void):
                reader, told = AnswerText(), 0
                return bool(on_text(piece))
            text = reader.feed(piece)
            told += len(text)
            return bool(text and on_text(text))

        completion = parse(await self._model.complete(constrained, on_piece), request)
        if rest := completion.text[told:]:
            on_text(rest)
        return completion


def constrain(request: ModelRequest, *, answer_only: bool = False) -> ModelRequest:
    """Move the tools into prompt and schema, and convert the calls of the conversation to text.

    A request without tools keeps its schema; with tools, it becomes the schema of the answer. With
    `answer_only` the prompt still has the tools, but the model cannot call them.
    """
    goes_on = bool(request.tools) and not answer_only
    # Everything becomes text, including images and files.
    messages = _spoken(adapted(request.messages), answers=bool(request.tools), goes_on=goes_on)
    if not request.tools:
        return msgspec.structs.replace(request, messages=tuple(messages))
    told = _HOW + "".join(_line(tool) for tool in request.tools)
    if messages and messages[0].role == "system":
        # The tools come first, because the end of the instructions changes with each turn, and the
        # server caches the prompt up to there.
        messages[0] = text_message("system", f"{told}\n\n{messages[0].text}")
    else:
        messages.insert(0, text_message("system", told))
    return msgspec.structs.replace(
        request,
        messages=tuple(messages),
        tools=(),
        schema=msgspec.Raw(
            msgspec.json.encode(_schema(() if answer_only else request.tools, request.schema))
        ),
    )


def parse(completion: Completion, request: ModelRequest) -> Completion:
    """Convert the answer to `constrain(request)`.

    Without tools it is unchanged. Output that does not fit the schema, which providers without
    constrained output return, is the answer. Output that was cut off becomes the beginning of the
    text, or a call with incomplete arguments.
    """
    if not request.tools:
        return completion
    text = _unfenced(completion.text)
    said = _whole(text)
    answer, call = _cut(text) if said is None else _read(said)
    if answer is None and call is None:
        cut = completion.finish == "length" and text.lstrip()[:1] == "{" and said is None
        return msgspec.structs.replace(completion, parts=()) if cut else completion
    finish = completion.finish
    if finish in ("stop", "tool_calls"):
        finish = "tool_calls" if call else "stop"
    return msgspec.structs.replace(
        completion,
        parts=answer_parts(
            answer or "", with_distinct_ids((call,) if call else (), call_ids_of(request.messages))
        ),
        finish=finish,
    )


# -- the prompt ---------------------------------------------------------------------------------


def _spoken(
    messages: Sequence[ModelMessage], *, answers: bool, goes_on: bool
) -> list[ModelMessage]:
    """Convert calls and results to text.

    Those of this turn are added to the question, because a small model that sees them as a
    conversation continues to call tools. Earlier results become messages of the user, joined with
    the message that follows, since many templates require alternating roles.
    """
    question = _question(messages)
    out: list[ModelMessage] = []
    after_result = False
    for message in messages[: question + 1]:
        role: Role = message.role
        content = message.text
        if role == "assistant" and (message.tool_calls or answers):
            content = _as_written(message, answers=answers)
        elif role == "tool":
            role = "user"
            content = "\n".join(
                f"[result of {_call_of(result, messages)[0]}]\n{result.text}"
                for result in message.results
            )
        if role == "user" and after_result:
            out[-1] = text_message("user", f"{out[-1].text}\n\n{content}")
        else:
            out.append(text_message(role, content))
        after_result = message.role == "tool" or (after_result and role == "user")
    if told := _told(messages[question + 1 :], messages, goes_on=goes_on):
        out[-1] = text_message("user", f"{out[-1].text}\n\n{told}")
    return out


def _question(messages: Sequence[ModelMessage]) -> int:
    """The index of the last question if only calls and results follow it; else the last one."""
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if message.role == "user":
            return i
        if message.role == "system" or (message.role == "assistant" and not message.tool_calls):
            break
    return len(messages) - 1


def _told(turn: Sequence[ModelMessage], messages: Sequence[ModelMessage], *, goes_on: bool) -> str:
    """Describe the calls of this turn, with arguments only if a tool was used more than once."""
    used = [call.name for message in turn for call in message.tool_calls]
    parts = []
    for message in turn:
        for result in message.results:
            name, arguments = _call_of(result, messages)
            how = f"{name} with {arguments}" if used.count(name) > 1 else name
            parts.append(f"{how} has been used and gave:\n{result.text}")
        if message.role != "tool" and message.text:
            parts.append(f"You said: {message.text}")
    if parts:
        parts.append("Say it to me, or use another tool." if goes_on else "Say it to me.")
    return "\n".join(parts)


def _call_of(result: ToolResultPart, messages: Sequence[ModelMessage]) -> tuple[str, str]:
    for message in messages:
        for call in message.tool_calls:
            if call.id == result.id:
                return call.name, call.arguments
    return "a tool", "{}"


def _repeats(completion: Completion, request: ModelRequest) -> bool:
    turn = request.messages[_question(request.messages) + 1 :]
    answered = {result.id for message in turn for result in message.results}
    done = [
        (call.name, _value(call.arguments))
        for message in turn
        for call in message.tool_calls
        if call.id in answered
    ]
    return any((call.name, _value(call.arguments)) in done for call in completion.tool_calls)


def _as_written(message: ModelMessage, *, answers: bool) -> str:
    parts = []
    if text := message.text:
        said = json.dumps({"answer": text}, ensure_ascii=False)
        parts.append(said if answers else text)
    parts += [
        f'{{"tool": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'
        for call in message.tool_calls
    ]
    return "\n".join(parts)


def _line(tool: Tool) -> str:
    properties = _properties(msgspec.json.decode(tool.parameters))
    sample = {"tool": tool.name, "arguments": dict.fromkeys(properties, "...")}
    line = f"\n- {tool.description} {json.dumps(sample, ensure_ascii=False)}"
    notes = [f"{name}: {said}" for name, of in properties.items() if (said := _said(of))]
    return f"{line} ({'; '.join(notes)})" if notes else line


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _said(of: Any) -> str:
    """Return the description and the values of a parameter's schema."""
    if not isinstance(of, dict):
        return ""
    said = of.get("description") or ""
    if "enum" in of:
        said += f" one of {json.dumps(of['enum'], ensure_ascii=False)}"
    return str(said).strip()


# -- the schema ---------------------------------------------------------------------------------


def _schema(tools: Sequence[Tool], answer: msgspec.Raw | None) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    said = {"type": "string"} if answer is None else _placed(answer, "answer", shared)
    choices = [_object(answer=said)]
    for i, tool in enumerate(tools):
        arguments = _placed(tool.parameters, f"tool{i}", shared)
        if arguments.keys() <= _SAYS_NOTHING and not arguments.get("properties"):
            arguments = _object()  # with any object, models write irrelevant arguments
        choices.append(_object(tool={"const": tool.name}, arguments=arguments))
    # The type is redundant, but some providers require it at the root.
    schema: dict[str, Any] = {"type": "object", "anyOf": choices}
    return schema | {"$defs": shared} if shared else schema


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _placed(raw: msgspec.Raw, name: str, shared: dict[str, Any]) -> dict[str, Any]:
    """Return a schema for use inside another one; one with references is moved to `shared`."""
    schema = msgspec.json.decode(raw)
    if not isinstance(schema, dict):  # `true`: anything
        return {"type": "object"}
    moved = _moved(schema, f"#/$defs/{name}")
    if moved != schema:
        shared[name] = moved
        return {"$ref": f"#/$defs/{name}"}
    return schema


def _moved(value: Any, root: str) -> Any:
    if isinstance(value, list):
        return [_moved(item, root) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: root + item[1:]
        if key == "$ref" and isinstance(item, str) and item.startswith("#")
        else _moved(item, root)
        for key, item in value.items()
    }


# -- the answer ---------------------------------------------------------------------------------


def _unfenced(text: str) -> str:
    bare = text.strip()
    if not (bare.startswith(_FENCE) and bare.endswith(_FENCE) and len(bare) > 2 * len(_FENCE)):
        return text
    head, newline, body = bare[len(_FENCE) : -len(_FENCE)].partition("\n")
    return body.strip() if newline and head.strip() in ("", "json") else text


def _whole(text: str) -> dict[str, Any] | None:
    """Decode a complete object; text after it is ignored."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read(said: dict[str, Any]) -> tuple[str | None, ToolCall | None]:
    answer = call = None
    if (value := said.get("answer")) is not None:
        answer = _text(value)
    if isinstance(name := said.get("tool"), str):
        # Some models write the arguments as a string that contains JSON, like the API.
        call = ToolCall("", storable(name[:NAME_CHARACTERS]), _text(said.get("arguments", {})))
    return answer, call


def _text(value: Any) -> str:
    """Return a string unchanged, and anything else as JSON."""
    if isinstance(value, str):
        return storable(value)
    try:
        return storable(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return NESTED_TOO_DEEPLY


def _value(text: str) -> Any:
    try:
        return None if too_complex(text) else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cut(text: str) -> tuple[str | None, ToolCall | None]:
    if match := _CUT_CALL.match(text):
        name = _value(match[1])
        return None, ToolCall("", storable(str(name)[:NAME_CHARACTERS]), match[2] or "")
    if text.lstrip()[:1] != "{":
        return None, None
    return AnswerText().feed(text) or None, None


class AnswerText:
    """Decodes JSON in pieces, and returns the text of its first key, if that is `answer`.

    Output that begins neither like an object nor like a fence of Markdown is not JSON, and is
    returned unchanged. Other output is dropped.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._state: Literal["head", "text", "plain", "over"] = "head"

    def feed(self, piece: str) -> str:
        """Process the next piece, and return the text that is certain by now."""
        if self._state == "over":
            return ""
        self._rest += piece
        if self._state == "head":
            self._state = self._begun()
        if self._state == "plain":
            text, self._rest = self._rest, ""
            return text
        return self._decoded() if self._state == "text" else ""

    def _begun(self) -> Literal["head", "text", "plain", "over"]:
        head = self._rest.lstrip()
        if head and head[0] not in "{`":
            return "plain"
        if match := _HEAD.match(self._rest):
            self._rest = self._rest[match.end() :]
            return "text"
        if len(self._rest) > _LONGEST_HEAD:
            # Searching it again with each piece would take quadratic time.
            return "over"
        bare = "".join(head.split())
        return "head" if '{"answer":"'.startswith(bare) else "over"

    def _decoded(self) -> str:
        match = _STRING.match(self._rest)
        assert match is not None, "it matches nothing too"
        end = match.end()
        rest = self._rest[end:]
        if rest and not _PART_OF_ESCAPE.fullmatch(rest):  # its end, or no JSON after all
            self._state = "over"
        elif half := _HALF.search(self._rest, 0, end):
            end = half.start(1)
        text = str(json.loads(f'"{self._rest[:end]}"', strict=False))
        self._rest = self._rest[end:]
        return _SURROGATE.sub("\ufffd", text)


# -- examples for a very small model ------------------------------------------------------------
#
# It imitates them better than it follows descriptions. They call the tool whose words are in the
# question. If no tool has a word of it, the examples have only answers.

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
    schema, name = msgspec.json.decode(tool.parameters), _words_of(tool.name)
    out = []
    for turn, words in enumerate((name, f"Please {name.lower()}")):
        arguments = _sample_arguments(schema, turn)
        values = ", ".join(map(str, arguments.values()))
        call = ToolCall(f"example{turn}", tool.name, json.dumps(arguments, ensure_ascii=False))
        out += [text_message("user", f"{words} {values}."), call_message("", (call,))]
    return out


def fitting_tool(tools: Iterable[Tool], question: str) -> Tool | None:
    """Return the tool that shares most words with a question; words of its name count twice."""
    asked = _stems(question)
    best, most = None, 0
    for tool in tools:
        name, description = _stems(_words_of(tool.name)), _stems(tool.description)
        shared = 2 * len(asked & name) + len(asked & description)
        if shared > most:
            best, most = tool, shared
    return best


def _words_of(name: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def _stems(text: str) -> set[str]:
    return {word[:_STEM] for word in _WORD.findall(text.lower()) if not _COMMON.fullmatch(word)}


def _sample_arguments(schema: Any, turn: int) -> dict[str, Any]:
    properties = _properties(schema)
    named = schema.get("required") if properties else None
    required = [name for name in properties if isinstance(named, list) and name in named]
    return {name: _sample(properties[name], turn) for name in required or list(properties)[:1]}


def _sample(schema: Any, turn: int) -> Any:
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
