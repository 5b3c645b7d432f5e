"""The service of the rooms of a simulated life: what it and the agent say to each other is part of
the history.
"""

import re
from collections.abc import Callable
from typing import Final, Literal

from tests.kit.rooms import DOMAIN, Rooms, Server
from tests.kit.xmpp import Xmpp
from tests.simulation.history import History, Stanza
from xep import muc

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

    def __init__(self, xmpp: Xmpp, history: History, agent: str, server: Server) -> None:
        self.is_up = True
        self._history, self._agent = history, f"@{agent}"
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

    def _record(self, xml: str, way: Literal["sent", "received"], address: re.Pattern[str]) -> None:
        head = xml[: xml.index(">")]
        is_old = way == "sent" and "<delay " in xml
        if self._agent in head and not is_old and not head.startswith("<iq"):
            found = address.search(head)
            assert found is not None
            self._history.add(Stanza(self._history.now(), found[1], way, xml))

    def go(self, how: Ending) -> None:
        """Go away."""
        self._history.fault("error", f"{AWAY}: {how}")
        if how == "shutdown":
            for room in self.rooms.values():
                room.remove_all(muc.SHUTDOWN)
        elif how == "crash":
            for room in self.rooms.values():
                room.occupants.clear()
            self._history.fault("error", FORGOTTEN)
        self.is_up = False
        self.connect(is_connected=False)

    def come(self) -> None:
        """Come back."""
        if not self.is_up:
            self.is_up = True
            self._history.fault("healthy", "the rooms")
            self.connect(is_connected=True)
