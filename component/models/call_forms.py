"""The forms in which models write tool calls into the text of an answer: those of their templates.

| form | models |
|---|---|
| `<tool_call>{"name": …, "arguments": {…}}</tool_call>` | Qwen, Hermes, and many others |
| `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>` | Qwen Coder |
| `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>` | GLM |
| `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, `[TOOL_CALLS]name[ARGS]{…}` | Mistral |
| `<|python_tag|>{"name": …, "parameters": {…}}` | Llama |
| an answer that is such a JSON object and nothing else, fenced or not | small models |

All of them are read in time proportional to the text, whatever it contains.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

FENCE: Final = re.compile(r"```[ \t]*+(?:json|tool_call|tool_code|tool)?[ \t\r]*+\n\s*+(?=[\[{])")
"""The beginning of a fence of Markdown around calls."""
_SPACE: Final = re.compile(r"\s*+")
_START: Final = re.compile(r"\s*+<tool_call>\s*+", re.IGNORECASE)
_STOP: Final = re.compile(r"\s*+(?:</tool_call>\s*+|\Z)", re.IGNORECASE)
_NAME: Final = re.compile(
    r"(?:\[TOOL_CALLS\]\s*+)?([\w.:/-]++)(?:\[CALL_ID\][\w-]*+)?\s*+(?:\[ARGS\]\s*+)?(?=\{)",
    re.IGNORECASE,
)
_FUNCTION: Final = re.compile(r"\s*<function=([^<>\s]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=([^<>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_ENDS: Final = re.compile(r"\s*+(?:(?:<\|(?:eom_id|eot_id|im_end)\|>|;)\s*+)*+")
_KEYS: Final = frozenset({"name", "arguments", "parameters", "type", "id", "function"})
_GLM_NAME: Final = re.compile(r"([\w.:/-]++)\s*+")
_GLM_ARGUMENT: Final = re.compile(
    r"<arg_key>([^<>]++)</arg_key>\s*+<arg_value>(.*?)</arg_value>\s*+", re.DOTALL
)
# Nothing shows that a call without its closing tag is complete.
_GLM_STOP: Final = re.compile(r"</tool_call>\s*+", re.IGNORECASE)

Call: TypeAlias = tuple[str, str]
"""The name of a tool, and arguments as JSON."""


class NoCallError(Exception):
    """The text is not a call."""


class Parameters(msgspec.Struct, frozen=True):
    """A call whose values are written without types: the schema of the tool tells them."""

    name: str
    values: dict[str, str]

    def typed(self, schema: Mapping[str, Any]) -> Call:
        """The call, with the values that the JSON Schema of its tool describes."""
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        return self.name, encoded({k: _typed(v, known.get(k)) for k, v in self.values.items()})


def blocks(held: str) -> Iterator[tuple[str, Any]]:
    """Give the source of each call, with its decoded JSON or its parameters. Raises NoCallError."""
    lower = held[:16].lower()
    if lower.startswith("<tool_call>"):
        yield from _tagged(held)
    elif lower.startswith("[tool_calls]"):
        yield from _mistral(held[len("[tool_calls]") :])
    elif lower.startswith("<|python_tag|>"):
        yield from _listed(held[len("<|python_tag|>") :])
    else:
        bare = held.strip()
        if fence := FENCE.match(bare):
            if not bare.endswith("```") or len(bare) < fence.end() + 3:
                raise NoCallError
            bare = bare[fence.end() : -3]
        for source, call in _listed(bare):
            # Without a mark, only the complete form is certain.
            if not isinstance(call, dict) or not isinstance(_arguments(call), dict):
                raise NoCallError
            yield source, call


def _tagged(held: str) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(held):
        start = _after(_START, held, at)
        stop = _STOP
        call: Any
        if held.startswith("{", start):
            call, end = _decoded(held, start)
        elif held.startswith("<", start):
            end = _after(_FUNCTION, held, start)
            call = _coder(held[start:end])
        else:
            call, end = _glm(held, start)
            stop = _GLM_STOP
        yield held[start:end], call
        at = _after(stop, held, end)


def _coder(call: str) -> Parameters:
    function = _FUNCTION.fullmatch(call)
    if function is None:
        raise NoCallError
    body, at = function[2], 0
    values: dict[str, str] = {}
    while match := _PARAMETER.match(body, at):
        at = match.end()
        values[match[1]] = match[2]
    if body[at:].strip():
        raise NoCallError
    return Parameters(function[1], values)


def _glm(held: str, start: int) -> tuple[Parameters, int]:
    name = _GLM_NAME.match(held, start)
    if name is None:
        raise NoCallError
    at = name.end()
    values: dict[str, str] = {}
    while match := _GLM_ARGUMENT.match(held, at):
        at = match.end()
        values[match[1].strip()] = match[2]
    return Parameters(name[1], values), at


def _mistral(text: str) -> Iterator[tuple[str, Any]]:
    at = _after(_SPACE, text, 0)
    if text.startswith("[", at):
        yield from _listed(text)
        return
    while at < len(text):
        name = _NAME.match(text, at)
        if name is None:
            raise NoCallError
        arguments, end = _decoded(text, name.end())
        yield text[at:end], {"name": name[1], "arguments": arguments}
        at = _after(_ENDS, text, end)


def _listed(text: str) -> Iterator[tuple[str, Any]]:
    """A list of calls, or calls one after the other."""
    at = _after(_SPACE, text, 0)
    while at < len(text):
        value, end = _decoded(text, at)
        for call in value if isinstance(value, list) else [value]:
            yield text[at:end], call
        at = _after(_ENDS, text, end)


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the match at this place ends. Raises NoCallError."""
    match = pattern.match(text, at)
    if match is None:
        raise NoCallError
    return match.end()


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=_refuse)


def _decoded(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise NoCallError from None


def encoded(arguments: dict[str, Any]) -> str:
    """Encode the arguments of a call. Raises NoCallError."""
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):  # a number beyond all bounds
        raise NoCallError from None


# -- one call ------------------------------------------------------------------------------------


def read(call: Any) -> Call:
    """The name and arguments of a call. Raises NoCallError."""
    if not isinstance(call, dict) or not _KEYS.issuperset(call):
        raise NoCallError
    inner = call.get("function")
    if isinstance(inner, dict):
        return read(inner)
    name = call.get("name", inner)
    arguments = _arguments(call)
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        arguments = _decoded(arguments.strip(), 0)[0]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise NoCallError
    return name, encoded(arguments)


def _arguments(call: Mapping[str, Any]) -> Any:
    inner = call.get("function")
    if isinstance(inner, dict):
        return _arguments(inner)
    return call.get("arguments", call.get("parameters"))


def _typed(value: str, schema: Any) -> Any:
    """The value of a parameter, which is written without quotation marks if it is a string."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
