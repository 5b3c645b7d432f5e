"""The kit's server in memory and a real server behind one interface, for scripts of both.

A script has a `Stage`: it lets accounts and components log in, send, and leave. Everything that
reaches one of them is a line of its history, in the order of its stream.
"""

from abc import ABC, abstractmethod
from itertools import count
from typing import Final
from xml.etree import ElementTree as ET

from tests.kit.offline import OfflineStorage
from xep.component_states import State
from xep.component_stream import ComponentStream
from xep.muc import Affiliation
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived, StreamErrorReceived

HOST: Final = "localhost"
OTHER_HOST: Final = "other.test"
PEOPLE: Final = ("juliet", "romeo", "nurse")
"""Accounts that each script has for itself."""
ROOMS: Final = f"conference.{HOST}"
PUBSUB: Final = f"pubsub.{HOST}"
SECRET: Final = "secret of the component"
PING: Final = "<ping xmlns='urn:xmpp:ping'/>"
_MARKER: Final = "marker-"
"""Begins the ids of stanzas that are not part of a script."""


class Actor(ABC):
    """A client or a component of a script.

    Attributes:
        name: of the account or the component.
        jid: its address.
        lines: what it has received, as lines of a history.
        is_there: whether its stream is open.
    """

    def __init__(self, stage: "Stage", name: str, jid: str) -> None:
        self.name = name
        self.jid = jid
        self.lines: list[str] = []
        self.is_there = True
        self._stage = stage
        self._answered: dict[str, str] = {}
        """The types of the answers to markers."""

    @abstractmethod
    async def send(self, xml: str) -> None:
        """Send a stanza."""

    @abstractmethod
    async def leave(self) -> None:
        """Read what has been sent, end the stream, and wait until the server knows."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def pump(self) -> None:
        """Wait until something has arrived."""

    async def says(self, to: str, text: str = "", type_: str = "chat", inside: str = "") -> None:
        """Send a message, whose id is its text."""
        body = f"<body>{text}</body>" if text else ""
        await self.send(
            f"<message to='{to}'{self._from} type='{type_}' id='{text or 'empty'}'>"
            f"{body}{inside}</message>"
        )

    async def asks(self, to: str, payload: str = PING, type_: str = "get", id_: str = "q") -> None:
        """Send an IQ."""
        await self.send(f"<iq to='{to}'{self._from} type='{type_}' id='{id_}'>{payload}</iq>")

    async def shows(self, to: str = "", type_: str = "", inside: str = "", at: str = "") -> None:
        """Send presence; `at` is the node of the component's address that sends it."""
        from_ = f" from='{at}@{self.jid}'" if at else self._from
        kind = f" type='{type_}'" if type_ else ""
        address = f" to='{to}'" if to else ""
        await self.send(f"<presence{address}{from_}{kind}>{inside}</presence>")

    async def gets(self, words: str) -> None:
        """Wait until it has received a stanza whose line contains these words."""
        while not any(words in line for line in self.lines):
            await self.pump()

    async def marker(self, to: str, payload: str = PING, type_: str = "get") -> str:
        """Send a request that is not part of the script; return the type of its answer."""
        return await self.answered(await self.mark(to, payload, type_))

    async def mark(self, to: str, payload: str = PING, type_: str = "get") -> str:
        """Send a request that is not part of the script; return its id."""
        id_ = self._stage.new_marker()
        await self.asks(to, payload, type_, id_)
        return id_

    async def answered(self, id_: str) -> str:
        """Wait for the answer to a marker; return its type."""
        while id_ not in self._answered:
            await self.pump()
        return self._answered[id_]

    def answer(self, id_: str) -> str | None:
        """Return the type of the answer to a marker; None if there is none so far."""
        return self._answered.get(id_)

    @property
    def _from(self) -> str:
        return "" if self._is_client else f" from='{self.jid}'"

    def _take(self, stanza: Incoming) -> None:
        if (stanza.id or "").startswith(_MARKER):
            if stanza.type in ("result", "error"):
                self._answered[stanza.id or ""] = stanza.type
        elif not self._is_ignored(stanza):
            self.lines.append(self._stage.plain(written(stanza, self._is_client)))

    @property
    def _is_client(self) -> bool:
        return "@" in self.jid

    def _is_ignored(self, stanza: Incoming) -> bool:
        """Whether it is what clients of the kit do not keep: their own presence, and changes of
        their roster.
        """
        if stanza.kind == "presence":
            return stanza.sender == self.jid
        return stanza.kind == "iq" and "{jabber:iq:roster}query" in stanza.child_names


