"""The forms in which models write tool calls into the text of an answer: those of their templates.

| form | models |
|---|---|
| `<tool_call>{"name": …, "arguments": {…}}</tool_call>` | Qwen, Hermes, and many others |
| `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>` | Qwen Coder |
| `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>` | GLM |
| `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, `[TOOL_CALLS]name[ARGS]{…}` | Mistral |
| `<|python_tag|>{"name": …, "parameters": {…}}`, `<function=name>{…}</function>` | Llama |
| `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` | Kimi |
| `<|tool_call_begin|>name<|tool_sep|>{…}<|tool_call_end|>` | DeepSeek (U+FF5C as bar) |
| `<|DSML|invoke name="…"><|DSML|parameter name="…" string="true">…` | DeepSeek (U+FF5C as bar) |
| `<minimax:tool_call><invoke name="…"><parameter name="…">…</parameter></invoke>` | MiniMax |
| `<|tool_call|>[{"name": …, "arguments": {…}}]`, `<function_call>{…}` | Granite, Phi |
| `<|tool_call_start|>[name(key="value")]<|tool_call_end|>` | LFM2 |
| `<|START_ACTION|>[{"tool_name": …, "parameters": {…}}]<|END_ACTION|>` | Cohere |
| a block of `tool_code` with `name(key="value")` | Gemma |
| the first two forms without their opening tag, which servers take for a special token | Qwen |
| an answer that is such JSON and nothing else, fenced or not | xLAM, small models |

`written_calls` removes what is left of them in an answer. All of them are read in time proportional
to the text, whatever it contains.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

FENCE: Final = re.compile(r"```[ \t]*+(?:json|tool_call|tool_code|tool)?[ \t\r]*+\n\s*+(?=[\[{])")
"""The beginning of a fence of Markdown around calls."""
_SPACE: Final = re.compile(r"\s*+")
_NAME: Final = re.compile(
    r"([\w.:/-]++)(?:\[CALL_ID\][\w-]*+)?\s*+(?:\[ARGS\]\s*+)?(?=\{)", re.IGNORECASE
)
_FUNCTION: Final = re.compile(r"\s*<function=([^<>\s]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=([^<>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_ENDS: Final = re.compile(
    r"\s*+(?:(?:<\|(?:eom_id|eot_id|im_end|role_end|end_of_text)\|>|</s>|;)\s*+)*+"
)
_TAG: Final = re.compile(r"\s*+<tool_call>\s*+", re.IGNORECASE)
_TAG_END: Final = re.compile(rf"\s*+(?:</tool_call>\s*+|\Z){_ENDS.pattern}", re.IGNORECASE)
_KEYS: Final = frozenset(
    {"name", "arguments", "parameters", "type", "id", "function", "tool_name", "tool_call_id"}
)
_PREFIX: Final = r"(?:[|\uff5c]DSML[|\uff5c]|[a-z]+:)?"
_WRAPPER: Final = r"(?:tool_calls?|toolcall|function_calls?)"
BETWEEN: Final = re.compile(
    r"(?:\s|;|<[|\uff5c]/?[\w\u2581 .]++[|\uff5c]>"
    rf"|</?{_PREFIX}{_WRAPPER}>|\[/?TOOL_CALLS\]"
    r"|function(?=\s*+<[|\uff5c]tool[\u2581_ ]sep[|\uff5c]>)|```(?:tool_code|tool_call)?|</s>)*+",
    re.IGNORECASE,
)
"""The marks before, between and after calls, which say nothing of their own."""
_SEPARATED: Final = re.compile(
    r"(?:functions\.)?([\w./-]++)(?::\d++)?\s*+(?:<[|\uff5c][\w\u2581 ]++[|\uff5c]>\s*+|(?=```))"
    r"(?:```(?:json)?\s*+)?(?=\{)"
)
_INVOKE: Final = re.compile(rf'<{_PREFIX}invoke\s+name="?([^"<>\s]++)"?\s*+>', re.IGNORECASE)
_INVOKED: Final = re.compile(rf"\s*+</{_PREFIX}invoke>", re.IGNORECASE)
_ATTRIBUTED: Final = re.compile(
    rf'\s*+<{_PREFIX}parameter\s+name="?([^"<>]++)"?(?:\s+string="(true|false)")?\s*+>\n?'
    rf"(.*?)\n?</{_PREFIX}parameter>",
    re.IGNORECASE | re.DOTALL,
)
_PYTHONIC: Final = re.compile(r"[A-Za-z_][\w.]*+\(")
_CLOSED: Final = re.compile(r"\s*+</tool_call>\s*+", re.IGNORECASE)
_LONGEST_PYTHON: Final = 16_384
_GLM_NAME: Final = re.compile(r"([\w.:/-]++)\s*+(?=<arg_key>|</tool_call>)", re.IGNORECASE)
_GLM_ARGUMENT: Final = re.compile(
    r"<arg_key>([^<>]++)</arg_key>\s*+<arg_value>(.*?)</arg_value>\s*+", re.DOTALL
)

Call: TypeAlias = tuple[str, str]
"""The name of a tool, and arguments as JSON."""


class NoCallError(Exception):
    """The text is not a call."""


class Parameters(msgspec.Struct, frozen=True):
    """A call whose values are written without types: the schema of the tool tells them, except of
    those that are marked as `texts`.
    """

    name: str
    values: dict[str, str]
    texts: frozenset[str] = frozenset()

    def typed(self, schema: Mapping[str, Any]) -> Call:
        """The call, with the values that the JSON Schema of its tool describes."""
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        return self.name, encoded_arguments(
            {k: v if k in self.texts else _typed(v, known.get(k)) for k, v in self.values.items()}
        )


def call_blocks(held: str) -> Iterator[tuple[str, Any]]:
    """Give the source of each call, with its decoded JSON or its parameters. Raises NoCallError."""
    bare = held.strip()
    lower = held[:_LONGEST_OPENING].lower()
    if lower.startswith("<tool_call>"):
        yield from _calls_in(held, _TAG, _TAG_END)
    elif lower.startswith(OPENINGS):
        yield from _calls_in(held, BETWEEN, BETWEEN)
    elif bare.startswith("{") and _CLOSED.search(bare):
        # Each has its closing tag; the opening one of the first may be missing.
        yield from _calls_in(bare, BETWEEN, _CLOSED)
    else:
        if bare.startswith("functools["):
            bare = bare.removeprefix("functools")
        if fence := FENCE.match(bare):
            if not bare.endswith("```") or len(bare) < fence.end() + 3:
                raise NoCallError
            bare = bare[fence.end() : -3]
        for source, call in _calls_in(bare, _SPACE, _ENDS):
            # Without a mark, only the complete form is certain.
            if not isinstance(call, dict) or not isinstance(_arguments(call), dict):
                raise NoCallError
            yield source, call


def _calls_in(
    text: str, before: re.Pattern[str], after: re.Pattern[str]
) -> Iterator[tuple[str, Any]]:
    """Give the calls of a text of nothing else, with what stands before and after each of them."""
    at = 0
    while at < len(text):
        at = _after(before, text, at)
        calls, end = calls_at(text, at)
        if not calls:
            raise NoCallError
        for call in calls:
            yield text[at:end], call
        at = _after(after, text, end)


def _coder(call: str) -> Any:
    function = _FUNCTION.fullmatch(call)
    if function is None:
        raise NoCallError
    body, at = function[2], 0
    if body.lstrip().startswith("{"):
        arguments, at = _decoded(body, _after(_SPACE, body, 0))
        if body[at:].strip():
            raise NoCallError
        return {"name": function[1], "arguments": arguments}
    values: dict[str, str] = {}
    while match := _PARAMETER.match(body, at):
        at = match.end()
        values[match[1]] = _alone(match[2], "<parameter=")
    if body[at:].strip():
        raise NoCallError
    return Parameters(function[1], values)


def _alone(value: str, mark: str) -> str:
    """The value of one parameter. Raises NoCallError if another one begins in it."""
    if mark in value:
        raise NoCallError
    return value


# -- forms with marks of their own ---------------------------------------------------------------

_DEEPSEEK: Final = ("tool\u2581calls\u2581begin", "tool\u2581call\u2581begin")
_OTHER_DEEPSEEK: Final = ("tool_calls_begin", "tool_call_begin")
OPENINGS: Final = (
    *("<tool_call>", "[tool_calls]", "<|python_tag|>"),
    *[f"<{bar}{name}{bar}>" for name in (*_DEEPSEEK, *_OTHER_DEEPSEEK) for bar in "|\uff5c"],
    *("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_start|>"),
    *[
        f"<{bar}dsml{bar}{tag}"
        for tag in ("function_calls>", "tool_calls>", "invoke ")
        for bar in "|\uff5c"
    ],
    *[f"<{space}{tag}" for tag in ("function_calls>", "invoke name=") for space in ("", "antml:")],
    *("<minimax:tool_call>", "<seed:tool_call>", "<tool_calls>", "<toolcall>", "<function="),
    "<function_call>",
    *("<|tool_call|>", "<|start_action|>", "<|action_start|>", "<|python_start|>"),
    *("```tool_code", "```tool_call"),
)
"""The marks, in lower case, with which calls begin."""
_LONGEST_OPENING: Final = max(map(len, OPENINGS))


def between(text: str, at: int) -> int:
    """The position after the marks that stand at this one."""
    match = BETWEEN.match(text, at)
    assert match is not None, "it matches nothing too"
    return match.end()


def calls_at(text: str, at: int) -> tuple[Sequence[Any], int]:
    """The calls here, decoded or as Parameters, and where they end. Raises NoCallError."""
    first = text[at : at + 1]
    if first == "{":
        call, end = _decoded(text, at)
        return (call,), end
    if first == "[":
        try:
            calls, end = _decoded(text, at)
        except NoCallError:
            return _pythonic(text, at)
        return calls, end
    if invoke := _INVOKE.match(text, at):
        return _invoked(text, invoke)
    if first == "<":
        end = _after(_FUNCTION, text, at)
        return (_coder(text[at:end]),), end
    if name := _GLM_NAME.match(text, at):
        return _glm(text, name)
    if named := _SEPARATED.match(text, at) or _NAME.match(text, at):
        arguments, end = _decoded(text, named.end())
        return ({"name": named[1], "arguments": arguments},), end
    return _pythonic(text, at)


def _invoked(text: str, invoke: re.Match[str]) -> tuple[Sequence[Any], int]:
    at = invoke.end()
    values: dict[str, str] = {}
    texts = set[str]()
    while match := _ATTRIBUTED.match(text, at):
        at = match.end()
        values[match[1]] = _alone(match[3], "parameter name=")
        if match[2] == "true":
            texts.add(match[1])
    return (Parameters(invoke[1], values, frozenset(texts)),), _after(_INVOKED, text, at)


def _pythonic(text: str, at: int) -> tuple[Sequence[Any], int]:
    """Calls as Python writes them: `name(key="value")`, also in a list or in `print()`."""
    if text[at : at + 1] != "[" and not _PYTHONIC.match(text, at):
        raise NoCallError
    end = _python_end(text, at)
    try:
        expression = ast.parse(text[at:end], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoCallError from None
    calls = expression.elts if isinstance(expression, ast.List) else [expression]
    return [_python_call(call) for call in calls], end


def _python_end(text: str, at: int) -> int:
    """Where the brackets that open here are closed. Raises NoCallError."""
    depth, quote, escaped = 0, "", False
    for place in range(at, min(len(text), at + _LONGEST_PYTHON)):
        char = text[place]
        if escaped:
            escaped = False
        elif quote:
            escaped = char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return place + 1
    raise NoCallError


def _python_call(call: ast.expr) -> Any:
    if not isinstance(call, ast.Call):
        raise NoCallError
    name = ast.unparse(call.func)
    if name == "print" and len(call.args) == 1 and not call.keywords:
        return _python_call(call.args[0])
    if call.args or any(one.arg is None for one in call.keywords):
        raise NoCallError
    return {"name": name, "arguments": {str(k.arg): _literal(k.value) for k in call.keywords}}


def _literal(value: ast.expr) -> Any:
    if isinstance(value, ast.Name) and value.id in ("true", "false", "null"):
        return json.loads(value.id)
    try:
        found = ast.literal_eval(value)
        json.dumps(found, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise NoCallError from None
    return found


def _glm(text: str, name: re.Match[str]) -> tuple[Sequence[Any], int]:
    at = name.end()
    values: dict[str, str] = {}
    while match := _GLM_ARGUMENT.match(text, at):
        at = match.end()
        values[match[1].strip()] = _alone(match[2], "<arg_key>")
    _after(_CLOSED, text, at)  # nothing else shows that it is complete
    return (Parameters(name[1], values),), at


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


def encoded_arguments(arguments: dict[str, Any]) -> str:
    """Encode the arguments of a call. Raises NoCallError."""
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):  # a number beyond all bounds
        raise NoCallError from None


# -- one call ------------------------------------------------------------------------------------


def checked_call(call: Any) -> Call:
    """The name and arguments of a call. Raises NoCallError."""
    if not isinstance(call, dict) or not _KEYS.issuperset(call):
        raise NoCallError
    inner = call.get("function")
    if isinstance(inner, dict):
        return checked_call(inner)
    name = call.get("name", call.get("tool_name", inner))
    arguments = _arguments(call)
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        arguments = _decoded(arguments.strip(), 0)[0]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise NoCallError
    return name, encoded_arguments(arguments)


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
