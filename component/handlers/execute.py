"""Execution (urn:fluux:agent:0#execute): the face by which agents and programs run skills."""

from collections.abc import Awaitable
from typing import Final

from component.execution import Road
from component.handlers.storing import stored
from component.router.table import Answer, IQRoute, Request
from xep import fluux_agent
from xep.binding import Encoded
from xep.fluux_agent.execute import NAMESPACE, Accepted, Execute, Result

_READY: Final = (Encoded, Result, Accepted)


class ExecuteHandler:
    """Hands execute requests to the road that all requests take.

    Args:
        road: runs skills for those who may use them.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, road: Road, retry_after_s: int = 5) -> None:
        self._road = road
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """The routes of this handler."""
        return (IQRoute("set", Execute, self.execute, (fluux_agent.NAMESPACE, NAMESPACE)),)

    def execute(self, request: Request[Execute]) -> Answer | Awaitable[Answer]:
        """Run a skill: at once if it never blocks, else in a task of its own.

        Raises StanzaError as the error table of the specification says.
        """
        stanza = request.stanza
        answer = self._road.execute(
            request.sender,
            request.principal,
            request.to,
            request.payload,
            stanza_id=stanza.id or "",
            size=stanza.size,
            lang=stanza.lang,
        )
        if isinstance(answer, _READY):
            return answer
        return stored(answer, self._retry_after_s)
