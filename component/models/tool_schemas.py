"""Tools as model APIs take them: their schemas and names, and the arguments of calls both ways.

Tools come from anywhere, with any JSON Schema. The APIs take an object at the top, without
alternatives; names of properties of letters, digits, `_`, `.` and `-`; and each some keywords only.
A schema is changed no further than it has to be: a tool that a server would validate in another way
is still validated by its source.
"""

import itertools
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import msgspec

from component.models.answer_limits import BadJSONError, decode_any, encode_any
from component.skills.validation import pointed_to

Keywords: TypeAlias = Literal["all", "typed", "plain"]
"""Which schemas a server takes: any, those with a type (llama.cpp), or those of OpenAPI 3.0 without
`oneOf`, references, and lists of types (Gemini)."""

_LONGEST = 64
_TAKEN = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{_LONGEST - 1}}}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_MOST_CHARACTERS: Final = 50_000
"""Characters of the parts that references may repeat in one schema."""
_DEEPEST: Final = 40
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
# As libraries write them by mistake.
_MISNAMED: Final = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "None": "null",
}
_PLAIN: Final = re.compile(
    "type|format|title|description|nullable|enum|items|properties|required|anyOf|minItems|maxItems"
    "|minLength|maxLength|minimum|maximum|pattern|default"
)
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")
_TOP: Final = ("not", "if", "then", "else", "enum", "const", "dependentSchemas", *_BRANCHES)
_DEFINITIONS: Final = ("definitions", "components")
_VALUES: Final[Mapping[str, type]] = {
    "description": str,
    "enum": list,
    "required": list,
    "title": str,
}
"""The types of values of keywords; others are left out."""
_SUBSCHEMAS: Final = ("not", "if", "then", "else", "contains", "propertyNames")


class Renamed(msgspec.Struct, eq=False):
    """The names of properties in one place of the arguments, and in the places inside it."""

    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    inner: "dict[str, Renamed]" = {}
    items: "Renamed | None" = None
    rest: "Renamed | None" = None

    @property
    def is_needed(self) -> bool:
        """Whether any name differs here or inside."""
        others = [*self.inner.values(), *(one for one in (self.items, self.rest) if one)]
        return any(a != b for a, b in self.theirs.items()) or any(one.is_needed for one in others)

    def name(self, ours: str) -> str:
        """Return the name for the model; equal names stay equal, different ones different."""
        if ours in self.theirs:
            return self.theirs[ours]
        plain = ours if _NAME.fullmatch(ours) else _NO_NAME.sub("_", ours)[:60].rstrip("_") or "_"
        name = self.theirs[ours] = _distinct(plain, self.ours)
        self.ours[name] = ours
        return name

    def translated(self, value: Any, *, to_ours: bool) -> Any:
        """Translate arguments that the model has written, or back, for that model."""
        if isinstance(value, list) and self.items is not None:
            return [self.items.translated(each, to_ours=to_ours) for each in value]
        if not isinstance(value, dict):
            return value
        out: dict[str, Any] = {}
        for key, each in value.items():
            name = str(self.ours.get(key, key) if to_ours else self.theirs.get(key, key))
            theirs = str(key) if to_ours else name
            inside = self.inner.get(theirs) or self.rest or _NOTHING
            out[name] = inside.translated(each, to_ours=to_ours)
        return out


_NOTHING: Final = Renamed()


class Adapted(msgspec.Struct, frozen=True):
    """A schema for a model; `renamed` is None if all names of properties are unchanged."""

    parameters: msgspec.Raw
    renamed: Renamed | None = None


def adapt(parameters: msgspec.Raw, keywords: Keywords = "all") -> Adapted:
    """Adapt the schema of a tool's arguments. One that needs no change keeps its bytes."""
    try:
        schema = decode_any(bytes(parameters))
    except BadJSONError:
        schema = {}
    if not isinstance(schema, dict):
        schema = {}
    names = Renamed()
    try:
        adapted = _Adaptation(schema, keywords).top(names)
        encoded = parameters if adapted == schema else msgspec.Raw(encode_any(adapted))
    except (BadJSONError, RecursionError):
        return Adapted(msgspec.Raw(b'{"type":"object","properties":{}}'))
    return Adapted(encoded, names if names.is_needed else None)


