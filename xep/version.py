"""XEP-0092 Software Version."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "jabber:iq:version"


class VersionQuery(Payload, frozen=True, kw_only=True):
    """Queries the software of an entity (XEP-0092 §2)."""

    xml = Name(NAMESPACE, "query")


class Version(Payload, frozen=True, kw_only=True):
    """The answer (XEP-0092 §2): name, version, and optionally the operating system."""

    xml = Name(NAMESPACE, "query")

    name: Annotated[str, TextChild()]
    version: Annotated[str, TextChild()]
    os: Annotated[str | None, TextChild()] = None
