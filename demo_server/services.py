"""Requests that the server answers itself, for its domain and on behalf of accounts."""

from importlib.metadata import version

from demo_server.presence import Presences
from demo_server.table import Session, Table
from xep import disco, ping
from xep import version as software
from xep.binding import Name, Payload
from xep.jid import JID
from xep.roster import NAMESPACE as ROSTER
from xep.roster import RosterQuery
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

SESSION = "urn:ietf:params:xml:ns:xmpp-session"
NAME = "xmpp-agent embedded server"
_FEATURES = (disco.INFO, disco.ITEMS, ping.NAMESPACE, software.NAMESPACE, ROSTER)


class StartSession(Payload, frozen=True, kw_only=True):
    """Session establishment of RFC 3921 §3, removed in RFC 6120; some clients still request it."""

    xml = Name(SESSION, "session")


class Services:
    """Answers IQs of type get and set that are meant for the server. Everything else that a client
    may ask for (message carbons, archives, vCards, stream management …) is not offered.
    """

    def __init__(self, table: Table, presences: Presences) -> None:
        self._table = table
        self._presences = presences

    def answer_for_host(self, request: Incoming) -> Payload | None:
        """Answer a request to the server's own domain.

        Raises:
            StanzaError: the request cannot be served.
            ContentError: it is malformed.
        """
        match request.type, request.sole_child:
            case "get", disco.InfoQuery.xml.tag:
                _refuse_node(request.require(disco.InfoQuery).node)
                return disco.InfoQuery(
                    identities=(disco.Identity(category="server", type="im", name=NAME),),
                    features=tuple(disco.Feature(var=var) for var in _FEATURES),
                )
            case "get", disco.ItemsQuery.xml.tag:
                _refuse_node(request.require(disco.ItemsQuery).node)
                domains = self._table.components
                return disco.ItemsQuery(
                    items=tuple(disco.Item(jid=JID(None, domain)) for domain in domains)
                )
            case "get", software.VersionQuery.xml.tag:
                return software.Version(name=NAME, version=version("xmpp-agent-component"))
        return self._answer_for_all(request)

    def answer_for_account(self, session: Session, request: Incoming) -> Payload | None:
        """Answer a request of a client to its own account (RFC 6120 §10.3.3).

        Raises:
            StanzaError: the request cannot be served.
            ContentError: it is malformed.
        """
        match request.type, request.sole_child:
            case "get", disco.InfoQuery.xml.tag:
                _refuse_node(request.require(disco.InfoQuery).node)
                return disco.InfoQuery(
                    identities=(disco.Identity(category="account", type="registered"),),
                    features=(disco.Feature(var=disco.INFO),),
                )
            case "get", RosterQuery.xml.tag:
                session.interested = True
                return RosterQuery(items=self._table.account_of(session).roster.items())
            case "set", RosterQuery.xml.tag:
                self._change_roster(session, request.require(RosterQuery))
                return None
        return self._answer_for_all(request)

    def _answer_for_all(self, request: Incoming) -> Payload | None:
        match request.type, request.sole_child:
            case ("get", ping.Ping.xml.tag) | ("set", StartSession.xml.tag):
                return None
        raise StanzaError("service-unavailable")

    def _change_roster(self, session: Session, query: RosterQuery) -> None:
        if len(query.items) != 1:
            raise StanzaError("bad-request", "a roster set holds exactly one item")
        item = query.items[0]
        account = self._table.account_of(session)
        if item.jid.bare == account.jid:
            raise StanzaError("not-allowed", "an account is no contact of its own")
        if item.subscription == "remove":
            self._presences.forget(session, item.jid.bare)
        else:
            self._presences.push(account, account.roster.set(item))


def _refuse_node(node: str | None) -> None:
    if node:
        raise StanzaError("item-not-found", "there are no nodes here")
