"""Confirmation (urn:fluux:agent:0#confirm): decisions that arrive as an IQ."""

from collections.abc import Awaitable
from typing import Protocol

from component.handlers.storing import stored
from component.router.table import IQRoute, Request
from xep.fluux_agent.confirm import NAMESPACE, Decision
from xep.jid import JID


class Decides(Protocol):
    """Judges decisions: `component.tasks.protocol.Tasks`."""

    async def decide(self, who: JID, at: JID, decision: Decision, lang: str | None = None) -> None:
        """Decide a confirmation (CNF-032). Raises StanzaError, StorageError."""


class ConfirmHandler:
    """Handles decisions by IQ.

    Args:
        tasks: judges them.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, tasks: Decides, retry_after_s: int = 5) -> None:
        self._tasks = tasks
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (IQRoute("set", Decision, self.decide, (NAMESPACE,)),)

    def decide(self, request: Request[Decision]) -> Awaitable[None]:
        """Answer a decision that counts, and its repetition, with an empty result (CNF-021)."""
        work = self._tasks.decide(
            request.principal, request.to.bare, request.payload, request.stanza.lang
        )
        return stored(work, self._retry_after_s)
