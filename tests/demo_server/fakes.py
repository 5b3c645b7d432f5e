"""A router without sockets: who sends what, and what comes out where."""

from xml.etree import ElementTree as ET

from demo_server.router import Router
from demo_server.table import Session, Table
from xep.jid import JID
from xep.stanza import Incoming
from xep.stream import StreamError

Element = ET.Element
C = "{jabber:client}"
ERRORS = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
AGENT = "agent.localhost"


def parse(xml: str) -> Element:
    """Read a stanza as it stands in a client's stream."""
    return ET.fromstring(f"<stream xmlns='jabber:client'>{xml}</stream>")[0]


class FakeLink:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[Element] = []
        self.closed: StreamError | None = None

    def send(self, xml: str) -> None:
        self.sent.append(parse(xml))

    def close(self, error: StreamError) -> None:
        self.closed = error

    def take(self) -> list[Element]:
        """What came since the last time."""
        sent, self.sent = self.sent, []
        return sent


class World:
    """Juliet and Romeo on localhost, and a component that may be there."""

    def __init__(self) -> None:
        self.table = Table("localhost", ["juliet", "romeo"], [AGENT])
        self.router = Router(self.table)

    def client(self, account: str, resource: str, presence: str | None = None) -> "Client":
        client = Client(self, account, resource)
        if presence is not None:
            client.says(presence)
            client.take()
        return client

    def component(self) -> "Component":
        component = Component(self)
        self.table.components[AGENT] = component
        return component


class Client(FakeLink):
    def __init__(self, world: World, account: str, resource: str) -> None:
        super().__init__()
        self._world = world
        self.session: Session = world.router.enter(account, resource, self)
        self.jid = str(self.session.jid)

    def says(self, xml: str) -> list[Element]:
        """Send a stanza; return what comes back at once."""
        self._world.router.from_client(self.session, Incoming.of(parse(xml), len(xml)))
        return self.take()

    def leaves(self) -> None:
        self._world.router.leave(self.session)


class Component(FakeLink):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def says(self, xml: str) -> list[Element]:
        stanza = Incoming.of(parse(xml), len(xml))
        self._world.router.from_component(JID.parse(stanza.sender or ""), stanza, self)
        return self.take()


def condition(stanza: Element) -> str | None:
    """The condition of an error, None for anything else."""
    if stanza.get("type") != "error":
        return None
    error = stanza.find(f"{C}error")
    assert error is not None
    return next(c.tag.removeprefix(ERRORS) for c in error if c.tag.startswith(ERRORS))
