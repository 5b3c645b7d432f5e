"""Handles the messages by which servers grant privileges (XEP-0356)."""

from typing import Protocol

import structlog

from component.router.table import Request, StanzaRoute
from xep.binding import ContentError
from xep.jid import JID
from xep.privilege import Privilege

_log = structlog.get_logger("component.memory")


class Privileges(Protocol):
    """The granted privileges: `component.pep_memory.privileges.Privileges`."""

    def is_server(self, sender: JID, /) -> bool:
        """Whether grants by this address count."""

    def granted(self, server: JID, privilege: Privilege, /) -> None:
        """Store the privileges that a server grants. Never waits."""


class PrivilegeHandler:
    """Handles privileges that servers grant to the domain of the component.

    Args:
        privileges: stores them.
    """

    def __init__(self, privileges: Privileges) -> None:
        self._privileges = privileges

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""
        return (
            StanzaRoute(
                "message",
                frozenset(("normal",)),
                self.granted,
                hosts=frozenset(("component",)),
                payload=Privilege,
                admits=self._privileges.is_server,
            ),
        )

    def granted(self, request: Request[None]) -> None:
        """Handle the privileges that a server grants."""
        try:
            privilege = request.stanza.require(Privilege)
        except ContentError as error:
            _log.warning("ignored bad privileges", sender=str(request.sender), reason=str(error))
            return
        self._privileges.granted(request.sender, privilege)
