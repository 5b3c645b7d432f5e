"""Requests to rooms (XEP-0045) from the service's own addresses."""

from collections.abc import Callable
from typing import Literal

from component.features.watches.watch import Source
from component.pubsub.client import IQCall
from xep.binding import Payload
from xep.disco import InfoQuery
from xep.jid import JID
from xep.muc import NAMESPACE, History, Join
from xep.ping import Ping
from xep.stanza import Presence
from xep.stanza_error import StanzaError


class RoomClient:
    """Enters rooms, and checks whether an agent is still in them.

    Args:
        call: makes requests.
        send: sends a presence.
        occupant: the address by which one of our addresses enters rooms. It is a full JID, as
            XEP-0045 §7.2 demands, where we choose our resources ourselves.
    """

    def __init__(
        self, call: IQCall, send: Callable[[Presence], object], occupant: Callable[[JID], JID]
    ) -> None:
        self._call = call
        self._send = send
        self._occupant = occupant

    async def find(self, source: Source) -> None:
        """Check that there is such a room. Raises StanzaError.

        Entering a room that does not exist creates it, which the agent must not do.
        """
        info = await self._call(
            "get", source.service, InfoQuery(), InfoQuery, from_=self._occupant(source.subscriber)
        )
        if info is None or all(feature.var != NAMESPACE for feature in info.features):
            raise StanzaError("feature-not-implemented", "the address is not that of a room")

    def join(self, source: Source, nick: str) -> None:
        """Ask to enter the room, without its history (XEP-0045 §7.2.14)."""
        self._presence(source, nick, None, (Join(history=History(max_stanzas=0)),))

    def leave(self, source: Source, nick: str) -> None:
        """Leave the room (XEP-0045 §7.14)."""
        self._presence(source, nick, "unavailable", ())

    async def ping(self, source: Source, nick: str) -> None:
        """Ping oneself through the room (XEP-0410 §3.2). Raises StanzaError."""
        at = source.service.with_resource(nick)
        await self._call("get", at, Ping(), Ping, from_=self._occupant(source.subscriber))

    def _presence(
        self,
        source: Source,
        nick: str,
        type_: Literal["unavailable"] | None,
        payloads: tuple[Payload, ...],
    ) -> None:
        self._send(
            Presence(
                type=type_,
                from_=self._occupant(source.subscriber),
                to=source.service.with_resource(nick),
                payloads=payloads,
            )
        )
