"""A component's connection (XEP-0114), accepting side: handshake, then stanzas both ways."""

from collections.abc import Mapping
from secrets import token_hex

from demo_server.router import Router
from demo_server.wire import Wire
from xep.component_states import State
from xep.component_stream import AcceptorStream, HandshakeReceived
from xep.jid import JID, JIDError
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived, StreamErrorReceived, StreamFailed
from xep.stream import StanzaSkipped, StreamClosed, StreamError, StreamOpened


class ComponentLink:
    """Performs the actions of an `AcceptorStream` over a `Wire`.

    Args:
        secrets: the secrets by prepared domain.
    """

    def __init__(self, wire: Wire, secrets: Mapping[str, str], router: Router) -> None:
        self._wire = wire
        self._secrets = secrets
        self._router = router
        self._stream = AcceptorStream()
        self._domain = ""

    async def talk(self) -> None:
        """Run until either side ends the stream."""
        links = self._router.table.components
        try:
            while (data := await self._wire.receive()) is not None:
                for event in self._stream.receive(data):
                    match event:
                        # A component that did not wait for the answer may have failed by now.
                        case StreamOpened(to=domain) if self._stream.state is State.OPENED:
                            self._open(domain or "")
                        case HandshakeReceived(valid=valid) if self._stream.state is State.DECIDING:
                            self._decide(valid=valid)
                        case StanzaReceived(stanza):
                            self._take(stanza)
                        case StanzaSkipped(from_=sender):
                            address = self._own_address(sender)
                            if address is not None:
                                self._router.refuse_skipped(address, event, self._wire)
                        case StreamFailed(error):
                            self._end(error.reply)
                        case StreamClosed() | StreamErrorReceived():
                            self._wire.close()
                        case _:
                            pass
        finally:
            if links.get(self._domain) is self._wire:
                links[self._domain] = None

    def _open(self, domain: str) -> None:
        try:
            self._domain = JID.parse(domain).domain
        except JIDError:
            self._domain = domain
        secret = self._secrets.get(self._domain)
        # An error follows a whole header, with an id (RFC 6120 §4.7.3, §4.9.1.1).
        self._wire.write(self._stream.open(token_hex(16), secret or ""))
        if secret is None:
            text = f"no component {domain} is configured here"
            self._end(self._stream.fail("host-unknown", text))

    def _decide(self, *, valid: bool) -> None:
        links = self._router.table.components
        if not valid:
            text = f"the secret of {self._domain} is wrong"
            self._end(self._stream.fail("not-authorized", text))
        elif links[self._domain] is not None:
            text = f"{self._domain} is already connected"
            self._end(self._stream.fail("conflict", text))
        else:
            links[self._domain] = self._wire
            self._wire.name = self._domain
            self._wire.write(self._stream.accept())

    def _end(self, reply: bytes) -> None:
        self._wire.write(reply)
        self._wire.stop()

    def _take(self, stanza: Incoming) -> None:
        self._wire.show_received(stanza.forward)
        sender = self._own_address(stanza.sender)
        if sender is None:
            text = f"a stanza of this component comes from an address of {self._domain}"
            self._wire.close(StreamError("invalid-from", text))
        elif stanza.to is None:
            self._wire.close(StreamError("improper-addressing", "a component's stanza has a 'to'"))
        else:
            self._router.from_component(sender, stanza, self._wire)

    def _own_address(self, text: str | None) -> JID | None:
        """``text`` as an address of the component's domain; None if it is not one."""
        try:
            address = JID.parse(text or "")
        except JIDError:
            return None
        return address if address.domain == self._domain else None
