"""XEP-0166 Jingle: sessions that clients open with each other, such as for a file or a call."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, TextChild

NAMESPACE: Final = "urn:xmpp:jingle:1"
INITIATE: Final = "session-initiate"


class Jingle(Payload, frozen=True, kw_only=True):
    """A message about a session (XEP-0166 §7.1), without its contents."""

    xml = Name(NAMESPACE, "jingle")

    action: Annotated[str | None, Attr()] = None
    sid: Annotated[str | None, Attr()] = None


class UnsupportedApplications(Payload, frozen=True, kw_only=True):
    """None of the offered applications is supported (XEP-0166 §7.4)."""

    xml = Name(NAMESPACE, "unsupported-applications")


class Reason(Payload, frozen=True, kw_only=True):
    """Why a session is refused (XEP-0166 §7.4)."""

    xml = Name(NAMESPACE, "reason")

    unsupported: Annotated[UnsupportedApplications | None, Child()] = None
    text: Annotated[str | None, TextChild()] = None
