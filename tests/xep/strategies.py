"""Hypothesis strategies derived from declarations: every Payload class has one for free."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin
from xml.etree import ElementTree as ET

import msgspec
from hypothesis import strategies as st

import xep
from xep.binding import Payload, RawXML
from xep.binding.declaration import (
    AnyChild,
    Child,
    Field,
    Flag,
    Plan,
    TextChild,
    read_plan,
)
from xep.binding.raw import write
from xep.jid import JID

# XML 1.0 §2.2; every one of them must survive, the line breaks and tabs included.
xml_characters = st.one_of(
    st.sampled_from("\t\n\r '\"<>&]\x7f\x85\xa0\u2028\ud7ff\ue000\ufffd\U00010000\U0010ffff"),
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
    ),
)
xml_text = st.text(xml_characters, max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | xml_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(xml_text, inner, max_size=3),
    max_leaves=6,
)
jids = st.builds(
    JID,
    st.none() | st.from_regex(r"[a-z0-9.!#-]{1,10}", fullmatch=True),
    st.sampled_from(["example.com", "a.test", "xn--bcher-kva.example", "[::1]", "127.0.0.1"]).map(
        lambda text: JID.parse(text).domain
    ),
    st.none() | st.from_regex(r"[ -~]{1,10}", fullmatch=True),
)
offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda m: timezone(timedelta(minutes=m)))
raw_elements: st.SearchStrategy[ET.Element] = st.deferred(
    lambda: st.recursive(_raw(st.just([])), lambda inner: _raw(st.lists(inner, max_size=2)))
)
"""Elements that no class declares."""
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: xml_text,
    int: st.integers(-(10**19) + 1, 10**19 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    # XML Schema asks processors for 18 digits, and libxml2 knows 24.
    Decimal: st.decimals(-(10**9), 10**9, allow_nan=False, places=9),
    bool: st.booleans(),
    datetime: st.datetimes(
        datetime(1, 1, 3),  # noqa: DTZ001 - the strategy adds the time zone
        datetime(9999, 12, 29),  # noqa: DTZ001
        timezones=st.just(UTC) | offsets,
    ),
    timezone: offsets,
    bytes: st.binary(max_size=20),
    JID: jids,
    msgspec.Raw: json_values.map(msgspec.json.encode).map(msgspec.Raw),
}


def payloads_of(package: str) -> list[type[Payload]]:
    """Every Payload class that a module of ``package`` declares."""
    found = dict.fromkeys(_payloads(package))
    return sorted(found, key=lambda cls: (cls.__module__, cls.__name__))


def _payloads(package: str) -> Iterator[type[Payload]]:
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, package + "."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if not isinstance(value, type) or not issubclass(value, Payload):
                continue
            if hasattr(value, "xml"):  # what several elements have in common names none
                yield value


LANGUAGES = st.sampled_from(["en", "de-CH", "zh-Hant-TW"])
PAYLOADS = payloads_of(xep.__name__)


class Fit:
    """What is drawn where a declaration allows more than is wanted; this one wants it all."""

    def field(
        self, cls: type[Payload], field: Field, anything: st.SearchStrategy[Any]
    ) -> st.SearchStrategy[Any]:
        """What to draw for a field, where ``anything`` is all that it allows."""
        return anything

    def whole(self, payload: Any) -> Any:
        """The payload, or what should be drawn in its place."""
        return payload


ANYTHING = Fit()


@functools.cache
def payloads(cls: type[Payload], depth: int = 3, fit: Fit = ANYTHING) -> st.SearchStrategy[Any]:
    """Instances of ``cls``, with each field anything its declaration allows and ``fit`` wants."""
    plan = read_plan(cls)
    declared = {info.name: info.type for info in msgspec.structs.fields(cls)}
    fields = [*plan.attributes, *(field for _, field in plan.children)]
    fields += [] if plan.text is None else [plan.text]
    return st.fixed_dictionaries(
        {
            field.name: fit.field(cls, field, _values(field, declared[field.name], depth, fit))
            for field in fields
        }
    ).map(lambda values: fit.whole(cls(**values)))


def _values(field: Field, declared: Any, depth: int, fit: Fit) -> st.SearchStrategy[Any]:
    if get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    if field.payloads:
        if depth == 0 and not field.required and not field.at_least:
            return st.just(field.default)
        one: st.SearchStrategy[Any] = st.deferred(
            lambda: st.one_of([payloads(member, depth - 1, fit) for member in field.payloads])
        )
    else:
        one = _scalars(field, declared)
    if field.many:
        top = field.at_most if field.at_most is not None else field.at_least + 2
        return st.lists(one, min_size=field.at_least, max_size=top).map(tuple)
    return st.none() | one if field.optional else one


def _scalars(field: Field, declared: Any) -> st.SearchStrategy[Any]:
    inner = declared
    if field.many:
        inner = get_args(declared)[0]
    elif field.optional:
        inner = next(member for member in get_args(declared) if member is not type(None))
    if field.local == "xml:lang":
        return LANGUAGES
    if get_origin(inner) is Literal:
        return st.sampled_from(get_args(inner))
    if isinstance(inner, type) and issubclass(inner, Enum):
        return st.sampled_from(inner)
    if inner is RawXML:
        return raw_elements.map(lambda element: RawXML(write(element, None)))
    return SCALARS[inner]


def holds_anything(cls: type[Payload]) -> bool:
    """Whether an instance of ``cls`` can hold elements of any name."""
    return any(
        isinstance(marker, AnyChild) or any(map(holds_anything, field.payloads))
        for marker, field in read_plan(cls).children
    )


def names(plan: Plan) -> tuple[list[str], list[str]]:
    """The attribute names and element names that ``plan`` and all below it declare."""
    attributes: dict[str, None] = {}
    elements: dict[str, None] = {}
    seen: set[type[Payload]] = set()

    def walk(plan: Plan) -> None:
        if plan.cls in seen:
            return
        seen.add(plan.cls)
        attributes.update(dict.fromkeys(field.tag for field in plan.attributes))
        for marker, field in plan.children:
            if isinstance(marker, TextChild | Flag):
                elements[field.tag] = None
            if isinstance(marker, Child):
                for member in field.payloads:
                    elements[member.xml.tag] = None
                    walk(read_plan(member))

    walk(plan)
    return list(attributes), list(elements)


@functools.cache
def elements(cls: type[Payload], depth: int = 2) -> st.SearchStrategy[ET.Element]:
    """Any element tree, made of names that ``cls`` knows, values that nearly fit, and noise."""
    attributes, tags = names(read_plan(cls))
    values = st.sampled_from(_NEARLY) | xml_text
    keys = st.sampled_from([*attributes, "{urn:test:foreign}a", "unheard-of"])
    inner = [*tags, "{urn:test:foreign}x", "plain", f"{{{cls.xml.namespace}}}unheard-of"]
    children: st.SearchStrategy[list[ET.Element]] = st.just([])
    for _ in range(depth):
        children = st.lists(_trees(inner, keys, values, children), max_size=3)
    return _trees([cls.xml.tag], keys, values, children)


def _raw(children: st.SearchStrategy[list[ET.Element]]) -> st.SearchStrategy[ET.Element]:
    tags = ["{urn:test:raw}x", "{urn:test:raw}y", "{urn:test:other}x"]
    keys = st.sampled_from(["a", "{urn:test:raw}a", "{http://www.w3.org/XML/1998/namespace}lang"])
    return _trees(tags, keys, xml_text, children)


_NEARLY = ["", "0", "1", "true", "-1", "a@b.test", "2026-02-08T19:00:00Z", "{}", "AA==", "+01:00"]


def _trees(
    tags: list[str],
    keys: st.SearchStrategy[str],
    values: st.SearchStrategy[str],
    children: st.SearchStrategy[list[ET.Element]],
) -> st.SearchStrategy[ET.Element]:
    return st.builds(
        _element,
        st.sampled_from(tags),
        st.dictionaries(keys, values, max_size=4),
        values,
        children,
        xml_text,
    )


def _element(
    tag: str, attributes: dict[str, str], text: str, children: list[ET.Element], tail: str
) -> ET.Element:
    element = ET.Element(tag, attributes)
    element.text = text or None
    for child in children:
        child.tail = tail or None
        element.append(child)
    return element
