"""Parameters of skills that are filled from an event.

A string in the parameters that is one expression in braces, such as `"{json.title}"` or
`"{text}"`, is replaced by the value of that JMESPath expression over the event
(`component.features.watches.watch.EventData`), with its type. Other strings stay as they are.
"""

import re
from typing import Any, Final

import msgspec

from component.features.watches.conditions import FilterError, compiled

_EXPRESSION: Final = re.compile(r"\{([^{}]+)\}")
_MOST_DEPTH: Final = 16


def check_params(params: bytes) -> None:
    """Raise FilterError if parameters are not a JSON object or contain an invalid expression."""
    try:
        value = msgspec.json.decode(params)
    except msgspec.DecodeError as error:
        raise FilterError(f"The parameters are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FilterError("The parameters must be a JSON object.")
    _walk(value, lambda expression: compiled(expression) and None, 0)


def fill_params(params: bytes, data: bytes) -> bytes:
    """The parameters with the values of their expressions.

    An expression that finds nothing gives null; a parameter that would be null is left out.
    """
    if b"{" not in params[1:]:
        return params
    event = msgspec.json.decode(data)
    filled = _walk(msgspec.json.decode(params), lambda e: _value(e, event), 0)
    return msgspec.json.encode({key: value for key, value in filled.items() if value is not None})


def _value(expression: str, event: Any) -> Any:
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415 - where it is used

    try:
        return compiled(expression).search(event)
    except (JMESPathError, FilterError, RecursionError):
        return None


def _walk(value: Any, replace: Any, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise FilterError(f"The parameters are nested more than {_MOST_DEPTH} levels deep.")
    if isinstance(value, dict):
        return {key: _walk(each, replace, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_walk(each, replace, depth + 1) for each in value]
    if isinstance(value, str) and (found := _EXPRESSION.fullmatch(value)):
        return replace(found[1].strip())
    return value
