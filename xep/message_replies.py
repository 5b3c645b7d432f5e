"""XEP-0461 Message Replies."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:reply:0"


class Reply(Payload, frozen=True, kw_only=True):
    """Which message is replied to, and who wrote that (XEP-0461 §3).

    ``to`` is kept as it came: it may be full or bare, and some clients leave it out.
    """

    xml = Name(NAMESPACE, "reply")

    id: Annotated[str, Attr()]
    to: Annotated[str | None, Attr()] = None
