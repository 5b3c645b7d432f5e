"""Tool calls for models that make none by themselves.

The tools are told in the prompt, and the output is held to a JSON Schema in which the model either
answers or calls one of them:

    {"answer": "It is noon."}
    {"tool": "clock", "arguments": {"zone": "UTC"}}

Which of the two it is stands in the first word, so that a small model decides once, early.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from component.models import call_ids
from component.models.answer_limits import NAME_CHARACTERS, too_complex
from component.models.answer_text import AnswerText
from component.models.protocol import (
    ChatMessage,
    Completion,
    Model,
    ModelRequest,
    OnText,
    Role,
    Tool,
    ToolCall,
    Usage,
)
from component.models.storable import storable

# Tried with the small local model, of five requests for a tool and five for none: one sample line
# for each choice did best. Schemas, or samples apart from the tools, it copies instead of reading.
_HOW = """Reply with one JSON object and nothing else. What the user wants decides which:
- Says hello, thanks, or asks in general: {"answer": "..."}"""
_FENCE = "```"
_SAYS_NOTHING = {"type", "title", "description", "properties"}
_CUT_CALL = re.compile(
    r'\s*\{\s*"tool"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*,?\s*(?:"arguments"\s*:\s*(.*))?', re.DOTALL
)


class Constrained:
    """A model that makes no tool calls, as one that does. What it answers is still streamed.

    With `one_round` it answers as soon as it has a result: a very small model would go on and call
    whatever was called before.
    """

    def __init__(self, model: Model, *, one_round: bool = False) -> None:
        self._model = model
        self._one_round = one_round
        self.name = model.name
        self.context_tokens = model.context_tokens
        self.usd_per_token_in = model.usd_per_token_in
        self.usd_per_token_out = model.usd_per_token_out

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model; see Model.complete.

        A small model likes to ask for what it was just given: if it repeats a call of this turn to
        the letter, it is asked once more, and can only answer.
        """
        if not request.tools:
            return await self._model.complete(constrain(request), on_text)
        if self._one_round and request.messages and request.messages[-1].role == "tool":
            return await self._asked(request, on_text, answer_only=True)
        completion = await self._asked(request, on_text)
        if not _repeats(completion, request):
            return completion
        again = await self._asked(request, on_text, answer_only=True)
        return msgspec.structs.replace(again, usage=_sum(completion.usage, again.usage))

    async def _asked(
        self, request: ModelRequest, on_text: OnText | None, *, answer_only: bool = False
    ) -> Completion:
        constrained = constrain(request, answer_only=answer_only)
        if on_text is None:
            return parse(await self._model.complete(constrained), request)
        reader, told = AnswerText(), 0

        def on_piece(piece: str) -> None:
            nonlocal told
            if text := reader.feed(piece):
                told += len(text)
                on_text(text)

        completion = parse(await self._model.complete(constrained, on_piece), request)
        if rest := completion.text[told:]:
            on_text(rest)
        return completion

    def tokens(self, text: str) -> int:
        """See Model.tokens."""
        return self._model.tokens(text)

    async def aclose(self) -> None:
        """Close the model."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()


def constrain(request: ModelRequest, *, answer_only: bool = False) -> ModelRequest:
    """Put the tools into prompt and schema, and the calls of the conversation into words.

    A request without tools keeps its own schema; one with both has it as the schema of the answer.
    With `answer_only` the tools are told all the same, but none can be called.
    """
    goes_on = bool(request.tools) and not answer_only
    messages = _spoken(request.messages, answers=bool(request.tools), goes_on=goes_on)
    if not request.tools:
        return msgspec.structs.replace(request, messages=tuple(messages))
    told = _HOW + "".join(_line(tool) for tool in request.tools)
    if messages and messages[0].role == "system":
        # First, since the end of the instructions changes from turn to turn: what is before that is
        # not read again.
        messages[0] = ChatMessage("system", f"{told}\n\n{messages[0].content}")
    else:
        messages.insert(0, ChatMessage("system", told))
    return msgspec.structs.replace(
        request,
        messages=tuple(messages),
        tools=(),
        schema=msgspec.Raw(
            msgspec.json.encode(_schema(() if answer_only else request.tools, request.schema))
        ),
    )


def parse(completion: Completion, request: ModelRequest) -> Completion:
    """Read what was answered to `constrain(request)`.

    Without tools there is nothing to read. Output that is not as asked, which a provider that holds
    to no schema may give, is an answer as it stands. One that was cut keeps what there is: a part
    of the text, or a call whose arguments are cut.
    """
    if not request.tools:
        return completion
    text = completion.text
    text = _unfenced(text)
    said = _whole(text)
    answer, call = _cut(text) if said is None else _read(said)
    if answer is None and call is None:
        cut = completion.finish == "length" and text.lstrip()[:1] == "{" and said is None
        return msgspec.structs.replace(completion, text="" if cut else completion.text)
    finish = completion.finish
    if finish in ("stop", "tool_calls"):
        finish = "tool_calls" if call else "stop"
    return msgspec.structs.replace(
        completion,
        text=answer or "",
        tool_calls=call_ids.distinct((call,) if call else (), call_ids.taken(request)),
        finish=finish,
    )


# -- what the model is shown --------------------------------------------------------------------


def _spoken(messages: Sequence[ChatMessage], *, answers: bool, goes_on: bool) -> list[ChatMessage]:
    """Put calls and results into words.

    Those of this turn join the question: told as a conversation, a small model goes on with asking.
    Elsewhere a result is told by the user, and what follows joins it, since many templates want the
    turns to alternate.
    """
    question = _question(messages)
    out: list[ChatMessage] = []
    after_result = False
    for message in messages[: question + 1]:
        role: Role = message.role
        content = message.content
        if role == "assistant" and (message.tool_calls or answers):
            content = _as_written(message, answers=answers)
        elif role == "tool":
            role = "user"
            content = f"[result of {_call_of(message, messages)[0]}]\n{content}"
        if role == "user" and after_result:
            out[-1] = ChatMessage("user", f"{out[-1].content}\n\n{content}")
        else:
            out.append(ChatMessage(role, content))
        after_result = message.role == "tool" or (after_result and role == "user")
    if told := _told(messages[question + 1 :], messages, goes_on=goes_on):
        out[-1] = ChatMessage("user", f"{out[-1].content}\n\n{told}")
    return out


def _question(messages: Sequence[ChatMessage]) -> int:
    """Where the last question stands, if all that follows are calls and results; else the end."""
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if message.role == "user":
            return i
        if message.role == "system" or (message.role == "assistant" and not message.tool_calls):
            break
    return len(messages) - 1


def _told(turn: Sequence[ChatMessage], messages: Sequence[ChatMessage], *, goes_on: bool) -> str:
    """Tell what was done in this turn. Arguments only where a tool was used more than once."""
    used = [call.name for message in turn for call in message.tool_calls]
    parts = []
    for message in turn:
        if message.role == "tool":
            name, arguments = _call_of(message, messages)
            how = f"{name} with {arguments}" if used.count(name) > 1 else name
            parts.append(f"{how} has been used and gave:\n{message.content}")
        elif message.content:
            parts.append(f"You said: {message.content}")
    if parts:
        parts.append("Say it to me, or use another tool." if goes_on else "Say it to me.")
    return "\n".join(parts)


def _call_of(result: ChatMessage, messages: Sequence[ChatMessage]) -> tuple[str, str]:
    """Name and arguments of the call that a result is of."""
    for message in messages:
        for call in message.tool_calls:
            if call.id == result.tool_call_id:
                return call.name, call.arguments
    return "a tool", "{}"


def _repeats(completion: Completion, request: ModelRequest) -> bool:
    """Whether it asks for a call of this turn again, whose result it was shown."""
    turn = request.messages[_question(request.messages) + 1 :]
    answered = {message.tool_call_id for message in turn if message.role == "tool"}
    done = [
        (call.name, _value(call.arguments))
        for message in turn
        for call in message.tool_calls
        if call.id in answered
    ]
    return any((call.name, _value(call.arguments)) in done for call in completion.tool_calls)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.tokens_in + other.tokens_in,
        one.tokens_out + other.tokens_out,
        one.cost_usd + other.cost_usd,
        one.estimated or other.estimated,
    )


def _as_written(message: ChatMessage, *, answers: bool) -> str:
    parts = []
    if message.content:
        said = json.dumps({"answer": message.content}, ensure_ascii=False)
        parts.append(said if answers else message.content)
    parts += [
        f'{{"tool": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'
        for call in message.tool_calls
    ]
    return "\n".join(parts)


def _line(tool: Tool) -> str:
    schema = msgspec.json.decode(tool.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    sample = {"tool": tool.name, "arguments": dict.fromkeys(properties, "...")}
    line = f"\n- {tool.description} {json.dumps(sample, ensure_ascii=False)}"
    notes = [f"{name}: {said}" for name, of in properties.items() if (said := _said(of))]
    return f"{line} ({'; '.join(notes)})" if notes else line


def _said(of: Any) -> str:
    """What a parameter's schema says that its type does not."""
    if not isinstance(of, dict):
        return ""
    said = of.get("description") or ""
    if "enum" in of:
        said += f" one of {json.dumps(of['enum'], ensure_ascii=False)}"
    return str(said).strip()