class Stage(ABC):
    """What a script acts on.

    Attributes:
        server: how it behaves.
        actors: all that were there, in the order of their logins.
    """

    def __init__(self, server: OfflineStorage, number: int) -> None:
        self.server: OfflineStorage = server
        self.actors: list[Actor] = []
        self._number = number
        self._markers = count(1)

    # What a script does.

    def account(self, name: str) -> str:
        """Return the bare JID of one of `PEOPLE`, or of somebody who has no account."""
        return f"{name}-{self._number}@{HOST}"

    def new_marker(self) -> str:
        """Return the id of a stanza that is not part of the script."""
        return f"{_MARKER}{self._number}-{next(self._markers)}"

    @abstractmethod
    async def client(
        self, name: str, resource: str = "home", presence: str | None = "<presence/>"
    ) -> Actor:
        """Log in, and send this presence."""

    @abstractmethod
    async def component(self, host: str = HOST) -> Actor:
        """Connect the component of a host."""

    @abstractmethod
    async def settle(self) -> None:
        """Wait until everything that was sent has reached everybody."""

    async def room(self, owner: Actor) -> str:
        """Create a room, which its owner has entered as "owner"; return its address."""
        address = f"lab-{self._number}@{ROOMS}"
        await self._create_room(address, owner)
        owner.lines.clear()
        return address

    async def enters(
        self, room: str, actor: Actor, nick: str, history: str = "", at: str = ""
    ) -> None:
        """Let somebody enter a room; `at` as in `Actor.shows`.

        Servers announce those who are there in any order, so these lines of the history are sorted.
        """
        await self.settle()
        before = len(actor.lines)
        inside = f"<x xmlns='http://jabber.org/protocol/muc'>{history}</x>"
        await actor.shows(f"{room}/{nick}", inside=inside, at=at)
        await self.settle()
        after = before
        while "[subject" not in actor.lines[after] and "code=110" not in actor.lines[after]:
            after += 1
        actor.lines[before:after] = sorted(actor.lines[before:after])

    @abstractmethod
    async def gone(self, actor: Actor) -> None:
        """Wait until the server knows that the stream of an actor has ended."""

    @abstractmethod
    async def _create_room(self, address: str, owner: Actor) -> None: ...

    @abstractmethod
    async def affiliate(self, room: str, owner: Actor, jid: str, affiliation: Affiliation) -> None:
        """Let the owner of a room change the affiliation of somebody who is not in it."""

    @abstractmethod
    async def kick(self, room: str, owner: Actor, nick: str) -> None:
        """Let the owner of a room kick an occupant."""

    @abstractmethod
    async def node(self, most: int = 10) -> str:
        """Create a PubSub node that keeps so many items; return its name."""

    @abstractmethod
    async def publish(self, node: str, id_: str) -> None:
        """Let the owner of a node publish an item, whose payload is its id."""

    @abstractmethod
    async def retract(self, node: str, id_: str) -> None:
        """Let the owner of a node delete an item."""

    @abstractmethod
    async def purge(self, node: str) -> None:
        """Let the owner of a node delete all items."""

    @abstractmethod
    async def delete(self, node: str) -> None:
        """Let the owner of a node delete it."""

    # What has happened.

    def history(self) -> list[str]:
        """Return a line for each stanza that an actor received, actor by actor."""
        return [f"{actor.name} < {line}" for actor in self.actors for line in actor.lines]

    def plain(self, text: str) -> str:
        """Shorten the addresses of this script."""
        return (
            text.replace(f"-{self._number}@{HOST}", "")
            .replace(f"lab-{self._number}@{ROOMS}", "lab")
            .replace(f"builds-{self._number}", "builds")
        )


