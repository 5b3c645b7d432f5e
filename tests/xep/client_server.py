"""A server's end of a client's stream, in memory: SCRAM, binding, stream management.

It is written from the specifications for the tests and shares no code with the client's end but the
parser. It has no TLS: STARTTLS is agreed on, and both ends go on as if it had been negotiated.
"""

from base64 import b64decode, b64encode
from collections import deque
from functools import lru_cache
from xml.etree import ElementTree as ET

from scramp import ScramMechanism  # type: ignore[import-untyped]

from xep.stream import (
    ElementReceived,
    ParserFailed,
    StreamClosed,
    StreamOpened,
    StreamParser,
    encode_header,
)

ACCOUNT = "helper@example.com"
PASSWORD = "pencil"
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
TLS = "urn:ietf:params:xml:ns:xmpp-tls"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"
SM = "urn:xmpp:sm:3"


@lru_cache
def _info(mechanism: str, password: str) -> object:
    return ScramMechanism(mechanism).make_auth_info(password)


class Session:
    """What the server keeps of a client: what it took, and what it sent."""

    def __init__(self, resource: str) -> None:
        self.address = f"{ACCOUNT}/{resource}"
        self.taken: list[str] = []  # ids of the stanzas that were handled, in order
        self.managed = False
        self.sent: deque[str] = deque()  # not acknowledged
        self.acknowledged = 0


class Server:
    """Accounts and sessions, which outlive connections.

    Args:
        mechanisms: what is offered.
        tls: whether STARTTLS is offered.
        managed: whether stream management is.
    """

    def __init__(
        self,
        mechanisms: tuple[str, ...] = ("SCRAM-SHA-1", "SCRAM-SHA-256"),
        *,
        tls: bool = False,
        managed: bool = True,
        password: str = PASSWORD,
    ) -> None:
        self.mechanisms = mechanisms
        self.tls = tls
        self.managed = managed
        self.password = password
        self.sessions: dict[str, Session] = {}
        self.all: list[Session] = []

    def connect(self) -> "Connection":
        return Connection(self)


class Connection:
    """One connection. `out` collects what is for the client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.out = b""
        self.session: Session | None = None
        self.secure = False
        self.over = False
        self.seen: list[str] = []  # tags of first-level elements
        self._authenticated = False
        self._scram: object = None
        self._parser = StreamParser(("jabber:client",))

    def receive(self, data: bytes) -> None:
        if self.over:
            return
        for event in self._parser.receive(data):
            if isinstance(event, StreamOpened):
                self._open()
            elif isinstance(event, ElementReceived):
                self.seen.append(event.element.tag)
                self._element(event.element)
            elif isinstance(event, StreamClosed):
                self.over = True
                self._say("</stream:stream>")
            else:
                assert not isinstance(event, ParserFailed), event
            if self.over:
                return

    def push(self, id_: str) -> None:
        """Send the client a message."""
        assert self.session is not None
        self._send(f"<message id='{id_}' from='a@b.c/d' to='{self.session.address}'/>")

    def ask(self) -> None:
        """Ask for an acknowledgement."""
        self._say(f"<r xmlns='{SM}'/>")

    def take(self) -> bytes:
        """What is for the client so far."""
        out, self.out = self.out, b""
        return out

    # -- inside --

    def _say(self, xml: str) -> None:
        self.out += xml.encode()

    def _send(self, xml: str) -> None:
        assert self.session is not None
        if self.session.managed:
            self.session.sent.append(xml)
        self._say(xml)

    def _open(self) -> None:
        self.out += encode_header("jabber:client", from_="example.com", id_="s1", version="1.0")
        offers = ""
        if self._authenticated:
            offers = f"<bind xmlns='{BIND}'/>"
            offers += f"<sm xmlns='{SM}'/>" if self.server.managed else ""
        elif self.server.tls and not self.secure:
            offers = f"<starttls xmlns='{TLS}'><required/></starttls>"
        else:
            names = "".join(f"<mechanism>{name}</mechanism>" for name in self.server.mechanisms)
            offers = f"<mechanisms xmlns='{SASL}'>{names}</mechanisms>"
        self._say(f"<stream:features>{offers}</stream:features>")

    def _element(self, element: ET.Element) -> None:
        namespace, _, name = element.tag[1:].partition("}")
        if namespace == TLS:
            self.secure = True
            self._say(f"<proceed xmlns='{TLS}'/>")
            self._parser.reset()
        elif namespace == SASL:
            self._sasl(name, element)
        elif namespace == SM:
            self._management(name, element)
        elif element.find(f"{{{BIND}}}bind") is not None:
            self._bind(element)
        else:
            assert self.session is not None, "no stanza before the session"
            self.session.taken.append(element.get("id", ""))

    def _sasl(self, name: str, element: ET.Element) -> None:
        data = b64decode(element.text or "").decode()
        if name == "auth":
            mechanism = ScramMechanism(element.get("mechanism", ""))
            info = _info(mechanism.name, self.server.password)
            self._scram = mechanism.make_server(lambda _name: info)
            self._scram.set_client_first(data)  # type: ignore[attr-defined]
            text = self._scram.get_server_first()  # type: ignore[attr-defined]
            self._say(f"<challenge xmlns='{SASL}'>{b64encode(text.encode()).decode()}</challenge>")
            return
        try:
            self._scram.set_client_final(data)  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001 - whatever scramp raises
            self._say(f"<failure xmlns='{SASL}'><not-authorized/></failure>")
            return
        text = self._scram.get_server_final()  # type: ignore[attr-defined]
        self._say(f"<success xmlns='{SASL}'>{b64encode(text.encode()).decode()}</success>")
        self._authenticated = True
        self._parser.reset()

    def _bind(self, element: ET.Element) -> None:
        resource = element.findtext(f"{{{BIND}}}bind/{{{BIND}}}resource") or "given"
        self.session = Session(resource)
        self.server.all.append(self.session)
        self._say(
            f"<iq type='result' id='{element.get('id')}'><bind xmlns='{BIND}'>"
            f"<jid>{self.session.address}</jid></bind></iq>"
        )

    def _management(self, name: str, element: ET.Element) -> None:
        if name == "resume":
            self._resume(element)
            return
        assert self.session is not None
        if name == "enable":
            self.session.managed = True
            id_ = f"id{len(self.server.all)}"
            self.server.sessions[id_] = self.session
            self._say(f"<enabled xmlns='{SM}' id='{id_}' resume='true' max='300'/>")
        elif name == "r":
            self._say(f"<a xmlns='{SM}' h='{len(self.session.taken)}'/>")
        elif name == "a":
            self._acknowledged(int(element.get("h", "")))

    def _resume(self, element: ET.Element) -> None:
        found = self.server.sessions.get(element.get("previd", ""))
        if found is None:
            self._say(f"<failed xmlns='{SM}'><item-not-found xmlns='urn:x'/></failed>")
            return
        self.session = found
        self._acknowledged(int(element.get("h", "")))
        self._say(
            f"<resumed xmlns='{SM}' previd='{element.get('previd')}' h='{len(found.taken)}'/>"
        )
        for xml in found.sent:
            self._say(xml)

    def _acknowledged(self, count: int) -> None:
        assert self.session is not None
        more = count - self.session.acknowledged
        assert 0 <= more <= len(self.session.sent), "the client counts what it was not sent"
        self.session.acknowledged = count
        for _ in range(more):
            self.session.sent.popleft()
