"""The service of the rooms of a simulated life: what it and the agent say to each other is part of
the history, and it removes occupants whom it cannot reach, as servers do.
"""

import re
from collections.abc import Callable
from typing import Final, Literal

import anyio.lowlevel
from anyio.abc import TaskGroup

from tests.kit.rooms import DOMAIN, Rooms, Server
from tests.kit.xmpp import Xmpp, parse
from tests.simulation.history import History, Stanza
from xep import muc
from xep.jid import JID

LOBBY: Final = f"lobby@{DOMAIN}"
COUNCIL: Final = f"council@{DOMAIN}"
AWAY: Final = "the rooms are away"
FORGOTTEN: Final = "the rooms have forgotten who was there"
_FROM: Final = re.compile(r" from=['\"]([^'\"/]+)")
_TO: Final = re.compile(r" to=['\"]([^'\"/]+)")

Ending = Literal["shutdown", "crash", "unreachable"]
"""How the service goes away: it tells everybody, it does not, or it only cannot be reached."""


class RoomService(Rooms):
    """The service of the rooms.

    Args:
        agent: the domain of the agent, whose messages and presences are recorded as those of the
            session with the address of the room.

    Attributes:
        is_up: whether it can be reached.
        asked: called with each question that a room passes on.
    """

    asked: Callable[[str], None] = staticmethod(lambda _: None)

    def __init__(
        self, xmpp: Xmpp, history: History, group: TaskGroup, agent: str, server: Server
    ) -> None:
        self.is_up = True
        self._history, self._group, self._agent = history, group, f"@{agent}"
        super().__init__(xmpp, server=server)

    def say(self, xml: str) -> None:
        if self.is_up:
            self._record(xml, "sent", _FROM)
            super().say(xml)
            if "<confirm " in xml:
                self.asked(xml)

    def send(self, xml: str) -> None:
        self._record(xml, "received", _TO)
        super().send(xml)
        if not xml.startswith("<iq") and "error" in xml[: xml.index(">")]:
            stanza = parse(xml)
            if stanza.type == "error" and stanza.to and stanza.sender:
                room, lost = JID.parse(stanza.to).bare, JID.parse(stanza.sender)
                self._group.start_soon(self._lose, room, lost)

    def _record(self, xml: str, way: Literal["sent", "received"], address: re.Pattern[str]) -> None:
        head = xml[: xml.index(">")]
        is_old = way == "sent" and "<delay " in xml
        if self._agent in head and not is_old and not head.startswith("<iq"):
            found = address.search(head)
            assert found is not None
            self._history.add(Stanza(self._history.now(), found[1], way, xml))

    async def _lose(self, room: JID, lost: JID) -> None:
        """Remove an occupant from which a stanza has come back, when it is nobody's turn."""
        await anyio.lowlevel.checkpoint()
        found = self.rooms.get(room)
        occupant = None if found is None else found.of(lost)
        if found is not None and occupant is not None and self.is_up:
            found.remove(occupant.nick, muc.KICKED, muc.TECHNICAL)

    def go(self, how: Ending) -> None:
        """Go away."""
        self._history.fault("error", f"{AWAY}: {how}")
        if how == "shutdown":
            for room in self.rooms.values():
                for nick in list(room.occupants):
                    room.remove(nick, muc.SHUTDOWN)
        elif how == "crash":
            for room in self.rooms.values():
                room.occupants.clear()
            self._history.fault("error", FORGOTTEN)
        self.is_up = False
        self._home.table.components[self._domain] = None

    def come(self) -> None:
        """Come back."""
        if not self.is_up:
            self.is_up = True
            self._history.fault("healthy", "the rooms")
            self._home.table.components[self._domain] = self
