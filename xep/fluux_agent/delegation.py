"""urn:fluux:agent:0#delegation, delegation: on whose behalf, and through which agents, a request
came.
"""

from decimal import Decimal
from typing import Annotated, Final

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.grant import SignedGrant
from xep.jid import JID

NAMESPACE: Final = f"{AGENT}#delegation"


class Delegation(Payload, frozen=True, kw_only=True):
    """The part of ``<execute/>`` that says that an agent asks on behalf of somebody else.

    ``origin`` is the bare JID of the first requester; it restricts what the sender may do and never
    extends it. ``via`` are the bare JIDs of the agents so far, in order: the last one is the
    sender. ``max_hops`` limits their number. The budgets are the remaining US dollars and model
    tokens. ``trace`` is a W3C ``traceparent``. ``grants`` prove the path: none, or one of each
    agent in it, in the same order.
    """

    xml = Name(NAMESPACE, "delegation")

    origin: Annotated[JID, Attr()]
    max_hops: Annotated[int, Attr()]
    budget_usd: Annotated[Decimal | None, Attr()] = None
    budget_tokens: Annotated[int | None, Attr()] = None
    trace: Annotated[str | None, Attr()] = None
    via: Annotated[tuple[JID, ...], TextChild(at_least=1)]
    grants: Annotated[tuple[SignedGrant, ...], Child()] = ()

    @property
    def trace_id(self) -> str:
        """The trace identifier in ``trace`` (W3C Trace Context, §3.2.2.3); empty without one."""
        return "" if self.trace is None else self.trace.partition("-")[2][:32]
