"""The declaration of Payload classes: the markers of fields, and the plan that is read from a class
once.
"""

import functools
import re
import types
import typing
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin

import msgspec

from xep.binding.conversion import Conversion, conversion_for
from xep.binding.errors import DeclarationError
from xep.language import language_tag

XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
# Fewer than XML allows, but all that any protocol uses.
_LOCAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Name(NamedTuple):
    """The qualified name of an element: namespace and local name."""

    namespace: str
    local: str

    @property
    def tag(self) -> str:
        """The name in Clark notation, ``{namespace}local``."""
        return f"{{{self.namespace}}}{self.local}"


class Payload(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The base class of declared XML elements.

    A subclass names its element in ``xml`` and marks the position of each field: ``Attr``,
    ``Text``, ``TextChild``, ``Child`` or ``Flag``. A field without a default is required; a
    ``tuple[X, ...]`` repeats; ``X | None`` may be missing.

    The garbage collector does not track payloads: they are created from the inside out and never
    changed, so none is part of a cycle, and there are many of them.
    """

    xml: ClassVar[Name]
    xml_tag: ClassVar[str]
    """`xml` in Clark notation."""

    def __init_subclass__(cls) -> None:
        """Write the name once, because each stanza is searched for it."""
        if hasattr(cls, "xml"):
            cls.xml_tag = cls.xml.tag


class Attr(msgspec.Struct, frozen=True):
    """An attribute. ``name`` defaults to the field's own name with ``-`` for ``_``.

    An attribute can have no namespace except that of ``xml:``, with ``xml=True``. A value equal to
    the default is omitted when encoding unless ``always`` is set.
    """

    name: str | None = None
    xml: bool = False
    always: bool = False


class Text(msgspec.Struct, frozen=True):
    """The element's own character data."""


class TextChild(msgspec.Struct, frozen=True):
    """A child element that contains only text; repeated for ``tuple[X, ...]``.

    ``namespace`` defaults to the parent's.
    """

    name: str | None = None
    namespace: str | None = None
    at_least: int = 0
    at_most: int | None = None


class Child(msgspec.Struct, frozen=True):
    """A child element that is a Payload, or one of a union of them.

    ``malformed`` says how to handle a child that cannot be decoded: ``"fail"`` refuses the parent
    too, ``"drop"`` omits that child.
    """

    at_least: int = 0
    at_most: int | None = None
    malformed: Literal["fail", "drop"] = "fail"


class RawXML(msgspec.Struct, frozen=True, gc=False):
    """An element of any name, as XML text that declares its own namespaces.

    Created by a decoder, or by `keep` of a Payload; the text is sent unchanged. `read` decodes it.
    """

    text: str


class AnyChild(msgspec.Struct, frozen=True):
    """All child elements that no other field declares, each as `RawXML`."""


class Flag(msgspec.Struct, frozen=True):
    """An empty child element whose presence is ``True``."""

    name: str | None = None
    namespace: str | None = None


Marker = Attr | Text | TextChild | Child | AnyChild | Flag
Lang = Annotated[str | None, Attr("lang", xml=True)]
"""``xml:lang`` of the element (RFC 6120 §8.1.5); an invalid language tag is ignored."""
_LANGUAGE: Conversion[Any] = Conversion("a language tag", language_tag, None)


def _is_lang(marker: object) -> bool:
    return isinstance(marker, Attr) and marker.xml and marker.name == "lang"


class Field(msgspec.Struct, frozen=True):
    """The plan of one field."""

    name: str
    tag: str
    """The attribute's or child's name as ElementTree spells it."""
    local: str
    namespace: str | None
    required: bool
    default: Any
    many: bool
    optional: bool
    conversion: Conversion[Any] | None = None
    payloads: tuple[type[Payload], ...] = ()
    at_least: int = 0
    at_most: int | None = None
    drop_malformed: bool = False
    always: bool = False


class Plan(msgspec.Struct, frozen=True):
    """The plan of a Payload class: its fields by position, in declared order."""

    cls: type[Payload]
    attributes: tuple[Field, ...]
    text: Field | None
    children: tuple[tuple[Marker, Field], ...]


@functools.cache
def read_plan(cls: type[Payload]) -> Plan:
    """Read the declaration of ``cls``, once.

    Raises:
        DeclarationError: a field has no marker, two fields use one name, a type does not match its
            marker, or the class can contain itself.
    """
    if not isinstance(getattr(cls, "xml", None), Name):
        raise DeclarationError(f"{cls.__name__} does not name its element: set `xml = Name(…)`")
    if _LOCAL_NAME.fullmatch(cls.xml.local) is None or not cls.xml.namespace:
        raise DeclarationError(f"{cls.__name__}: {cls.xml} is not a qualified name of an element")
    attributes: list[Field] = []
    children: list[tuple[Marker, Field]] = []
    text: Field | None = None
    for info in msgspec.structs.fields(cls):
        marker, field = _read_field(cls, info)
        match marker:
            case Attr():
                attributes.append(field)
            case Text():
                text = field if text is None else _refuse(cls, info.name, "is a second text")
            case _:
                children.append((marker, field))
    _refuse_doubles(cls, [(field, field.tag) for field in attributes])
    anything = [field for marker, field in children if isinstance(marker, AnyChild)]
    if len(anything) > 1:
        _refuse(cls, anything[1].name, "is a second field for children of any name")
    _refuse_doubles(cls, [(field, tag) for _, field in children for tag in _child_tags(field)])
    _refuse_cycle(cls)
    return Plan(cls, tuple(attributes), text, tuple(children))


def _refuse_cycle(cls: type[Payload]) -> None:
    """Refuse a payload that can contain itself: it would be decoded as deep as a peer nests it."""
    seen: set[type[Payload]] = set()
    todo = list(_held(cls))
    while todo:
        held = todo.pop()
        if held is cls:
            raise DeclarationError(f"{cls.__name__} can hold itself, however deep")
        if held not in seen:
            seen.add(held)
            todo += _held(held)


@functools.cache
def _held(cls: type[Payload]) -> tuple[type[Payload], ...]:
    """Return the classes of the children of ``cls``."""
    found: list[type[Payload]] = []
    for info in msgspec.structs.fields(cls):
        declared = get_args(info.type)[0] if get_origin(info.type) is Annotated else info.type
        inner = _unwrap(declared)[0]
        found += [
            one for one in _members(inner) if isinstance(one, type) and issubclass(one, Payload)
        ]
    return tuple(found)


def _read_field(cls: type[Payload], info: Any) -> tuple[Marker, Field]:
    marker = None
    declared = info.type
    if get_origin(declared) is Annotated:
        declared, *extras = get_args(declared)
        marker = next((extra for extra in extras if isinstance(extra, Marker)), None)
    if marker is None:
        _refuse(cls, info.name, "has no marker: say Attr, Text, TextChild, Child, AnyChild or Flag")
    inner, many, optional = _unwrap(declared)
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    local, namespace, tag = _xml_name(cls, info.name, marker)
    converted = isinstance(marker, Attr | Text | TextChild)
    at_least, at_most = (
        (marker.at_least, marker.at_most) if isinstance(marker, TextChild | Child) else (0, None)
    )
    field = Field(
        name=info.name,
        tag=tag,
        local=local,
        namespace=namespace,
        required=info.required,
        default=default,
        many=many,
        optional=optional,
        conversion=(_LANGUAGE if inner is str and _is_lang(marker) else conversion_for(inner))
        if converted
        else None,
        payloads=tuple(_members(inner)) if isinstance(marker, Child) else (),
        at_least=at_least,
        at_most=at_most,
        drop_malformed=isinstance(marker, Child) and marker.malformed == "drop",
        always=isinstance(marker, Attr) and marker.always,
    )
    for wrong in (_wrong_type(marker, field, inner), _wrong_default(marker, field, inner)):
        if wrong is not None:
            _refuse(cls, info.name, wrong)
    return marker, field


def _wrong_type(marker: Marker, field: Field, inner: Any) -> str | None:
    """Return why the field's type does not match its marker."""
    if _LOCAL_NAME.fullmatch(field.local.removeprefix("xml:")) is None:
        return f"would be called {field.local!r}, which is not an XML name"
    match marker:
        case Child():
            if not all(isinstance(p, type) and issubclass(p, Payload) for p in field.payloads):
                return "is a Child but its type is not a Payload"
        case AnyChild():
            if inner is not RawXML or not field.many:
                return "must be tuple[RawXML, ...] to be AnyChild"
        case Flag():
            if inner is not bool or field.many or field.optional:
                return "must be bool to be a Flag"
        case _:
            if field.conversion is None:
                return f"has a type that no text can be converted to: {inner}"
    if isinstance(marker, Attr | Text) and field.many:
        return "cannot repeat: an attribute or a text occurs once"
    if not field.many and (field.at_least or field.at_most is not None):
        return "occurs once, so it has no at_least or at_most"
    if field.at_most is not None and field.at_most < field.at_least:
        return f"cannot occur at least {field.at_least} and at most {field.at_most} times"
    return None


def _wrong_default(marker: Marker, field: Field, inner: Any) -> str | None:
    """Return why the default cannot stand for the field's absence."""
    if isinstance(marker, Text) and inner in (str, bytes):
        if field.optional:
            return f"is text: none and an empty one look the same, so use {inner.__name__}"
        if not field.required and field.default != inner():
            return "is text: none and an empty one look the same, so only that can be the default"
    if isinstance(marker, Flag) and field.default is not False:
        return "is a Flag, so it needs the default False"
    if field.optional and field.default is not None:
        return "may be None, so it needs the default None"
    if field.many and not field.required and field.default != ():
        return "repeats, so its only default is ()"
    return None


def _xml_name(cls: type[Payload], field: str, marker: Marker) -> tuple[str, str | None, str]:
    local = getattr(marker, "name", None) or field.rstrip("_").replace("_", "-")
    if isinstance(marker, Attr):
        return (
            (f"xml:{local}", XML_NAMESPACE, f"{{{XML_NAMESPACE}}}{local}")
            if marker.xml
            else (local, None, local)
        )
    namespace = getattr(marker, "namespace", None) or cls.xml.namespace
    return local, namespace, f"{{{namespace}}}{local}"


def _unwrap(declared: Any) -> tuple[Any, bool, bool]:
    """Return the inner type of ``X | None`` or ``tuple[X, ...]``; whether many; whether
    optional.
    """
    if get_origin(declared) is tuple:
        args = get_args(declared)
        if len(args) == 2 and args[1] is Ellipsis:
            return args[0], True, False
    members = _members(declared)
    if type(None) in members:
        left = [member for member in members if member is not type(None)]
        inner = left[0] if len(left) == 1 else typing.Union[tuple(left)]  # noqa: UP007 - built at run time
        return inner, False, True
    return declared, False, False


def _members(declared: Any) -> list[Any]:
    if get_origin(declared) in (types.UnionType, typing.Union):
        return list(get_args(declared))
    return [declared]


def _child_tags(field: Field) -> list[str]:
    return [payload.xml.tag for payload in field.payloads] or [field.tag]


def _refuse_doubles(cls: type[Payload], claims: list[tuple[Field, str]]) -> None:
    owners: dict[str, str] = {}
    for field, tag in claims:
        owner = owners.setdefault(tag, field.name)
        if owner != field.name:
            _refuse(cls, field.name, f"claims {tag}, which is already that of {owner}")


def _refuse(cls: type[Payload], field: str, why: str) -> typing.NoReturn:
    raise DeclarationError(f"{cls.__name__}.{field} {why}")