_LEFT_OUT: Final = {
    "delay": ("stamp", "from"),
    "stanza-id": ("id",),
    "occupant-id": ("id",),
    "subscription": ("subid",),
    "c": ("ver",),
}
"""Attributes of elements that a server chooses."""
_LEFT_OUT_TEXTS: Final = ("delay", "first", "last")


def written(stanza: Incoming, is_for_client: bool) -> str:
    """Return what a history says about a stanza. Times, languages, texts of errors, and ids that a
    server makes are left out; for a client also its own address: some servers replace the bare JID
    by the full one.
    """
    element = ET.fromstring(stanza.forward())
    if is_for_client:
        element.attrib.pop("to", None)
    is_made = (
        stanza.kind == "presence"
        or (stanza.kind == "message" and stanza.sender == PUBSUB)
        or (stanza.type in ("get", "set") and ROOMS in (stanza.sender or ""))
    )
    if stanza.id is not None and is_made:
        element.set("id", "new")
    return _written(element)


def _written(element: ET.Element) -> str:
    name = element.tag.rpartition("}")[2]
    if name == "error":
        found = (one.tag.rpartition("}")[2] for one in element)
        return f"error {element.get('type')} {' '.join(sorted(set(found) - {'text'}))}"
    attributes = [
        f"{key}={value}"
        for key, value in sorted(element.attrib.items())
        if key not in _LEFT_OUT.get(name, ())
        and not key.startswith("{")
        and (key, value) != ("type", "normal")  # the default (RFC 6121 §5.2.2)
    ]
    text = "" if name in _LEFT_OUT_TEXTS else (element.text or "").strip()
    inside = [_written(one) for one in element if not _is_left_out(one)]
    if name != "items":  # only items of a node have an order
        inside.sort()
    parts = [name, *attributes, *([repr(text)] if text else [])]
    return " ".join(parts) + (f" [{', '.join(inside)}]" if inside else "")


def _is_left_out(element: ET.Element) -> bool:
    """Whether an element is of something that the kit does not have: archives of accounts, the
    element of their ids before XEP-0359, avatars, which Prosody announces for its clients
    (XEP-0398), and who has kicked an occupant.
    """
    namespace, _, name = element.tag[1:].partition("}")
    is_of_archive = name == "stanza-id" and ROOMS not in element.get("by", "")
    is_unknown = name in ("archived", "actor") or namespace == "vcard-temp:x:update"
    return is_of_archive or is_unknown


class Component(Actor):
    """A component, which logs in at once; a refusal is a line of its history."""

    def __init__(self, stage: Stage, domain: str) -> None:
        super().__init__(stage, domain, domain)
        self._stream = ComponentStream(domain, SECRET)

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes."""

    async def open(self) -> None:
        """Log in."""
        self.write(self._stream.open())
        while self._stream.state is State.OPENING:
            await self.pump()
        if self._stream.state is State.OPENED:
            self.write(self._stream.handshake())
        while self.is_there and self._stream.state is not State.READY:
            await self.pump()

    async def send(self, xml: str) -> None:
        self.write(self._stream.send(xml.encode()))

    async def leave(self) -> None:
        await self._stage.settle()  # what it has not read yet is part of the history
        self.write(self._stream.close())
        self.close()
        await self._stage.gone(self)

    def receive(self, data: bytes) -> None:
        """Take bytes from the server."""
        for event in self._stream.receive(data):
            match event:
                case StanzaReceived(stanza):
                    self._take(stanza)
                case StreamErrorReceived(error):
                    self.lines.append(f"stream error {error.condition}")
                    self.is_there = False
