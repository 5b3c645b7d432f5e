"""A client's connection: login, then stanzas to and from the router."""

import ssl

from demo_server.c2s import ClientStream, End, Received, Send, StartTls
from demo_server.router import Router
from demo_server.table import Session
from demo_server.wire import Wire
from xep.bind import Bind
from xep.binding import ContentError, encode
from xep.binding.escaping import escape_attribute
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped, StreamError


class ClientLink:
    """Performs the actions of a `ClientStream` over a `Wire`."""

    def __init__(
        self, wire: Wire, stream: ClientStream, context: ssl.SSLContext, router: Router
    ) -> None:
        self._wire = wire
        self._stream = stream
        self._context = context
        self._router = router
        self._session: Session | None = None

    async def talk(self) -> None:
        """Run until either side ends the stream."""
        try:
            while (data := await self._wire.receive()) is not None:
                for action in self._stream.receive(data):
                    match action:
                        case Send(xml):
                            self._wire.write(xml)
                        case Received(stanza):
                            self._take(stanza)
                        case StanzaSkipped() if self._session is not None:
                            session = self._session
                            self._router.refuse_skipped(session.jid, action, session.link)
                        case StanzaSkipped():
                            self._refuse_unbound()
                        case StartTls():
                            if not await self._wire.start_tls(self._context):
                                return
                            self._stream.secured()
                        case End():
                            self._wire.stop()
        finally:
            if self._session is not None:
                self._router.leave(self._session)

    def _take(self, stanza: Incoming) -> None:
        if self._session is None:
            self._bind(stanza)
        else:
            self._wire.show_received(stanza.forward)
            self._router.from_client(self._session, stanza)

    def _bind(self, stanza: Incoming) -> None:
        if stanza.type != "set" or stanza.sole_child != Bind.xml.tag:
            self._refuse_unbound()
            return
        try:
            wanted = _wanted(stanza)
            self._session = self._router.enter(self._stream.account or "", wanted, self._wire)
        except StanzaError as error:
            self._answer_bind(stanza, "error", error.encode())
            return
        jid = self._session.jid
        self._wire.name = str(jid)
        self._answer_bind(stanza, "result", encode(Bind(jid=jid)))

    def _answer_bind(self, stanza: Incoming, type_: str, content: str) -> None:
        # Without addresses, as in the RFC: the client has none yet (§7.6.1).
        id_ = escape_attribute(stanza.id or "")
        self._wire.write(f"<iq type='{type_}' id='{id_}'>{content}</iq>".encode())

    def _refuse_unbound(self) -> None:
        text = "bind a resource before you send anything else"
        self._wire.close(StreamError("not-authorized", text))


def _wanted(stanza: Incoming) -> str | None:
    try:
        return stanza.require(Bind).resource
    except ContentError as error:
        raise StanzaError("bad-request", str(error)) from error
