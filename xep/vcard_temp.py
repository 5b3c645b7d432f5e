"""XEP-0054 vcard-temp: the parts of a vCard that describe an automated entity."""

from typing import Annotated, Final

from xep.binding import Child, Name, Payload, TextChild

NAMESPACE: Final = "vcard-temp"


class Photo(Payload, frozen=True, kw_only=True):
    """An image in the vCard (XEP-0153 §4.6): its media type and its bytes."""

    xml = Name(NAMESPACE, "PHOTO")

    media_type: Annotated[str | None, TextChild("TYPE")] = None
    data: Annotated[bytes | None, TextChild("BINVAL")] = None


class Organization(Payload, frozen=True, kw_only=True):
    """The organization that the entity belongs to."""

    xml = Name(NAMESPACE, "ORG")

    name: Annotated[str | None, TextChild("ORGNAME")] = None


class Email(Payload, frozen=True, kw_only=True):
    """An email address, which is in a child element (XEP-0054 §8)."""

    xml = Name(NAMESPACE, "EMAIL")

    address: Annotated[str | None, TextChild("USERID")] = None


class VCard(Payload, frozen=True, kw_only=True):
    """A request for a vCard, or the vCard itself (XEP-0054 §3.3); all fields are optional."""

    xml = Name(NAMESPACE, "vCard")

    full_name: Annotated[str | None, TextChild("FN")] = None
    nickname: Annotated[str | None, TextChild("NICKNAME")] = None
    photo: Annotated[Photo | None, Child(malformed="drop")] = None
    email: Annotated[Email | None, Child(malformed="drop")] = None
    jid: Annotated[str | None, TextChild("JABBERID")] = None
    role: Annotated[str | None, TextChild("ROLE")] = None
    organization: Annotated[Organization | None, Child(malformed="drop")] = None
    url: Annotated[str | None, TextChild("URL")] = None
    description: Annotated[str | None, TextChild("DESC")] = None
