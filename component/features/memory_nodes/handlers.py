"""Handles the messages by which servers grant privileges (XEP-0356)."""

import structlog

from component.features.memory_nodes.privileges import Privileges
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError
from xep.privilege import Privilege

_log = structlog.get_logger("component.memory")


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