def translated(arguments: str, renamed: Renamed, *, to_ours: bool) -> str:
    """Translate the names in the arguments of a call; what is not a JSON object is unchanged."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(value, dict):
        return arguments
    return json.dumps(renamed.translated(value, to_ours=to_ours), ensure_ascii=False)


class _Adaptation:
    def __init__(self, root: dict[str, Any], keywords: Keywords) -> None:
        self._root = root
        self._keywords = keywords
        self._open: list[str] = []
        self._left = _MOST_CHARACTERS

    def top(self, names: Renamed) -> dict[str, Any]:
        """The schema of all arguments: an object without alternatives."""
        root = self._joined(self._root, 0)
        adapted = self._schema(root, names, 0)
        for key in _TOP:
            adapted.pop(key, None)
        adapted["type"] = "object"
        adapted.setdefault("properties", {})
        return adapted

    def _joined(self, node: Any, depth: int) -> dict[str, Any]:
        """A schema with the properties of its alternatives, and their common ones required."""
        node = self._resolved(node)
        if not isinstance(node, dict) or depth > _DEEPEST:
            return {}
        branches = {key: node[key] for key in _BRANCHES if isinstance(node.get(key), list)}
        if not branches:
            return node
        out = {key: value for key, value in node.items() if key not in branches}
        properties = dict(_mapping(out.get("properties")))
        required = _strings(out.get("required"))
        told = []
        for key, nodes in branches.items():
            joined = [self._joined(each, depth + 1) for each in nodes]
            for each in joined:
                for name, inner in _mapping(each.get("properties")).items():
                    properties.setdefault(name, inner)
            sets = [_strings(each.get("required")) for each in joined]
            if key == "allOf":
                required += [name for each in sets for name in each]
            elif sets:
                required += [name for name in sets[0] if all(name in each for each in sets)]
                told.append(_alternatives(sets, exactly=key == "oneOf"))
        out["properties"] = properties
        if required := list(dict.fromkeys(required)):
            out["required"] = required
        return _described(out, *told)

    def _resolved(self, node: Any) -> Any:
        """What a schema refers to, with what it says itself; {} beyond what is permitted."""
        for _ in range(_DEEPEST):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                break
            found = None
            if node["$ref"].startswith("#"):
                with suppress(LookupError):
                    found = pointed_to(self._root, node["$ref"])
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = {**found, **rest} if isinstance(found, dict) else rest
        return node

    def _schema(self, node: Any, names: Renamed, depth: int) -> dict[str, Any]:
        """Adapt a schema at one place; `names` are those of the objects there."""
        if not isinstance(node, dict) or depth > _DEEPEST:
            return {}
        reference = node.get("$ref")
        if isinstance(reference, str):
            target = self._resolved(node)
            self._left -= len(str(target)) if isinstance(target, dict) else 0
            if reference in self._open or self._left < 0:
                kept = {k: v for k, v in target.items() if k in ("type", "description")}
                return kept if isinstance(kept.get("type"), str) else {"type": "object"}
            self._open.append(reference)
            try:
                return self._schema(target, names, depth + 1)
            finally:
                self._open.pop()
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key.startswith("$") or (key in _DEFINITIONS and isinstance(value, dict)):
                continue
            self._keyword(out, key, value, names, depth)
        self._finish(out, node, names)
        return out

    def _keyword(
        self, out: dict[str, Any], key: str, value: Any, names: Renamed, depth: int
    ) -> None:
        """Adapt one keyword. One whose value has the wrong type is left out."""
        match key:
            case "properties":
                out[key] = self._properties(_mapping(value), names, depth)
            case "required" if isinstance(value, list):
                out[key] = list(dict.fromkeys(map(names.name, _strings(value))))
            case "items" | "prefixItems":
                if key == "items" or "items" not in out:
                    out["items"] = self._items(value, names, depth)
            case "anyOf" | "oneOf" | "allOf":
                if isinstance(value, list) and value:
                    # Zod writes `not: {}` for what may be left out, which some APIs refuse.
                    some = [each for each in value if each not in (False, {"not": {}})]
                    adapted = [self._schema(each, names, depth + 1) for each in some]
                    if len(adapted) == 1 < len(value):
                        out.update({k: v for k, v in adapted[0].items() if k not in out})
                    elif adapted:
                        out[key] = adapted
            case "additionalProperties" if isinstance(value, dict):
                names.rest = names.rest or Renamed()
                out[key] = self._schema(value, names.rest, depth + 1)
            case "patternProperties" | "dependentSchemas":
                out[key] = {
                    name: self._schema(each, Renamed(), depth + 1)
                    for name, each in _mapping(value).items()
                }
            case "type":
                self._type(out, value)
            case _ if key in _SUBSCHEMAS and isinstance(value, dict):
                out[key] = self._schema(value, names, depth + 1)
            case _ if isinstance(value, _VALUES.get(key, object)) and (value or key not in _VALUES):
                out[key] = value

    def _properties(
        self, properties: Mapping[str, Any], names: Renamed, depth: int
    ) -> dict[str, Any]:
        # Names that stay come first, so that no other one takes them.
        for name in sorted(properties, key=lambda each: _NAME.fullmatch(each) is None):
            names.name(name)
        return {
            (new := names.name(name)): self._schema(
                each, names.inner.setdefault(new, Renamed()), depth + 1
            )
            for name, each in properties.items()
            if each is not False
        }

    def _items(self, value: Any, names: Renamed, depth: int) -> dict[str, Any]:
        """One schema for all items, as newer drafts have it."""
        inside = names.items = names.items or Renamed()
        some = value if isinstance(value, list) and value else [value]
        adapted = [self._schema(each, inside, depth + 1) for each in some]
        distinct = [one for at, one in enumerate(adapted) if one not in adapted[:at]]
        return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}

    def _type(self, out: dict[str, Any], value: Any) -> None:
        if isinstance(value, list):
            types = [_MISNAMED.get(one, one) for one in value if isinstance(one, str)]
            types = [one for one in dict.fromkeys(types) if one in _TYPES]
            if types:
                out["type"] = types
        elif isinstance(value, str) and (value := _MISNAMED.get(value, value)) in _TYPES:
            out["type"] = value

    def _finish(self, out: dict[str, Any], node: Mapping[str, Any], names: Renamed) -> None:
        kinds = out.get("type", ())
        if ("array" in kinds if isinstance(kinds, list) else kinds == "array") and (
            "items" not in out
        ):
            out["items"] = {}
        for limit in ("Minimum", "Maximum"):  # true and false in draft 4
            key, plain = f"exclusive{limit}", limit.lower()
            if isinstance(out.get(key), bool) and out.pop(key) and plain in out:
                out[key] = out.pop(plain)
        hidden = {n for n, each in _mapping(node.get("properties")).items() if each is False}
        if hidden and "required" in out:
            theirs = {names.name(name) for name in hidden}
            out["required"] = [name for name in out["required"] if name not in theirs]
        if self._keywords == "plain":
            _plain(out)
        elif self._keywords == "typed":
            _typed(out)


def _typed(out: dict[str, Any]) -> None:
    """Give a schema a type; patterns are those from the beginning to the end."""
    if out and not any(key in out for key in ("type", "enum", "const", "properties", *_BRANCHES)):
        out["type"] = list(_TYPES)
    pattern = out.get("pattern")
    if pattern is not None and not re.fullmatch(r"\^[^?\\]*\$", str(pattern)):
        _move(out, "pattern")


def _plain(out: dict[str, Any]) -> None:
    """Reduce a schema to OpenAPI 3.0; the description says what is lost, where that is short."""
    _plain_type(out)
    if "const" in out:
        out.setdefault("enum", [out.pop("const")])
    values = out.get("enum")
    if values is not None and not all(isinstance(one, str) and one for one in values):
        _move(out, "enum")
    if isinstance(out.get("format"), str) and out["format"] != "date-time":
        _move(out, "format")
    for each in out.pop("allOf", ()):
        for key, value in each.items():
            if key == "properties":
                out["properties"] = {**value, **out.get("properties", {})}
            elif key == "required":
                out["required"] = list(dict.fromkeys([*out.get("required", ()), *value]))
            else:
                out.setdefault(key, value)
    if "oneOf" in out:
        out.setdefault("anyOf", out.pop("oneOf"))
    _plain_alternatives(out)
    for limit in ("Minimum", "Maximum"):
        if f"exclusive{limit}" in out:
            _move(out, f"exclusive{limit}")
    if "required" in out and "properties" in out:
        out["required"] = [name for name in out["required"] if name in out["properties"]]
    for key in [key for key in out if not _PLAIN.fullmatch(key)]:
        del out[key]
    if not out.get("required", True):
        del out["required"]


def _plain_type(out: dict[str, Any]) -> None:
    kinds = out.get("type")
    if not isinstance(kinds, list):
        return
    del out["type"]
    others = [kind for kind in kinds if kind != "null"]
    if len(others) < len(kinds):
        out["nullable"] = True
    if len(others) == 1:
        out["type"] = others[0]
    elif "anyOf" not in out:
        out["anyOf"] = [{"type": k, "items": {}} if k == "array" else {"type": k} for k in others]
        out.pop("items", None)


def _plain_alternatives(out: dict[str, Any]) -> None:
    """Write the alternative of null as `nullable`."""
    some = out.get("anyOf", ())
    others = [one for one in some if one.get("type") != "null"]
    if len(others) == len(some):
        return
    out["nullable"] = True
    del out["anyOf"]
    if len(others) == 1:
        out.update({key: value for key, value in others[0].items() if key not in out})
    elif others:
        out["anyOf"] = others


def _move(out: dict[str, Any], key: str) -> None:
    """Say in the description what a keyword says."""
    said = json.dumps(out.pop(key), ensure_ascii=False)
    if len(said) <= 300:
        out.update(_described(out, f"{key}: {said}."))


def _described(schema: dict[str, Any], *told: str) -> dict[str, Any]:
    before = schema.get("description")
    text = " ".join([before if isinstance(before, str) else "", *told]).strip()
    return {**schema, "description": text} if text else schema


def _alternatives(sets: Sequence[Sequence[str]], *, exactly: bool) -> str:
    named = [f"({', '.join(names)})" for names in sets if names]
    if len(named) < 2:
        return ""
    return f"Give {'exactly' if exactly else 'at least'} one of: {' or '.join(named)}."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


class ToolNames:
    """Both ways between our names and those that OpenAI and Anthropic take.

    A skill may be called `files.read`; the providers take letters, digits, `_` and `-`, 64 at most,
    and some a letter or `_` at the beginning. Two names never become one, also if one of them is
    only in the conversation and not offered.

    Args:
        names: our names of the tools that are offered.
        renamed: the names in the arguments of tools, by our names; of those that need other ones.
    """

    def __init__(self, names: Iterable[str], renamed: Mapping[str, Renamed] = {}) -> None:
        self._renamed = renamed
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        others = []
        for name in names:
            if _TAKEN.fullmatch(name):
                self._theirs[name] = self._ours[name] = name
            else:
                others.append(name)
        for name in others:
            self._add(name)

    def theirs(self, name: str) -> str:
        """Return the provider's name of a tool, also of one that is not offered any more."""
        return self._theirs.get(name) or self._add(name)

    def ours(self, name: str) -> str:
        """Return our name of a tool; unknown names are unchanged."""
        return self._ours.get(name, name)

    def arguments_for(self, name: str, arguments: str) -> str:
        """Translate the arguments of a call of our tool for the model."""
        renamed = self._renamed.get(name)
        return arguments if renamed is None else translated(arguments, renamed, to_ours=False)

    def our_arguments(self, name: str, arguments: str) -> str:
        """Translate the arguments that the model has written for our tool."""
        renamed = self._renamed.get(name)
        return arguments if renamed is None else translated(arguments, renamed, to_ours=True)

    def _add(self, name: str) -> str:
        plain = _OTHER.sub("_", name)
        plain = plain if plain[:1].isalpha() or plain.startswith("_") else f"_{plain}"
        safe = self._theirs[name] = _distinct(plain[:_LONGEST], self._ours)
        self._ours[safe] = name
        return safe


def _distinct(plain: str, taken: Container[str]) -> str:
    """Return a name that is not taken: this one, or this one with a number."""
    numbered = (f"{plain[: _LONGEST - 1 - len(str(n))]}_{n}" for n in itertools.count(2))
    return next(name for name in itertools.chain((plain,), numbered) if name not in taken)
