"""urn:fluux:agent:0#grant, grants: signed statements about what agents may do and have done."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal

from xep.binding import Attr, Name, Payload, Text
from xep.fluux_agent import NAMESPACE as AGENT

NAMESPACE: Final = f"{AGENT}#grant"


class SignedGrant(Payload, frozen=True, kw_only=True):
    """A grant, as a JWS in its compact form (RFC 7515 §7.1)."""

    xml = Name(NAMESPACE, "grant")

    jws: Annotated[str, Text()]


class GrantStatus(Payload, frozen=True, kw_only=True):
    """Asks the agent that has made a grant whether it still holds, or the answer.

    ``digest`` names the grant. The budgets are what is left of it, in US dollars and in model
    tokens; a missing one has no limit. In an IQ of type ``set``, they are to be set aside for
    ``child``, the digest of a grant that follows from it, and the answer says what was.
    """

    xml = Name(NAMESPACE, "status")

    digest: Annotated[str, Attr()]
    child: Annotated[str | None, Attr()] = None
    state: Annotated[Literal["active", "ended", "revoked"] | None, Attr()] = None
    expires: Annotated[datetime | None, Attr()] = None
    budget_usd: Annotated[Decimal | None, Attr()] = None
    budget_tokens: Annotated[int | None, Attr()] = None


class SignedReceipt(Payload, frozen=True, kw_only=True):
    """A statement about delegated work that has ended, as a JWS in its compact form."""

    xml = Name(NAMESPACE, "receipt")

    jws: Annotated[str, Text()]
