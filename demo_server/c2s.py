"""The server side of a client's stream up to the login (RFC 6120 §4 to §6), sans-IO: bytes in,
actions out.
"""

from dataclasses import dataclass
from secrets import token_hex
from xml.etree.ElementTree import Element

from demo_server import sasl
from demo_server.services import SESSION
from xep.stanza import NAMESPACE, Incoming
from xep.stream import (
    STREAM_CLOSE,
    STREAMS,
    ElementReceived,
    ParserEvent,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
    StreamError,
    StreamLimits,
    StreamOpened,
    StreamParser,
    encode_header,
)

TLS = "urn:ietf:params:xml:ns:xmpp-tls"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"
MAX_ATTEMPTS = 5
"""Failed logins on one stream (RFC 6120 §6.4.5)."""
BEFORE_LOGIN = StreamLimits(bytes=10_000, depth=8, elements=32)
"""Limits before the login; RFC 6120 §13.12 requires at least this many bytes."""

_STREAM_ERROR = f"{{{STREAMS}}}error"


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes to the client."""

    data: bytes


@dataclass(frozen=True, slots=True)
class StartTls:
    """Negotiate TLS after sending, then call `ClientStream.secured`. Always the last action."""


@dataclass(frozen=True, slots=True)
class Received:
    """The logged-in client sent a stanza."""

    stanza: Incoming


@dataclass(frozen=True, slots=True)
class End:
    """The stream has ended: send queued bytes, then close. Always the last action."""


Action = Send | StartTls | Received | StanzaSkipped | End


class ClientStream:
    """One client's stream, from the first byte on.

    Args:
        host: the domain of the server; others are refused.
        credentials: the accounts that may log in.
        can_secure: whether STARTTLS is offered.

    Attributes:
        account: the localpart of the logged-in account, else None.
        secure: whether the stream uses TLS.
    """

    def __init__(
        self, host: str, credentials: sasl.Credentials, *, can_secure: bool = True
    ) -> None:
        self.account: str | None = None
        self.secure = False
        self._host = host
        self._credentials = credentials
        self._can_secure = can_secure
        self._exchange: sasl.Exchange | None = None
        self._failures = 0
        self._ended = False
        self._actions: list[Action] = []
        self._restart()

    def receive(self, data: bytes) -> list[Action]:
        """Process received bytes; return the actions to perform, in order. Never raises."""
        if not self._ended:
            parser = self._parser
            for event in parser.receive(data):
                self._take(event)
                if self._ended or self._parser is not parser:
                    # The stream was restarted: bytes after the element that caused it were sent too
                    # early, possibly by an attacker (RFC 6120 §5.4.3.3).
                    break
        actions, self._actions = self._actions, []
        return actions

    def secured(self) -> None:
        """Note that TLS was negotiated; the client opens a new stream (RFC 6120 §5.4.3.3)."""
        self.secure = True

    def _restart(self) -> None:
        self._opened = False
        self._exchange = None
        if self.account is None:
            self._parser = StreamParser((NAMESPACE,), BEFORE_LOGIN)
        else:
            self._parser = StreamParser((NAMESPACE,))

    def _take(self, event: ParserEvent) -> None:
        match event:
            case StreamOpened():
                self._open(event)
            case ElementReceived(element, _) if element.tag == _STREAM_ERROR:
                self._end(None)
            case ElementReceived(element, size) if self.account is not None:
                stanza = Incoming.of(element, size)
                if stanza.kind is None:
                    text = "a stanza is an iq, a message or a presence"
                    self._end(StreamError("unsupported-stanza-type", text))
                else:
                    self._actions.append(Received(stanza))
            case ElementReceived(element, _):
                self._negotiate(element)
            # This stream carries one client's stanzas only, so it ends (RFC 6120 §11.3).
            case StanzaSkipped(error=StreamError() as error):
                self._end(error)
            case StanzaSkipped() if self.account is not None:
                self._actions.append(event)
            case StanzaSkipped():
                self._end(StreamError("policy-violation", "that is too big before the login"))
            case StreamClosed():
                self._end(None)
            case ParserFailed(error):
                self._end(error)

    # The stream itself.

    def _open(self, header: StreamOpened) -> None:
        self._send_header()
        if header.to is not None and header.to.lower() != self._host:
            self._end(StreamError("host-unknown", f"this server serves {self._host} alone"))
        elif header.version is None or not header.version.startswith("1."):
            self._end(StreamError("unsupported-version", "the version of XMPP here is 1.0"))
        else:
            self._send(f"<stream:features>{self._features()}</stream:features>")

    def _send_header(self) -> None:
        self._opened = True
        header = encode_header(
            NAMESPACE, from_=self._host, id_=token_hex(8), version="1.0", lang="en"
        )
        self._actions.append(Send(header))

    def _features(self) -> str:
        if self.account is not None:
            return f"<bind xmlns='{BIND}'/><session xmlns='{SESSION}'><optional/></session>"
        mechanisms = "".join(
            f"<mechanism>{name}</mechanism>"
            for name in self._credentials.mechanisms(secure=self.secure)
        )
        tls = f"<starttls xmlns='{TLS}'/>" if self._offers_tls else ""
        return f"{tls}<mechanisms xmlns='{sasl.NAMESPACE}'>{mechanisms}</mechanisms>"

    @property
    def _offers_tls(self) -> bool:
        return self._can_secure and not self.secure

    def _end(self, error: StreamError | None) -> None:
        if not self._opened:  # errors are sent inside a stream, too (RFC 6120 §4.9.1.2)
            self._send_header()
        self._actions.append(Send((error.encode() if error else b"") + STREAM_CLOSE))
        self._actions.append(End())
        self._ended = True

    def _send(self, xml: str) -> None:
        self._actions.append(Send(xml.encode()))

    # Before the login.

    def _negotiate(self, element: Element) -> None:
        namespace, _, name = element.tag.rpartition("}")
        match namespace[1:], name:
            case str(space), "starttls" if space == TLS:
                if self._offers_tls:
                    self._send(f"<proceed xmlns='{TLS}'/>")
                    self._actions.append(StartTls())
                    self._restart()
                else:
                    self._send(f"<failure xmlns='{TLS}'/>")
                    self._end(None)
            case sasl.NAMESPACE, "auth" | "response" | "abort":
                try:
                    self._authenticate(name, element)
                except sasl.SaslFailureError as failure:
                    self._fail(failure.condition)
            case _:
                self._end(StreamError("not-authorized", "log in before you send anything else"))

    def _authenticate(self, name: str, element: Element) -> None:
        text = (element.text or "").strip()
        if name == "abort":
            raise sasl.SaslFailureError("aborted")
        if name == "auth":
            mechanism = element.get("mechanism", "")
            self._exchange = self._credentials.start(mechanism, secure=self.secure)
            if not text:  # in all supported mechanisms the client begins (RFC 6120 §6.4.2)
                self._send(f"<challenge xmlns='{sasl.NAMESPACE}'/>")
                return
        if self._exchange is None:
            raise sasl.SaslFailureError("malformed-request")
        match self._exchange.respond(sasl.decode_data(text)):
            case sasl.Challenge(data):
                encoded = sasl.encode_data(data)
                self._send(f"<challenge xmlns='{sasl.NAMESPACE}'>{encoded}</challenge>")
            case sasl.Success(account, data):
                encoded = "" if data is None else sasl.encode_data(data)
                self._send(f"<success xmlns='{sasl.NAMESPACE}'>{encoded}</success>")
                self.account = account
                self._restart()

    def _fail(self, condition: sasl.Condition) -> None:
        self._exchange = None
        self._failures += 1
        self._send(f"<failure xmlns='{sasl.NAMESPACE}'><{condition}/></failure>")
        if self._failures >= MAX_ATTEMPTS:
            self._end(StreamError("policy-violation", "that was one failed login too many"))
