"""Reads the settings: the file, `${VAR}` in its strings, and the environment, which overrides the
file.
"""

import io
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from hashlib import sha256
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from component.config.kinds import relative_to
from component.config.model import ENV_DELIMITER, ENV_PREFIX, NO_SERVER, Settings
from component.config.problems import (
    Problem,
    SettingsError,
    dotted,
    env_name,
    sentences,
    unknown_key,
)
from component.config.skills import Skills
from component.config.toml_file import Path, expand_all, leaves, line_of, lines_of_keys

_AGAIN = r"Cannot declare \((?P<table>.*)\) twice"
_AT = r" \(at line (?P<line>\d+), column \d+\)$"


def load(
    path: FilePath,
    model_of: Callable[[Collection[str] | None], type[Settings]],
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings of the TOML file at `path` with the environment's overrides.

    `model_of` returns the class of settings with the sections of features: with the names of
    sections, only those of the features that they turn on.

    A variable such as `XMPP_AGENT_SERVER__HOST` overrides the file. `${VAR}` in a string of the
    file is replaced. Variables come from `environ` (by default that of the process), then from the
    file beside it whose name ends in `.env` (`agent.env` for `agent.toml`), if there is one.

    Relative paths are relative to the directory of the file.

    Raises SettingsError, which lists all mistakes at once.
    """
    environ = os.environ if environ is None else environ
    content = _content(path)
    text = _text(path, content)
    written = _parse(path, text)
    beside = path.with_suffix(".env")
    variables, more = _beside(beside)
    environ = {**variables, **environ}
    unexpanded: dict[Path, str] = {}
    served, later = _split(written)
    data = expand_all(served, environ, unexpanded.__setitem__)

    model = model_of({*written, *(_path_of(name)[0] for name in environ)})
    above = _environment(environ, model)
    # A value that the environment overrides need not be expandable in the file.
    overridden = set(leaves(above))
    unexpanded = {key: why for key, why in unexpanded.items() if not _covers(overridden, key)}
    lines = cache(partial(lines_of_keys, text))

    def problem(key: Path, sentence: str) -> Problem:
        if _covers(overridden, key):
            return Problem("environment", env_name(key), sentence)
        return Problem(str(path), dotted(key), sentence, line_of(key, lines()))

    mend = f"; export it, or set it in {beside}"
    problems = [
        problem(key, why + (mend if why.endswith("not set") else ""))
        for key, why in unexpanded.items()
    ]
    problems += _unknown_variables(environ, model, model_of)
    try:
        with relative_to(path.parent):
            settings = model(**_with_server(_merge(_merge(data, later), above)))
    except ValidationError as error:
        problems += [
            problem(key, sentence)
            for key, sentence in sentences(error, model_of(None))
            if not _covers(unexpanded, key)
        ]
    if problems:
        # Raised outside the handler, because a ValidationError as context would contain the values,
        # secrets included.
        raise SettingsError(sorted(problems, key=lambda p: p.line or 0))
    settings._digest = sha256(content + b"\0" + more).hexdigest()  # noqa: SLF001 - it is read-only
    return settings


def _text(path: FilePath, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        what = "is not UTF-8 text; TOML files are always UTF-8"
    raise SettingsError([Problem(str(path), "", what)])


def _content(path: FilePath) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        what = "does not exist; `xmpp-agent init` creates it, --config selects another file"
    except OSError as error:
        what = f"cannot be read: {error.strerror}; check its name and its permissions"
    raise SettingsError([Problem(str(path), "", what)])


def _parse(path: FilePath, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
    at = re.search(_AT, message)
    line = int(at["line"]) if at else None
    message = message[: at.start()] if at else message
    if again := re.fullmatch(_AGAIN, message):
        table = ".".join(re.findall(r"'([^']*)'", again["table"]))
        what = f"[{table}] is repeated here: put its keys below the first [{table}]"
        raise SettingsError([Problem(str(path), "", what, line)])
    what = f"is not valid TOML: {message}; text must be in quotes, and each key on its own line"
    raise SettingsError([Problem(str(path), "", what, line)])


def _beside(path: FilePath) -> tuple[dict[str, str], bytes]:
    """Return the variables of the file, and its content."""
    try:
        content = path.read_bytes()
        # Imported only where there is such a file.
        from dotenv.parser import parse_stream  # noqa: PLC0415

        bindings = list(parse_stream(io.StringIO(content.decode("utf-8"))))
    except FileNotFoundError:
        return {}, b""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        what = f"cannot be read: {why}; correct it or remove it"
        raise SettingsError([Problem(str(path), "", what)]) from None
    # The lines contain secrets, so only their numbers are shown.
    what = "is not a setting: write NAME=value, and close each quotation mark"
    wrong = [each.original.line for each in bindings if each.error]
    if wrong:
        raise SettingsError([Problem(str(path), "", what, line) for line in wrong])
    found = {each.key: each.value for each in bindings if each.key and each.value is not None}
    return found, content


def _split(written: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keys of this release from those of a later one, which are not expanded."""
    served, later = dict(written), dict[str, Any]()
    skills = served.get("skills")
    if isinstance(skills, dict):
        served["skills"] = {k: v for k, v in skills.items() if k in Skills.model_fields}
        later["skills"] = {k: True for k in skills if k not in Skills.model_fields}
    return served, later


def _with_server(data: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a section about the server: a worker needs none."""
    if "worker" in data and "server" not in data:
        return {**data, "server": NO_SERVER}
    return _merge({"server": {}}, data)


def _environment(environ: Mapping[str, str], model: type[Settings]) -> dict[str, Any]:
    environ = {
        name: value for name, value in environ.items() if _path_of(name)[0] in model.model_fields
    }
    if not environ:
        return {}
    # Imported only where a variable sets something: pydantic-settings takes 4 MB.
    from pydantic_settings import EnvSettingsSource  # noqa: PLC0415

    class Overrides(EnvSettingsSource):
        """A value that is not JSON stays text, for the error sentences to name."""

        def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
            try:
                return super().decode_complex_value(field_name, field, value)
            except ValueError:
                return value

    source = Overrides(
        model,  # type: ignore[arg-type]  # only its fields are read
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
    )
    source.env_vars = {name.lower(): value for name, value in environ.items()}
    return source()


def _unknown_variables(
    environ: Mapping[str, str],
    model: type[Settings],
    model_of: Callable[[Collection[str] | None], type[Settings]],
) -> list[Problem]:
    """Return overrides of sections that do not exist.

    Names without the delimiter are ignored: a container platform sets XMPP_AGENT_PORT and similar
    variables for a service of this name.
    """
    return [
        Problem("environment", name, unknown_key(_path_of(name)[:1], model_of(None)))
        for name in sorted(environ)
        if len(_path_of(name)) > 1 and _path_of(name)[0] not in model.model_fields
    ]


def _path_of(name: str) -> tuple[str, ...]:
    if not name.upper().startswith(ENV_PREFIX):
        return ("",)
    return tuple(name[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER))


def _covers(paths: Collection[Path], key: Path) -> bool:
    """Return whether `key` or something above it is among `paths`."""
    return any(key[:end] in paths for end in range(1, len(key) + 1))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _merge(under, value) if both and under is not None else value
    return merged
