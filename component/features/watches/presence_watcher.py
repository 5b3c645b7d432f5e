"""Observes the presence of one account: whether it is online, and the state that its clients show.

Presence is not stored anywhere: after each connect the account is probed (RFC 6121 §4.3), and a
state that differs from the last one that was recorded is an event. A state that the account had and
left while there was no session is not noticed.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import anyio
import structlog

from component.features.watches import rows as watch_rows
from component.features.watches.events import Offered
from component.features.watches.sources import (
    SourcePorts,
    SourceStatus,
    SourceWatcher,
    is_set_within,
)
from component.features.watches.watch import Observed, Source
from component.store.database import Database
from xep.binding import RawXML
from xep.binding.escaping import escape_attribute, escape_text
from xep.jid import JID
from xep.tree import tree_of

_log = structlog.get_logger("component.watches")

Availability: TypeAlias = Literal["chat", "online", "away", "xa", "dnd", "offline"]
"""The state of an account: that of its most available client (RFC 6121 §4.7.2.1)."""

_ORDER: Final[tuple[Availability, ...]] = ("chat", "online", "dnd", "away", "xa", "offline")
_SETTLE_S: Final = 3.0
"""Seconds after a probe in which the clients of an account answer; without any it is offline."""
_GATHER_S: Final = 0.5
"""Seconds after the answer of the first client in which the other clients answer: the state of the
account is known only then."""


class PresenceWatcher(SourceWatcher):
    """Observes the presence of an account.

    Args:
        source: the account; its node is `presence`.
        ports: the objects that it uses.
        probe: asks the server for the presence of the account.
    """

    def __init__(self, source: Source, ports: SourcePorts, probe: Callable[[Source], None]) -> None:
        super().__init__(source, ports)
        self._probe = probe
        self._clients: dict[JID, tuple[Availability, str]] = {}
        self._is_connected = False
        self._has_answered = False
        self._session = object()
        self._reason = ""

    @property
    def status(self) -> SourceStatus:
        """The state of the source."""
        if not self._is_connected:
            return SourceStatus("offline")
        return SourceStatus("refused", self._reason) if self._reason else SourceStatus("live")

    def connected(self) -> None:
        """Observe the account in a new session."""
        self._is_connected, self._has_answered = True, False
        self._session = object()
        self._clients.clear()
        self._wake.set()

    def disconnected(self) -> None:
        """Stop observing: the session has ended."""
        self._is_connected = False
        self._wake.set()

    def retry(self) -> None:
        """Ask again, because the account has granted permission to see its presence."""
        self.connected()

    def shown(self, client: JID, availability: Availability, status: str) -> None:
        """Note the presence of a client of the account.

        Presence that arrives without permission is ignored: servers report accounts as offline to
        contacts that may not see them.
        """
        if self._reason or not self._is_connected:
            return
        if availability == "offline" and client.resource is None:
            self._clients.clear()
        elif availability == "offline":
            self._clients.pop(client, None)
        else:
            self._clients[client] = availability, status
        self._wake.set()

    async def run(self) -> None:
        """Observe the source until cancelled."""
        while True:
            self._wake = anyio.Event()
            if not self._is_connected:
                await self._wake.wait()
            elif not self._has_answered:
                await self._ask()
            else:
                await self._record_state()
                if not await is_set_within(self._wake, self._ports.check_s) and self._reason:
                    self._has_answered = False

    async def _ask(self) -> None:
        session = self._session
        self._reason = await self._ports.consent(self.source) or ""
        if self._reason:
            await is_set_within(self._wake, self._ports.check_s)
            return
        self._probe(self.source)
        with anyio.move_on_after(_SETTLE_S):
            await self._wake.wait()
            await anyio.sleep(_GATHER_S)
        if self._session is session:  # otherwise the account has to be asked again
            self._has_answered = True

    async def _record_state(self) -> None:
        """Record the state of the account if it is not the last one that was recorded."""
        availability, status = min(
            self._clients.values(), key=lambda each: _ORDER.index(each[0]), default=("offline", "")
        )
        item = str(self.source.service.bare)
        payload = (
            f"<presence xmlns='jabber:client' from='{escape_attribute(item)}'"
            f" show='{availability}'>{escape_text(status)}</presence>"
        )
        observed = Observed(
            item=item,
            version=availability,
            payload=payload,
            tree=tree_of(RawXML(payload)),
        )
        offered = [self._interests.offer(observed)]

        def changed(database: Database) -> Sequence[Offered] | None:
            if watch_rows.is_known(database, self._key):
                return offered
            watch_rows.mark_known(database, self._key, [observed])
            return None

        await self._record(changed)
        _log.debug("a person's presence is known", person=item, show=availability)
