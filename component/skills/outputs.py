"""What a call gives back: named outputs of a media type, text and JSON inline."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from component.policy.taint import Taint
from xep.characters import json_without_forbidden, without_forbidden

TEXT = "text/plain"
JSON = "application/json"

_encode = msgspec.json.Encoder().encode


class Output(msgspec.Struct, frozen=True, gc=False):
    """One output: its text, its media type, and a name where there are several.

    The text and the name hold nothing that XML cannot carry: a character that it cannot carry
    becomes an escape in JSON and U+FFFD elsewhere. So callers, models and files get the same text.
    """

    text: str
    media_type: str = TEXT
    name: str | None = None

    def __post_init__(self) -> None:
        """Make the text and the name fit."""
        if not self.text.isprintable():
            fit = json_without_forbidden if _is_json(self.media_type) else without_forbidden
            force_setattr(self, "text", fit(self.text))
        if self.name is not None and not self.name.isprintable():
            force_setattr(self, "name", without_forbidden(self.name))


class SkillResult(msgspec.Struct, frozen=True, gc=False):
    """A completed call. `is_error` says that the skill ran and said no; `duration` is in seconds.

    A skill may return one itself; its duration is then measured all the same. `taints` are whose
    texts this very result can hold, those of everything that was read for it; `()` is nobody's, and
    None whatever the skill declares, which is the most that there may be.
    """

    outputs: tuple[Output, ...]
    is_error: bool = False
    duration: float = 0.0
    taints: tuple[Taint, ...] | None = None


def result_of(value: Any, duration: float) -> SkillResult:
    """Turn what a skill returned into a result.

    str is text; Output, a tuple or list of Outputs, and SkillResult stand as they are; None is no
    output at all; everything else is written as JSON (a float without a value, NaN or infinite,
    becomes null: JSON has none).

    A character that XML cannot carry does not make a result impossible; see `Output`.

    Raises TypeError or ValueError when JSON cannot carry the value. Bytes are refused: what goes
    inline is text and JSON, and what is larger or binary goes by reference.
    """
    if type(value) is str:
        return SkillResult((Output(value),), False, duration)
    if value is None:
        return SkillResult((), False, duration)
    if isinstance(value, SkillResult):
        return SkillResult(value.outputs, value.is_error, duration, value.taints)
    if isinstance(value, Output):
        return SkillResult((value,), False, duration)
    if isinstance(value, tuple | list) and value and all(isinstance(v, Output) for v in value):
        return SkillResult(tuple(value), False, duration)
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            "a skill returned bytes, which do not go inline: return text, a value for JSON, or "
            "an Output holding encoded text under its media type"
        )
    try:
        text = _json_of(value)
    except RecursionError as exc:
        raise ValueError("a skill returned a value nested too deeply for JSON") from exc
    return SkillResult((Output(text, JSON),), False, duration)


def _is_json(media_type: str) -> bool:
    return media_type == JSON or media_type.endswith("+json")


def _json_of(value: Any) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 has no form for
        return _encode(_fit(msgspec.to_builtins(value, str_keys=True))).decode()


def _fit(value: Any) -> Any:
    """A JSON value whose texts XML can carry."""
    if isinstance(value, str):
        return without_forbidden(value)
    if isinstance(value, dict):
        return {without_forbidden(key): _fit(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_fit(one) for one in value]
    return value
