"""Errors in a configuration as sentences: the file, the key, and how to correct it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from component.config.model import ENV_DELIMITER, ENV_PREFIX
from component.config.toml_file import Path

_SENTENCES: Mapping[str, str] = {
    "string_type": "must be a string, in quotes",
    "string_too_short": "is empty",
    "too_short": "is empty",
    "path_type": "must be a path, in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of a reasonable size",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
}
_RANGES = frozenset(("greater_than", "greater_than_equal", "less_than", "less_than_equal"))
_NAME = "[key]"
"""Pydantic's name for the name of a table in a mapping, at the end of a path."""
_LISTED = '["example.com"]'
_SLIP = 0.8
"""The minimum similarity of a key and a misspelling, for `difflib`."""
_REMOVED: Final = {
    **dict.fromkeys(
        ("loop.same_tool", "loop.ping_pong"),
        "was removed: only the same call with the same result counts as a loop (loop.same_call),"
        " and loop.max_iterations ends a turn; delete the line",
    ),
    **dict.fromkeys(
        ("server.max_depth", "server.max_elements"),
        "was removed: the limit is fixed, and server.max_stanza_bytes is the one to set; delete"
        " the line",
    ),
}


class Problem(NamedTuple):
    """One mistake in the configuration.

    `source` is the file or "environment"; `key` is the dotted key, the variable's name, or empty
    for the file as a whole; `text` is the rest of the sentence; `line` counts from 1.
    """

    source: str
    key: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """Return the whole sentence."""
        where = f"{self.source}, line {self.line}" if self.line else self.source
        return f"{where}: {self.key} {self.text}" if self.key else f"{where}: {self.text}"


class SettingsError(Exception):
    """The configuration cannot be used. `problems` holds one sentence for each reason."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Create the error from all problems, in the order in which they are shown."""
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    """Return the path as people write it: `policy.rules[0].skills`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def env_name(path: Path) -> str:
    """Return the environment variable that overrides the key at `path`."""
    return ENV_PREFIX + ENV_DELIMITER.join(str(part) for part in path).upper()


def sentences(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the sentence of each mistake that pydantic found in settings of a class.

    No text of the configuration is repeated, because a secret may be at the wrong key.
    """
    errors = error.errors(include_url=False)
    for details in errors:
        loc = details["loc"]
        if details["type"] == "too_short" and any(_within(each["loc"], loc) for each in errors):
            continue  # the whole value is wrong
        if loc and loc[-1] == _NAME:
            yield loc[:-1], f"is not a known name: {_sentence(details, model)}"
            continue
        key = details.get("ctx", {}).get("key")
        yield _path_of(key) if key else loc, _sentence(details, model)


def _path_of(key: str) -> Path:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _within(path: Path, above: Path) -> bool:
    return len(path) > len(above) and path[: len(above)] == above


def unknown_key(path: Path, model: type[BaseModel]) -> str:
    """Return a sentence that the key does not exist, and which one may have been meant."""
    if dotted(path) in _REMOVED:
        return _REMOVED[dotted(path)]
    *table, name = path
    known = _keys_of(_field_at(tuple(table), model))
    # A misspelling; the right key in the wrong section, from near to far; a similar one.
    meant = _alike(name, known, _SLIP, table)
    below = "".join(f"{part}." for part in table if isinstance(part, str))
    elsewhere = [key for key in _every_key(model) if key.rpartition(".")[2] == name]
    elsewhere.sort(key=lambda key: (not key.startswith(below), key.count(".")))
    meant += elsewhere or _alike(name, known, 0.6, table)
    if meant:
        return f"is not a setting; did you mean {meant[0]}?"
    return f"is not a setting; known here: {', '.join(known)}"


def _alike(name: str | int, known: list[str], cutoff: float, table: list[str | int]) -> list[str]:
    import difflib  # noqa: PLC0415 - only a mistake needs it

    found = difflib.get_close_matches(str(name), known, n=1, cutoff=cutoff)
    return [dotted((*table, close)) for close in found]


def _sentence(details: ErrorDetails, model: type[BaseModel]) -> str:
    kind, path, context = details["type"], details["loc"], details.get("ctx", {})
    if kind == "missing":
        return _missing(path, model)
    if kind == "extra_forbidden":
        return unknown_key(path, model)
    if kind == "model_type":
        return f"must be a table: {_header(path)}"
    if kind == "tuple_type":
        return _list(path, model)
    if kind not in _SENTENCES:
        return details["msg"]
    sentence = _SENTENCES[kind].format(**context)
    # A number out of its range is no secret; anything else might be one at the wrong key.
    if kind in _RANGES and not isinstance(details["input"], str):
        return f"{sentence}, and is {details['input']}"
    return sentence


def _list(path: Path, model: type[BaseModel]) -> str:
    field = _field_at(path, model)
    if section_of(field) is not None:
        return f"must be a list of tables, each under [[{_header(path)[1:-1]}]]"
    return f"must be a list, such as {_example(field) or _LISTED}"


def _missing(path: Path, model: type[BaseModel]) -> str:
    shown = _example(_field_at(path, model)) or _quoted("")
    return f"is missing: add {path[-1]} = {shown} under {_header(path[:-1])}"


def _example(field: type[BaseModel] | FieldInfo | None) -> str:
    """Return a value as it is written in the file; empty if the field has no example."""
    example = field.examples[0] if isinstance(field, FieldInfo) and field.examples else None
    if isinstance(example, list):
        return f"[{', '.join(map(_quoted, example))}]"
    return _quoted(example) if isinstance(example, str) else ""


def _quoted(text: str) -> str:
    return f'"{text}"'


def _header(path: Path) -> str:
    name = ".".join(part for part in path if isinstance(part, str))
    return f"[[{name}]]" if path and isinstance(path[-1], int) else f"[{name}]"


def _field_at(path: Path, model: type[BaseModel]) -> type[BaseModel] | FieldInfo | None:
    """Return the section or field that `path` leads to; None if there is none."""
    here: type[BaseModel] | FieldInfo | None = model
    for part in path:
        if isinstance(part, int):
            continue
        section = section_of(here)
        named = isinstance(here, FieldInfo) and get_origin(here.annotation) is dict
        here = section if named else section.model_fields.get(part) if section else None
    return here


def section_of(field: type[BaseModel] | FieldInfo | None) -> type[BaseModel] | None:
    """Return the section that a field contains, or a list of them, or one for each name,
    or None.
    """
    kind: Any = field.annotation if isinstance(field, FieldInfo) else field
    arguments = getattr(kind, "__args__", None)
    if arguments:
        kind = arguments[get_origin(kind) is dict]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _keys_of(field: type[BaseModel] | FieldInfo | None) -> list[str]:
    section = section_of(field)
    return list(section.model_fields) if section else []


def _every_key(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield prefix + name
        if inner := section_of(field):
            yield from _every_key(inner, f"{prefix}{name}.")