# -- what it is held to -------------------------------------------------------------------------


def _schema(tools: Sequence[Tool], answer: msgspec.Raw | None) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    said = {"type": "string"} if answer is None else _placed(answer, "answer", shared)
    choices = [_object(answer=said)]
    for i, tool in enumerate(tools):
        arguments = _placed(tool.parameters, f"tool{i}", shared)
        if arguments.keys() <= _SAYS_NOTHING and not arguments.get("properties"):
            arguments = _object()  # any object at all would be an invitation to ramble
        choices.append(_object(tool={"const": tool.name}, arguments=arguments))
    # The type says nothing new; some providers look for it at the root.
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
    """Give the schema for use inside another one; one that refers to itself goes to `shared`."""
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


# -- what it says -------------------------------------------------------------------------------


def _unfenced(text: str) -> str:
    """Take the text out of a fence of Markdown, if it stands in one."""
    bare = text.strip()
    if not (bare.startswith(_FENCE) and bare.endswith(_FENCE) and len(bare) > 2 * len(_FENCE)):
        return text
    head, newline, body = bare[len(_FENCE) : -len(_FENCE)].partition("\n")
    return body.strip() if newline and head.strip() in ("", "json") else text


def _whole(text: str) -> dict[str, msgspec.Raw] | None:
    """Read a complete object; whatever stands behind it does not count."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    try:
        return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in found.items()}
    except (ValueError, RecursionError):
        return None


def _read(said: dict[str, msgspec.Raw]) -> tuple[str | None, ToolCall | None]:
    answer = call = None
    if (raw := said.get("answer")) is not None:
        value = _value(raw)
        answer = storable(value) if isinstance(value, str) else bytes(raw).decode()
    if (raw := said.get("tool")) is not None and isinstance(name := _value(raw), str):
        arguments = said.get("arguments", msgspec.Raw(b"{}"))
        value = _value(arguments)
        # Some write the arguments as a text that holds JSON, as the interface has them.
        given = storable(value) if isinstance(value, str) else bytes(arguments).decode()
        call = ToolCall("", storable(name[:NAME_CHARACTERS]), given)
    return answer, call


def _value(raw: msgspec.Raw | str) -> Any:
    text = raw if isinstance(raw, str) else bytes(raw).decode()
    try:
        return None if too_complex(text) else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cut(text: str) -> tuple[str | None, ToolCall | None]:
    """Read what ended in its middle."""
    if match := _CUT_CALL.match(text):
        name = _value(msgspec.Raw(match[1].encode(errors="replace")))
        return None, ToolCall("", storable(str(name)[:NAME_CHARACTERS]), match[2] or "")
    if text.lstrip()[:1] != "{":
        return None, None
    return AnswerText().feed(text) or None, None
