"""XEP-0461 Message Replies."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:reply:0"


class Reply(Payload, frozen=True, kw_only=True):
    """The message that is replied to, and its author (XEP-0461 §3).

    ``to`` is kept unchanged: it may be full or bare, and some clients omit it.
    """

    xml = Name(NAMESPACE, "reply")

    id: Annotated[str, Attr()]
    to: Annotated[str | None, Attr()] = None
