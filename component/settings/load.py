"""Reads the settings: the file, `${VAR}` in its strings, and the environment above it."""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path as FilePath
from typing import Any

from dotenv.parser import parse_stream
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from component.settings.expand import Path, expand_all, leaves
from component.settings.lines import line_of, lines_of_keys
from component.settings.model import ENV_DELIMITER, ENV_PREFIX, LATER, Settings
from component.settings.problems import (
    Problem,
    SettingsError,
    dotted,
    env_name,
    sentences,
    unknown_key,
)
from component.settings.skills import Skills

_AGAIN = re.compile(r"Cannot declare \((?P<table>.*)\) twice")
_AT = re.compile(r" \(at line (?P<line>\d+), column \d+\)$")


def load(path: FilePath, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the TOML file at `path` with the environment's overrides.

    A variable such as `XMPP_AGENT_SERVER__HOST` wins over the file. `${VAR}` in a string of the
    file is replaced. Variables come from `environ` (the process's own unless given), then from the
    file beside it whose name ends in `.env` (`agent.env` for `agent.toml`), if there is one.

    Raises SettingsError, which lists everything that is wrong at once.
    """
    environ = os.environ if environ is None else environ
    text = _read(path)
    written = _parse(path, text)
    beside = path.with_suffix(".env")
    environ = {**_beside(beside), **environ}
    unexpanded: dict[Path, str] = {}
    served, later = _split(written)
    data = expand_all(served, environ, unexpanded.__setitem__)

    above = _environment(environ)
    # What the environment sets need not be expandable in the file.
    overridden = set(leaves(above))
    unexpanded = {key: why for key, why in unexpanded.items() if not _covers(overridden, key)}
    lines = lines_of_keys(text)

    def problem(key: Path, sentence: str) -> Problem:
        if _covers(overridden, key):
            return Problem("environment", env_name(key), sentence)
        return Problem(str(path), dotted(key), sentence, line_of(key, lines))

    mend = f"; export it, or set it in {beside}"
    problems = [
        problem(key, why + (mend if why.endswith("not set") else ""))
        for key, why in unexpanded.items()
    ]
    problems += _unknown_variables(environ)
    try:
        settings = Settings(**_merge({"server": {}}, _merge(_merge(data, later), above)))
    except ValidationError as error:
        problems += [
            problem(key, sentence)
            for key, sentence in sentences(error)
            if not _covers(unexpanded, key)
        ]
    if problems:
        # Raised out here, because a ValidationError as context would carry the values, secrets
        # included.
        raise SettingsError(sorted(problems, key=lambda p: p.line or 0))
    return settings


def _read(path: FilePath) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        what = "there is no such file; `xmpp-agent init` writes one, --config names another"
    except UnicodeDecodeError:
        what = "is not UTF-8 text; TOML files are always UTF-8"
    except OSError as error:
        what = f"cannot be read: {error.strerror}; check its name and its permissions"
    raise SettingsError([Problem(str(path), "", what)])


def _parse(path: FilePath, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
    at = _AT.search(message)
    line = int(at["line"]) if at else None
    message = message[: at.start()] if at else message
    if again := _AGAIN.fullmatch(message):
        table = ".".join(re.findall(r"'([^']*)'", again["table"]))
        what = f"[{table}] stands here once more: put its keys below the first [{table}]"
        raise SettingsError([Problem(str(path), "", what, line)])
    what = f"is not valid TOML: {message}; text stands in quotes, and each key in a line of its own"
    raise SettingsError([Problem(str(path), "", what, line)])


def _beside(path: FilePath) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8") as file:
            bindings = list(parse_stream(file))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        what = f"cannot be read: {why}; mend it or remove it"
        raise SettingsError([Problem(str(path), "", what)]) from None
    # The lines hold secrets, so they are named by their numbers alone.
    what = "is no setting: write NAME=value, and close what a quotation mark opens"
    wrong = [each.original.line for each in bindings if each.error]
    if wrong:
        raise SettingsError([Problem(str(path), "", what, line) for line in wrong])
    return {each.key: each.value for each in bindings if each.key and each.value is not None}


def _split(written: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what this release reads from what waits for a later one, which is not expanded."""
    served: dict[str, Any] = {}
    later: dict[str, Any] = {}
    for name, value in written.items():
        (later if name in LATER else served)[name] = value
    skills = served.get("skills")
    if isinstance(skills, dict):
        served["skills"] = {k: v for k, v in skills.items() if k in Skills.model_fields}
        later["skills"] = {k: True for k in skills if k not in Skills.model_fields}
    return served, later


class _Environment(EnvSettingsSource):
    """Overrides from a mapping; what is no JSON stays text, for the error sentences to name."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings)
        self.env_vars = {name.lower(): value for name, value in environ.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    data = _Environment(environ)()
    for name in environ:
        section = _path_of(name)[0]
        if section in LATER:
            data[section] = True
    return data


def _unknown_variables(environ: Mapping[str, str]) -> list[Problem]:
    """Find overrides of sections that do not exist.

    Names without the delimiter are left alone: a container platform sets XMPP_AGENT_PORT and the
    like for a service of this name.
    """
    return [
        Problem("environment", name, unknown_key(_path_of(name)[:1]))
        for name in sorted(environ)
        if len(_path_of(name)) > 1 and _path_of(name)[0] not in Settings.model_fields
    ]


def _path_of(name: str) -> tuple[str, ...]:
    if not name.upper().startswith(ENV_PREFIX):
        return ("",)
    return tuple(name[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER))


def _covers(paths: Collection[Path], key: Path) -> bool:
    """Whether `key` or something above it is among `paths`."""
    return any(key[:end] in paths for end in range(1, len(key) + 1))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _merge(under, value) if both and under is not None else value
    return merged
