"""Execution (urn:fluux:agent:0#execute): requests of agents and programs to run skills."""

from collections.abc import Awaitable
from typing import Final

from component.execution import SkillExecutor, SkillRequest
from component.handlers.storing import stored
from component.router.table import IQRoute, ReplyPayload, Request
from component.tasks.skill_call import call_of
from xep import fluux_agent
from xep.fluux_agent.execute import NAMESPACE, Accepted, Execute, Result

_READY: Final = (Result, Accepted)


class ExecuteHandler:
    """Passes execute requests to the executor, which handles all requests.

    Args:
        executor: runs skills for principals that may use them.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, executor: SkillExecutor, retry_after_s: int = 5) -> None:
        self._executor = executor
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (IQRoute("set", Execute, self.execute, (fluux_agent.NAMESPACE, NAMESPACE)),)

    def execute(self, request: Request[Execute]) -> ReplyPayload | Awaitable[ReplyPayload]:
        """Run a skill: at once if it never blocks, else in its own task.

        Raises the StanzaErrors of the specification's error table.
        """
        stanza = request.stanza
        answer = self._executor.execute(
            SkillRequest(
                request.sender,
                request.principal,
                request.to,
                call_of(request.payload),
                stanza_id=stanza.id or "",
                size=stanza.size,
                lang=stanza.lang,
            )
        )
        if isinstance(answer, _READY):
            return answer
        return stored(answer, self._retry_after_s)
