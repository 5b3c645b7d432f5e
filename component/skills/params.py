"""Converts the parameters of a caller to validated arguments: named texts, and a JSON object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from component.skills.errors import InvalidParam

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from component.skills.inputs import Arguments
    from component.skills.readers import Reader
    from component.skills.skill import Skill
    from xep.fluux_agent.execute import Param

S = TypeVar("S", bound=msgspec.Struct)

_convert = msgspec.convert

_SPOKEN = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
    "bytes": "base64 text",
}
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_MEMBER = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_GOT = re.compile(r", got `[^`]*`")


def prepare(
    skill: Skill,
    texts: Iterable[tuple[str, str]] = (),
    json: bytes | str | None = None,
) -> Arguments:
    """Return a skill's arguments, of the type `inputs.type`.

    `texts` are (name, text) pairs in their order, a repeated name makes an array; `json` is one
    JSON object for values that text cannot express.

    Raises only InvalidParam, whatever the caller sent.
    """
    texts, inputs = list(texts), skill.inputs
    if inputs.complete is not None:
        values = _collected(inputs.readers, texts, json, closed=False)
        return inputs.complete(values)
    if json is not None and not texts:
        try:
            decoded: Arguments = msgspec.json.decode(json, type=inputs.type)
        except Exception:  # noqa: BLE001, S110 - it is said below what is wrong
            pass
        else:
            return decoded
    filled: msgspec.Struct = fill(inputs.type, inputs.readers, texts, json)
    return filled


def prepare_texts(skill: Skill, params: Iterable[Param]) -> Arguments:
    """Do the same as `prepare` for parameters that are all text: nearly always the text is the
    value.
    """
    inputs = skill.inputs
    values: dict[str, str] = {}
    for param in params:
        name = param.name
        if name in values or name not in inputs.verbatim or inputs.complete is not None:
            break
        values[name] = param.text
    else:
        try:
            converted: Arguments = _convert(values, inputs.type)
        except Exception:  # noqa: BLE001, S110 - it is said below what is wrong
            pass
        else:
            return converted
    return prepare(skill, [(param.name, param.text) for param in params])


def fill(
    struct: type[S],
    readers: Mapping[str, Reader],
    texts: Iterable[tuple[str, str]] = (),
    json: bytes | str | None = None,
) -> S:
    """Return an instance of `struct`, whose fields `readers` read; otherwise like `prepare`."""
    values = _collected(readers, texts, json, closed=True)
    try:
        return _convert(values, struct)
    except msgspec.ValidationError as exc:
        raise _explained(str(exc), readers) from None
    except Exception as exc:
        # A set of unhashable values, an integer beyond every float, a check of the skill's own
        # types that raises: still the caller's mistake.
        raise InvalidParam(None, "the parameters do not fit the skill's types") from exc


def _collected(
    readers: Mapping[str, Reader],
    texts: Iterable[tuple[str, str]],
    json: bytes | str | None,
    *,
    closed: bool,
) -> dict[str, Any]:
    """Return the values of texts and JSON together; with `closed` each name must have a reader."""
    values: dict[str, Any] = {}
    arrays: dict[str, list[str]] = {}
    name = ""
    try:
        for name, text in texts:
            reader = readers.get(name)
            if reader is None:
                raise InvalidParam(name, "no such parameter")
            if reader.items:
                arrays.setdefault(name, []).append(text)
            elif name in values:
                raise InvalidParam(name, "was given more than once")
            else:
                values[name] = text if reader.verbatim else reader.one(text)
        for name, given in arrays.items():
            values[name] = readers[name].several(given)
    except ValueError as exc:
        raise InvalidParam(name, str(exc)) from None
    if json is not None:
        _add_json(values, json, readers, closed=closed)
    return values


def _add_json(
    values: dict[str, Any], json: bytes | str, readers: Mapping[str, Reader], *, closed: bool
) -> None:
    try:
        decoded = msgspec.json.decode(json)
    except (ValueError, RecursionError) as exc:
        raise InvalidParam(None, f"the JSON parameters cannot be read: {exc}") from None
    if not isinstance(decoded, dict):
        raise InvalidParam(None, "the JSON parameters are not a JSON object")
    for name, value in decoded.items():
        if closed and name not in readers:
            raise InvalidParam(name, "no such parameter")
        if name in values:
            raise InvalidParam(name, "was given both as text and in JSON")
        values[name] = value


def _explained(message: str, readers: Mapping[str, Reader]) -> InvalidParam:
    """Convert msgspec's "Expected `int`, got `str` - at `$.a.b`" to a parameter and a reason."""
    # The path is always last, so a caller's own text in the message cannot pose as one.
    said, at, place = message.rpartition(" - at `")
    if not at:
        said, place = message, "$"
    path = place.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    if member := _MEMBER.fullmatch(said):
        path = f"{path}.{member[2]}" if path else member[2]
        reason = "is required" if member[1] == "missing required" else "no such member"
        return InvalidParam(name or member[2], reason, path)
    if said.startswith("Invalid enum value") and path == name and name in readers:
        return InvalidParam(name, f"expected {readers[name].expected}")
    reason = _TYPES.sub(_speak, _GOT.sub("", said))
    return InvalidParam(name or None, reason[:1].lower() + reason[1:], path or None)


def _speak(found: re.Match[str]) -> str:
    return " or ".join(_SPOKEN.get(word, word) for word in found[1].split(" | "))
