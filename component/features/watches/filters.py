"""What watches do with the content of events: filters, parameters of skills, and provenance.

Filters are typed conditions on XML payloads, and JMESPath for JSON payloads. A string in the
parameters that is one expression in braces, such as `"{json.title}"` or `"{text}"`, is replaced by
the value of that JMESPath expression over the event (`component.features.watches.watch.EventData`),
with its type. Other strings stay as they are.

The provenance of an event says which agents' work has led to it, so that agents do not trigger each
other endlessly. Work that an event triggers has the chain of the event. The items that this work
publishes carry the chain and the agent's own address inside their payloads, which every service
passes on.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from xep.atom import NAMESPACE as ATOM
from xep.binding import RawXML, encode
from xep.fluux_agent.provenance import MOST, NAMESPACE, Provenance
from xep.fluux_agent.provenance import NAMESPACE as PROVENANCE
from xep.jid import JID, JIDError
from xep.json_containers import NAMESPACE as JSON
from xep.tree import Tree

LONGEST_EXPRESSION: Final = 1_000
_MOST_STEPS: Final = 16
_EXPRESSION: Final = r"\{([^{}]+)\}"
_MOST_DEPTH: Final = 16


class FilterError(ValueError):
    """A filter cannot be used. The message is a sentence for the person who wrote it."""


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on one value of an XML payload. It is met if one matching element meets it.

    Attributes:
        element: the path to the element: local names separated by slashes, the payload's own name
            first; `*` stands for any name. Empty for the payload itself.
        attribute: the attribute whose value is compared; the text of the element if it is empty.
        namespace: the namespace of the element; any if it is empty.
        equals: the value is this text.
        contains: the value contains this text, whatever its case.
        above: the value is a number greater than this.
        below: the value is a number less than this.
        exists: whether there is such an element or attribute.
    """

    element: str = ""
    attribute: str = ""
    namespace: str = ""
    equals: str | None = None
    contains: str | None = None
    above: float | None = None
    below: float | None = None
    exists: bool | None = None


class ItemFilter:
    """Decides whether a watch accepts an item. `json` is a JMESPath expression on JSON payloads
    (XEP-0335); it is true if its value is neither null, false nor empty. With one, an item without
    a JSON payload is not of interest. Raises FilterError: the expression is not valid, or a
    condition compares nothing.
    """

    def __init__(self, conditions: Sequence[Condition] = (), json: str = "") -> None:
        for condition in conditions:
            check_condition(condition)
        self._conditions = tuple(conditions)
        self._search = compiled(json) if json else None

    def accepts(self, payload: Tree | None) -> bool:
        """Return whether an item with this payload is accepted. Never raises."""
        if self._search is not None:
            text = json_text(payload)
            if text is None or not self._search_holds(text):
                return False
        return all(_holds(condition, payload) for condition in self._conditions)

    def _search_holds(self, text: str) -> bool:
        from jmespath.exceptions import JMESPathError  # noqa: PLC0415 - where it is used

        assert self._search is not None
        try:
            found = self._search.search(msgspec.json.decode(text))
        except (msgspec.DecodeError, JMESPathError, RecursionError):
            return False
        return bool(found) or (found == 0 and found is not False)


