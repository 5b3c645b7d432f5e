"""XEP-0353 Jingle Message Initiation: calls that are proposed to all clients of a person."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload
from xep.jingle import Reason

NAMESPACE: Final = "urn:xmpp:jingle-message:0"


class Propose(Payload, frozen=True, kw_only=True):
    """The proposal of a session (XEP-0353 §3.1), without what it is for."""

    xml = Name(NAMESPACE, "propose")

    id: Annotated[str, Attr()]


class Reject(Payload, frozen=True, kw_only=True):
    """The refusal of a proposed session (XEP-0353 §3.4)."""

    xml = Name(NAMESPACE, "reject")

    id: Annotated[str, Attr()]
    reason: Annotated[Reason | None, Child()] = None
