"""RFC 4287 Atom, as far as microblogging uses it (XEP-0277)."""

from datetime import datetime
from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "http://www.w3.org/2005/Atom"


class Entry(Payload, frozen=True, kw_only=True):
    """An entry (RFC 4287 §4.1.2)."""

    xml = Name(NAMESPACE, "entry")

    title: Annotated[str, TextChild()]
    id: Annotated[str | None, TextChild()] = None
    published: Annotated[datetime | None, TextChild()] = None
    updated: Annotated[datetime | None, TextChild()] = None
