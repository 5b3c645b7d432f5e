"""Expands `${VAR}` in the strings of a configuration file.

`${VAR}` is the variable's value, `${VAR:-default}` uses the default if it is missing or empty (as
in the shell), `$${` is a plain `${`. The value of a variable is not expanded again.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]

_REFERENCE = re.compile(
    r"\$\$\{"  # an escaped brace
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|(?P<broken>\$\{)"
)


class ExpansionError(ValueError):
    """A string cannot be expanded; the text continues a sentence that begins with the
    key's name.
    """


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return `text` with every reference replaced.

    Raises ExpansionError if a variable is missing and has no default, or `${` is not a reference.
    """
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match["broken"]:
            raise ExpansionError(
                "has a ${ that is not a variable: write ${NAME} or ${NAME:-default}, and $${ for "
                "a plain ${"
            )
        if (name := match["name"]) is None:
            return "${"
        if match["default"] is not None:
            return variables.get(name) or match["default"]
        if name not in variables:
            missing.append(name)
        return variables.get(name, "")

    expanded = _REFERENCE.sub(value, text)
    if missing:
        names = " and ".join(f"${{{name}}}" for name in dict.fromkeys(missing))
        raise ExpansionError(f"uses {names}, which is not set")
    return expanded


def escape(text: str) -> str:
    """Return `text` so that `expand` gives it back unchanged."""
    return text.replace("${", "$${")


def expand_all(
    value: Any, variables: Mapping[str, str], failed: Callable[[Path, str], None], path: Path = ()
) -> Any:
    """Expand every string in a parsed TOML value; keys are not changed.

    A string that cannot be expanded is reported to `failed(path, reason)` and not changed.
    """
    if isinstance(value, str):
        try:
            return expand(value, variables)
        except ExpansionError as error:
            failed(path, str(error))
            return value
    if isinstance(value, dict):
        return {k: expand_all(v, variables, failed, (*path, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [expand_all(v, variables, failed, (*path, i)) for i, v in enumerate(value)]
    return value


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value below `value` that is not a table."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    else:
        yield path
