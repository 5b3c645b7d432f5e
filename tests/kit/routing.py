"""Routing as Prosody and ejabberd do it, where they differ from `demo_server`.

ejabberd returns the payload of a stanza with an error, as RFC 6120 §8.3.1 allows. It takes the
domain of a component that is not connected for that of another server.
"""

from demo_server.router import Sender
from demo_server.services import Services
from demo_server.table import Table
from tests.kit.blocking import OnKeptOut
from tests.kit.elements import returned
from tests.kit.offline import OfflineRouter, OfflineStorage
from tests.kit.presence import ServerPresences
from xep.binding import Name, Payload
from xep.jid import JID
from xep.ping import Ping
from xep.stanza import IQ, Incoming, Presence
from xep.stanza_error import StanzaError


class _NotConnected(Payload, frozen=True, kw_only=True):
    """Prosody's condition for a component that is away."""

    xml = Name("xmpp:prosody.im/protocol/component", "not-connected")


class ServerRouter(OfflineRouter):
    """A server of one kind.

    Args:
        federates: whether it looks for other servers.
    """

    def __init__(
        self,
        table: Table,
        server: OfflineStorage,
        kept_out: OnKeptOut,
        *,
        federates: bool,
    ) -> None:
        super().__init__(table, server, kept_out)
        self._federates = federates
        self.presences = ServerPresences(table, server, self.blocks)
        self._services = Services(table, self.presences)

    def _presence(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        absent = None if stanza.to is None else self._absent(to.domain)
        if absent is not None and to.domain not in self.table.components:
            raise absent
        super()._presence(sender, stanza, to)
        if absent is not None:
            raise absent

    def _message(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        if (
            self._server == "ejabberd"
            and stanza.type == "headline"
            and to.domain == self.table.host
            and to.is_bare
            and self._account(to) is None
        ):
            raise StanzaError("service-unavailable")
        super()._message(sender, stanza, to)

    def _iq(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        is_of_account = to.domain == self.table.host and to.local is not None and to.is_bare
        is_ping = stanza.type == "get" and stanza.sole_child == Ping.xml.tag
        if is_of_account and is_ping and not self.blocks(to, sender.jid):
            # Also for accounts that do not exist.
            result = IQ(type="result", id=stanza.id or "", to=sender.jid, from_=to)
            sender.link.send(result.encode())
            return
        super()._iq(sender, stanza, to)

    def _went_to_component(self, sender: Sender, stanza: Incoming, to: JID) -> bool:
        absent = self._absent(to.domain)
        if absent is not None:
            raise absent
        return super()._went_to_component(sender, stanza, to)

    def _absent(self, domain: str) -> StanzaError | None:
        """Return how stanzas to a domain that cannot be reached are refused; None if it can."""
        components = self.table.components
        if domain == self.table.host or components.get(domain) is not None:
            return None
        if domain in components and self._server == "prosody":
            text = "Component unavailable"
            return StanzaError("remote-server-timeout", text, application=(_NotConnected(),))
        if self._federates:
            return StanzaError("remote-server-not-found")
        return StanzaError("not-allowed" if self._server == "prosody" else "forbidden")

    def _refusal(self, sender: Sender, stanza: Incoming, error: StanzaError) -> str | None:
        xml = super()._refusal(sender, stanza, error)
        if stanza.kind == "presence" and stanza.type == "unavailable":
            by = stanza.to or ""
            xml = Presence(
                type="error", id=stanza.id, to=sender.jid, from_=by, error=error
            ).encode()
        return xml if xml is None or self._server == "prosody" else returned(xml, stanza)
