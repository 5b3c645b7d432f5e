"""XEP-0292 vCard4 over XMPP: the properties of RFC 6351 that describe an automated entity."""

from typing import Annotated, Final

from xep.binding import Child, Name, Payload, TextChild

NAMESPACE: Final = "urn:ietf:params:xml:ns:vcard-4.0"
NODE: Final = "urn:xmpp:vcard4"
"""The PubSub node of the vCard (XEP-0292 §3.1)."""


class TextProperty(Payload, frozen=True, kw_only=True):
    """A property whose value is a text (RFC 6351 §4)."""

    text: Annotated[str, TextChild()]


class UriProperty(Payload, frozen=True, kw_only=True):
    """A property whose value is a URI (RFC 6351 §4)."""

    uri: Annotated[str, TextChild()]


class Kind(TextProperty, frozen=True, kw_only=True):
    """The kind of the entity (RFC 6350 §6.1.4): a program is ``application`` (RFC 6473)."""

    xml = Name(NAMESPACE, "kind")


class FullName(TextProperty, frozen=True, kw_only=True):
    """The name that is shown (RFC 6350 §6.2.1)."""

    xml = Name(NAMESPACE, "fn")


class Nickname(TextProperty, frozen=True, kw_only=True):
    """A short name (RFC 6350 §6.2.3)."""

    xml = Name(NAMESPACE, "nickname")


class Photo(UriProperty, frozen=True, kw_only=True):
    """An image, as a ``data:`` URI or by its address (RFC 6350 §6.2.4)."""

    xml = Name(NAMESPACE, "photo")


class Organization(TextProperty, frozen=True, kw_only=True):
    """The organization that the entity belongs to (RFC 6350 §6.6.4)."""

    xml = Name(NAMESPACE, "org")


class InstantMessaging(UriProperty, frozen=True, kw_only=True):
    """An address for instant messages (RFC 6350 §6.4.3), such as an ``xmpp:`` URI."""

    xml = Name(NAMESPACE, "impp")


class RelationType(TextProperty, frozen=True, kw_only=True):
    """How a related entity is related, such as ``contact`` (RFC 6350 §6.6.6)."""

    xml = Name(NAMESPACE, "type")


class RelationParameters(Payload, frozen=True, kw_only=True):
    """The parameters of `Related` (RFC 6351 §5)."""

    xml = Name(NAMESPACE, "parameters")

    type: Annotated[RelationType, Child()]


class Related(Payload, frozen=True, kw_only=True):
    """An entity that this one is related to, by its URI (RFC 6350 §6.6.6)."""

    xml = Name(NAMESPACE, "related")

    parameters: Annotated[RelationParameters | None, Child(malformed="drop")] = None
    uri: Annotated[str, TextChild()]


class Note(TextProperty, frozen=True, kw_only=True):
    """A comment (RFC 6350 §6.7.2)."""

    xml = Name(NAMESPACE, "note")


class VCard4(Payload, frozen=True, kw_only=True):
    """A vCard (XEP-0292 §2). An invalid property is left out."""

    xml = Name(NAMESPACE, "vcard")

    kind: Annotated[Kind | None, Child(malformed="drop")] = None
    full_names: Annotated[tuple[FullName, ...], Child(malformed="drop")] = ()
    nicknames: Annotated[tuple[Nickname, ...], Child(malformed="drop")] = ()
    photos: Annotated[tuple[Photo, ...], Child(malformed="drop")] = ()
    organizations: Annotated[tuple[Organization, ...], Child(malformed="drop")] = ()
    messaging: Annotated[tuple[InstantMessaging, ...], Child(malformed="drop")] = ()
    related: Annotated[tuple[Related, ...], Child(malformed="drop")] = ()
    notes: Annotated[tuple[Note, ...], Child(malformed="drop")] = ()
