"""Texts and parameters with JMESPath expressions in braces, which refer to outputs of steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from component.config.rest import pieces_of

_ONE: Final = re.compile(r"\{([^{}]+)\}")
_LONGEST: Final = 1_000
_MOST_DEPTH: Final = 16
_ALL: Final = frozenset(
    (
        *("function_expression", "multi_select_list", "multi_select_dict", "key_val_pair"),
        *("comparator", "or_expression", "and_expression", "not_expression"),
    )
)
"""Nodes whose children are all evaluated where the node itself is."""


class TemplateError(ValueError):
    """An expression cannot be used. The message says why, without a full stop."""


@lru_cache(512)
def _compiled(expression: str) -> Any:
    # Imported with the first expression: the service starts faster without.
    import jmespath  # noqa: PLC0415
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415

    if len(expression) > _LONGEST:
        raise TemplateError(f"an expression has more than {_LONGEST} characters")
    try:
        return jmespath.compile(expression)
    except (JMESPathError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is nested too deeply"
        raise TemplateError(
            f"{{{expression}}} is not a JMESPath expression ({reason}); write {{{{ and }}}} for"
            " braces"
        ) from None


def expressions_in(value: Any) -> Iterator[str]:
    """Yield the expressions in all texts of a JSON value. Raises TemplateError."""
    for text in _texts(value, 0):
        try:
            pieces = pieces_of(text)
        except ValueError as error:
            raise TemplateError(f"{text[:60]!r} has {error}") from None
        for _, expression in pieces:
            if expression:
                yield expression


def roots_in(value: Any) -> frozenset[str]:
    """Return the names that the expressions of a JSON value begin with. Raises TemplateError."""
    return frozenset(root for expression in expressions_in(value) for root in _roots(expression))


def fill(value: Any, data: Mapping[str, Any]) -> Any:
    """Return a JSON value whose expressions are replaced by what they find in `data`: a text that
    is one expression by the value itself, expressions within a text by the value as text. What is
    not found is null, and empty within a text.

    Raises TemplateError: an expression cannot be applied to the data.
    """
    return _mapped(value, lambda text: _filled(text, data), 0)


def bound(value: Any, name: str, data: Any) -> Any:
    """Return a JSON value in which the expressions that refer only to `name` are replaced by what
    they find in `data`, in which braces are doubled. The others stay.

    Raises TemplateError as `fill`.
    """
    return _mapped(value, lambda text: _bound(text, name, data), 0)


def _bound(text: str, name: str, data: Any) -> Any:
    one = _ONE.fullmatch(text)
    if one is not None and _roots(one[1].strip()) == {name}:
        return _mapped(_found(one[1].strip(), {name: data}), _escaped, 0)
    said = ""
    for literal, expression in pieces_of(text):
        said += _escaped(literal)
        if expression and _roots(expression) == {name}:
            said += _escaped(_as_text(_found(expression, {name: data})))
        elif expression:
            said += f"{{{expression}}}"
    return said


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def names_after(root: str, value: Any) -> frozenset[str]:
    """Return the names that expressions in a JSON value look up in `root`: `topic` in
    `{params.topic}`. Raises TemplateError.
    """
    return frozenset(
        found
        for expression in expressions_in(value)
        for found in _members(_compiled(expression).parsed, root)
    )


def _members(node: Mapping[str, Any], root: str) -> Iterator[str]:
    """Yield the names that a node looks up in the field `root` of the whole data."""
    children = node["children"]
    if node["type"] == "subexpression":
        first, second, *_ = children
        if first["type"] == "field" and first["value"] == root and second["type"] == "field":
            yield second["value"]
    if node["type"] in _ALL:
        for child in children:
            yield from _members(child, root)
    elif children and node["type"] != "expref":
        yield from _members(children[0], root)


def _filled(text: str, data: Mapping[str, Any]) -> Any:
    if "{" not in text and "}" not in text:
        return text
    one = _ONE.fullmatch(text)
    if one is not None:
        return _found(one[1].strip(), data)
    said = ""
    for literal, expression in pieces_of(text):
        said += literal
        if expression:
            said += _as_text(_found(expression, data))
    return said


def _found(expression: str, data: Mapping[str, Any]) -> Any:
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415 - where it is used

    try:
        return _compiled(expression).search(data)
    except (JMESPathError, RecursionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is nested too deeply"
        raise TemplateError(
            f"{{{expression}}} cannot be applied to the outputs: {reason}"
        ) from None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


@lru_cache(512)
def _roots(expression: str) -> frozenset[str]:
    return frozenset(_roots_of(_compiled(expression).parsed, expression))


def _roots_of(node: Mapping[str, Any], expression: str) -> Iterator[str]:
    """Yield the names that a node looks up in the whole data. Where a node evaluates its second
    child on the result of the first one, only the first one looks at the whole.
    """
    kind, children = node["type"], node["children"]
    if kind == "field":
        yield node["value"]
    elif kind in ("current", "identity"):
        raise TemplateError(
            f"{{{expression}}} refers to all outputs: begin with the name of a step"
        )
    elif kind in ("literal", "expref"):
        return
    else:
        for child in children if kind in _ALL else children[:1]:
            yield from _roots_of(child, expression)


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        raise TemplateError(f"parameters are nested more than {_MOST_DEPTH} levels deep")
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each, depth + 1)
        case list() | tuple():
            for each in value:
                yield from _texts(each, depth + 1)


def _mapped(value: Any, change: Callable[[str], Any], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise TemplateError(f"parameters are nested more than {_MOST_DEPTH} levels deep")
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _mapped(each, change, depth + 1) for key, each in value.items()}
        case list() | tuple():
            return [_mapped(each, change, depth + 1) for each in value]
    return value
