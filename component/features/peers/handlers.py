"""Answers other agents that ask whether a grant still holds, and how much is left of it."""

import msgspec

from component.features.peers.grants import PeerGrants
from component.link.router.table import IQRoute, Request
from xep.fluux_agent.grant import NAMESPACE, GrantStatus


class GrantHandler:
    """Serves urn:fluux:agent:0#grant for everybody: who knows the digest of a grant has it."""

    def __init__(self, grants: PeerGrants) -> None:
        self._grants = grants

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute("get", GrantStatus, self.status, (NAMESPACE,), for_all=lambda _asked: True),
            IQRoute("set", GrantStatus, self.set_aside, for_all=lambda _asked: True),
        )

    async def status(self, request: Request[GrantStatus]) -> GrantStatus:
        """Return the state of a grant that an agent of this service has made."""
        return await self._grants.status(msgspec.structs.replace(request.payload, child=None))

    async def set_aside(self, request: Request[GrantStatus]) -> GrantStatus:
        """Set aside a part of the budget of such a grant."""
        return await self._grants.set_aside(request.payload)
