"""A real process and a simulated service, as the script of `alike.py` uses them."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from tests.kit import Kit, Peer
from tests.servers.alike import SETTINGS, Side
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient
from tests.servers.tasking import Desk
from xep.jid import JID

_MESSAGE: Final = "{jabber:client}message"


class RealSide(Side):
    """A process on a real server, and slixmpp."""

    def __init__(self, desk: Desk, caller: SlixClient) -> None:
        super().__init__()
        self._desk, self._caller = desk, caller
        self.home = desk.agent.directory

    async def ask(self, type_: str, payload: str) -> Element:
        return self._caller.iq(self._desk.assistant, payload, type_)

    async def wait(self, where: Callable[[Element], bool]) -> Element:
        return self._caller.messages.take(where)

    async def kill(self) -> None:
        self._desk.agent.kill()
        self._desk.agent.start().connected()

    async def left(self) -> list[Element]:
        # What was sent before is there when this is answered.
        self._caller.iq(self._desk.assistant, "<ping xmlns='urn:xmpp:ping'/>")
        return self._caller.messages.all()


class Recording(Peer):
    """A client that keeps messages as they are."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.texts: list[str] = []
        super().__init__(*arguments, **options)

    def deliver(self, xml: str) -> None:
        self.texts.append(xml)
        super().deliver(xml)


class SimulatedSide(Side):
    """The service in this process, and a client in memory."""

    def __init__(self, kit: Kit, home: Path, jid: str) -> None:
        super().__init__()
        self._kit, self.home = kit, home
        agent = f"assistant@{kit.agent}"
        self._peer = Recording(kit.xmpp, JID.parse(jid), agent)
        self._taken = set[int]()

    async def ask(self, type_: str, payload: str) -> Element:
        found = await self._peer.iq(type_, payload)
        return next(one for one in self._all() if one.get("id") == found.id)

    async def wait(self, where: Callable[[Element], bool]) -> Element:
        while True:
            for number, stanza in enumerate(self._all()):
                if number not in self._taken and _is_message(stanza) and where(stanza):
                    self._taken.add(number)
                    return stanza
            await self._peer.receive()

    async def kill(self) -> None:
        await self._kit.restart(kill=True)

    async def left(self) -> list[Element]:
        await self._kit.settled()
        return [
            one
            for number, one in enumerate(self._all())
            if number not in self._taken and _is_message(one)
        ]

    def _all(self) -> list[Element]:
        return [
            ET.fromstring(f"<x xmlns='jabber:client'>{text}</x>")[0] for text in self._peer.texts
        ]


def _is_message(stanza: Element) -> bool:
    return stanza.tag == _MESSAGE


def sections(server: Server, home: Path) -> dict[str, Any]:
    """Return the settings of the process as those of a simulated service."""
    found = tomllib.loads(server.agent_toml())
    found["server"] = {"component_domain": server.component_domain}
    found["storage"] = {}
    for name, value in SETTINGS.items():
        section, key = name.split("__")
        found.setdefault(section, {})[key] = value
    found.setdefault("skills", {})["modules"] = [str(home / "own.py")]
    return found