def compiled(expression: str) -> Any:
    """Return a JMESPath expression, compiled. Raises FilterError."""
    # Imported only where there is a filter for JSON.
    import jmespath  # noqa: PLC0415
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415

    if len(expression) > LONGEST_EXPRESSION:
        raise FilterError(f"A JMESPath expression has at most {LONGEST_EXPRESSION} characters.")
    try:
        return jmespath.compile(expression)
    except (JMESPathError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is nested too deeply"
        raise FilterError(f"{expression!r} is not valid JMESPath: {reason}") from None


def check_condition(condition: Condition) -> None:
    """Raise FilterError if a condition compares nothing, or names no element."""
    tests = (
        condition.equals,
        condition.contains,
        condition.above,
        condition.below,
        condition.exists,
    )
    if all(test is None for test in tests):
        raise FilterError("A condition needs equals, contains, above, below or exists.")
    steps = condition.element.split("/") if condition.element else []
    if len(steps) > _MOST_STEPS or not all(steps):
        raise FilterError(
            f"{condition.element!r} is not a path: write local names separated by slashes, such as"
            " entry/title."
        )


def json_text(payload: Tree | None) -> str | None:
    """Return the JSON in a payload (XEP-0335); None if it has none."""
    if payload is None:
        return None
    is_json = payload.local == "json" and payload.namespace == JSON
    found = payload if is_json else payload.find(JSON, "json")
    return None if found is None else found.text


def payload_text(payload: Tree | None) -> str:
    """Return the text of a payload without its tags, for people and models."""
    if payload is None:
        return ""
    if payload.namespace == ATOM and payload.local == "entry":
        found = (payload.find(ATOM, name) for name in ("title", "summary", "content"))
        texts = dict.fromkeys(each.text.strip() for each in found if each is not None)
        return " ".join(" ".join(texts).split())
    text = payload.text
    if (chain := payload.find(PROVENANCE, "provenance")) is not None:
        text = text.removesuffix(chain.text)
    return " ".join(text.split())


def _holds(condition: Condition, payload: Tree | None) -> bool:
    values = [] if payload is None else list(_values(condition, payload))
    if condition.exists is not None and bool(values) is not condition.exists:
        return False
    if condition.exists is False:
        return True
    return any(_value_meets(condition, value) for value in values)


def _values(condition: Condition, payload: Tree) -> Iterator[str]:
    for element in _elements(condition.element, payload):
        if condition.namespace and element.namespace != condition.namespace:
            continue
        if not condition.attribute:
            yield element.text.strip()
        elif (value := element.attributes.get(condition.attribute)) is not None:
            yield value


def _elements(path: str, payload: Tree) -> Iterable[Tree]:
    first, *rest = path.split("/") if path else ["*"]
    found = [payload] if _named(payload, first) else []
    for step in rest:
        found = [child for each in found for child in each.children if _named(child, step)]
    return found


def _named(element: Tree, name: str) -> bool:
    return name in ("*", element.local)


def _value_meets(condition: Condition, value: str) -> bool:
    if condition.equals is not None and value != condition.equals:
        return False
    if condition.contains is not None and condition.contains.casefold() not in value.casefold():
        return False
    if condition.above is None and condition.below is None:
        return True
    try:
        number = float(value)
    except ValueError:
        return False
    return (condition.above is None or number > condition.above) and (
        condition.below is None or number < condition.below
    )


def fill_params(params: bytes, data: bytes) -> bytes:
    """Return the parameters with the values of their expressions. An expression that finds nothing
    gives null; a parameter that would be null is left out.
    """
    if b"{" not in params[1:]:
        return params
    event = msgspec.json.decode(data)
    filled = _walk(msgspec.json.decode(params), lambda e: _value(e, event), 0)
    return msgspec.json.encode({key: value for key, value in filled.items() if value is not None})


def check_expressions(params: Mapping[str, Any]) -> None:
    """Raise FilterError if an expression is not valid, or parameters are nested too deep."""
    _walk(params, compiled, 0)


def _value(expression: str, event: Any) -> Any:
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415 - where it is used

    try:
        return compiled(expression).search(event)
    except (JMESPathError, FilterError, RecursionError):
        return None


def _walk(value: Any, replace: Callable[[str], Any], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise FilterError(f"The parameters are nested more than {_MOST_DEPTH} levels deep.")
    if isinstance(value, dict):
        return {key: _walk(each, replace, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_walk(each, replace, depth + 1) for each in value]
    if isinstance(value, str) and (found := re.fullmatch(_EXPRESSION, value)):
        return replace(found[1].strip())
    return value


def chain_of(payload: Tree | None) -> tuple[str, ...]:
    """Return the chain that a payload carries; empty if it carries none. Never raises."""
    found = None if payload is None else payload.find(NAMESPACE, "provenance")
    if found is None:
        return ()
    return tuple(
        each.text.strip() for each in found.children if each.local == "via" and each.text.strip()
    )[-MOST:]


def with_chain(payload: RawXML, agent: JID, chain: Sequence[str]) -> RawXML:
    """Return a payload that carries a chain and the agent that publishes it. Invalid addresses in
    the chain are left out; others can have written them.
    """
    via = []
    for text in chain:
        try:
            via.append(JID.parse(text).bare)
        except JIDError:
            continue
    element = encode(Provenance(via=(*via, agent.bare)[-MOST:]))
    text = payload.text
    if text.endswith("/>"):
        name = text[1:].split(maxsplit=1)[0].rstrip("/>")
        return RawXML(f"{text[:-2]}>{element}</{name}>")
    at = text.rindex("</")
    return RawXML(text[:at] + element + text[at:])
