"""XEP-0092 Software Version."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "jabber:iq:version"


class VersionQuery(Payload, frozen=True, kw_only=True):
    """Asks which software an entity runs (XEP-0092 §2)."""

    xml = Name(NAMESPACE, "query")


class Version(Payload, frozen=True, kw_only=True):
    """The answer (XEP-0092 §2): name, version, and the operating system if that may be told."""

    xml = Name(NAMESPACE, "query")

    name: Annotated[str, TextChild()]
    version: Annotated[str, TextChild()]
    os: Annotated[str | None, TextChild()] = None
