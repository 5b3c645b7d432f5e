"""XEP-0482 Call Invites: calls of any kind to which a message invites."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:call-invites:0"


class Invite(Payload, frozen=True, kw_only=True):
    """An invitation to a call (XEP-0482 §3.1), without its methods. Its id is that of the
    message.
    """

    xml = Name(NAMESPACE, "invite")


class Reject(Payload, frozen=True, kw_only=True):
    """The refusal of an invitation (XEP-0482 §3.4)."""

    xml = Name(NAMESPACE, "reject")

    id: Annotated[str, Attr()]
