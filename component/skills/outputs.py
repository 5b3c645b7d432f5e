"""The results of calls: parts, which are texts, JSON, files and links."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from component.policy.taint import Taint
from xep.characters import json_without_forbidden, without_forbidden

TEXT = "text/plain"
JSON = "application/json"

_encode = msgspec.json.Encoder().encode


class Output(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag="text"):
    """One output: its text, its media type, and a name if there are several.

    The text and the name contain only characters that XML allows: any other character becomes an
    escape in JSON and U+FFFD elsewhere. So callers, models and files get the same text.
    """

    text: str
    media_type: str = TEXT
    name: str | None = None

    def __post_init__(self) -> None:
        """Replace characters that XML does not allow."""
        if not self.text.isprintable():
            fit = json_without_forbidden if is_json(self.media_type) else without_forbidden
            force_setattr(self, "text", fit(self.text))
        if self.name is not None and not self.name.isprintable():
            force_setattr(self, "name", without_forbidden(self.name))


class File(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag="file"):
    """A file that a skill returns, such as an image. The media type is one of RFC 6838.

    When a model has called the skill, the model sees the file, and the person gets it with the
    answer. `audience` leaves out one of them: of a file for the person, the model learns only name
    and size; one for the model is not sent to the person.
    """

    data: bytes
    media_type: str
    name: str | None = None
    audience: Literal["person", "model"] | None = None

    def __post_init__(self) -> None:
        """Replace characters that XML does not allow."""
        _make_sendable(self)


class Link(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag="link"):
    """A file or page elsewhere, and what is known of it. The size is in bytes; width and height are
    those of an image, in pixels. One with a digest is a file that does not change, so it is sent to
    people as a file.
    """

    url: str
    media_type: str | None = None
    name: str | None = None
    size: Annotated[int, Meta(ge=0)] | None = None
    sha256: Annotated[bytes, Meta(min_length=32, max_length=32)] | None = None
    width: Annotated[int, Meta(ge=1)] | None = None
    height: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        """Replace characters that XML does not allow."""
        _make_sendable(self)


Part: TypeAlias = Output | File | Link


class SkillResult(msgspec.Struct, frozen=True, gc=False):
    """A completed call: the parts of its result in `outputs`.

    `is_error` says that the skill reported an error; `duration` is in seconds.

    A skill may return one itself; its duration is still measured. `taints` are the possible authors
    of this result; `()` means nobody, and None means those that the skill declares, which is the
    maximum.
    """

    outputs: tuple[Part, ...]
    is_error: bool = False
    duration: float = 0.0
    taints: tuple[Taint, ...] | None = None


def text_and_data(text: str, value: Any, name: str) -> SkillResult:
    """Return a result for people and for programs: a text, and a value as JSON."""
    return SkillResult((Output(text, TEXT, "text"), Output(_encode(value).decode(), JSON, name)))


def as_result(value: Any, duration: float) -> SkillResult:
    """Convert what a skill returned to a result.

    str is text; an Output, a File, a Link, a tuple or list of these, and a SkillResult are used
    unchanged; None means no output; everything else is encoded as JSON (NaN and infinite floats
    become null, because JSON has none).

    A character that XML does not allow does not make a result invalid; see `Output`.

    Raises TypeError or ValueError when JSON cannot express the value. Bytes are refused, because
    their media type is not known: a File has one.
    """
    if type(value) is str:
        return SkillResult((Output(value),), False, duration)
    if value is None:
        return SkillResult((), False, duration)
    if isinstance(value, SkillResult):
        return SkillResult(value.outputs, value.is_error, duration, value.taints)
    if isinstance(value, Part):
        return SkillResult((value,), False, duration)
    if isinstance(value, tuple | list) and value and all(isinstance(v, Part) for v in value):
        return SkillResult(tuple(value), False, duration)
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            "a skill returned bytes without a media type: return a File, text, or a value for JSON"
        )
    try:
        text = _json_of(value)
    except RecursionError as exc:
        raise ValueError("a skill returned a value nested too deeply for JSON") from exc
    return SkillResult((Output(text, JSON),), False, duration)


def _make_sendable(part: File | Link) -> None:
    for name in part.__struct_fields__:
        text = getattr(part, name)
        if isinstance(text, str) and not text.isprintable():
            force_setattr(part, name, without_forbidden(text))


def is_json(media_type: str) -> bool:
    """Return whether a media type is one of JSON (RFC 6839 §3.1)."""
    return media_type == JSON or media_type.endswith("+json")


def _json_of(value: Any) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot encode
        return _encode(_fit(msgspec.to_builtins(value, str_keys=True))).decode()


def _fit(value: Any) -> Any:
    """Return a JSON value whose texts contain only characters that XML allows."""
    if isinstance(value, str):
        return without_forbidden(value)
    if isinstance(value, dict):
        return {without_forbidden(key): _fit(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_fit(one) for one in value]
    return value
