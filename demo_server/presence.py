"""Presence and subscriptions (RFC 6121 §3, §4)."""

from typing import cast, get_args

from demo_server.roster import MAX_CONTACTS, Subscribing
from demo_server.table import Account, Session, Table
from xep.jid import JID
from xep.roster import RosterItem, RosterQuery
from xep.stanza import IQ, Incoming, Presence
from xep.stanza_error import StanzaError

SUBSCRIBING = frozenset(get_args(Subscribing))


class Presences:
    """Routes presence between the addresses of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._pushes = 0

    # Actions of a client.

    def update(self, session: Session, stanza: Incoming) -> None:
        """Broadcast a client's presence (RFC 6121 §4.2, §4.4, §4.5)."""
        if stanza.type == "unavailable":
            self._leave(session, stanza)
            return
        if stanza.type != "available":
            raise StanzaError("bad-request", f"a presence of type {stanza.type} needs an address")
        first = session.presence is None
        session.presence, session.priority = stanza, _priority(stanza)
        account = self._table.account_of(session)
        self._broadcast(account, session, stanza)
        if first:
            self._introduce(account, session)

    def direct(self, session: Session, stanza: Incoming, to: JID) -> None:
        """Send a client's presence to one address (RFC 6121 §3, §4.6).

        Raises:
            StanzaError: the domain is unknown, or the roster is full.
        """
        known = to.domain == self._table.host or to.domain in self._table.components
        if not known and stanza.type not in ("unavailable", "error"):
            raise StanzaError("remote-server-not-found", f"no server is known for {to.domain}")
        if stanza.type in SUBSCRIBING:
            self._subscription(session, cast("Subscribing", stanza.type), to.bare, stanza)
            return
        if stanza.type == "available" and len(session.directed) < MAX_CONTACTS:
            session.directed.add(to)
        elif stanza.type == "unavailable":
            session.directed.discard(to)
        self.post(stanza.type, session.jid, to, stanza.forward(from_=str(session.jid)))

    def leave(self, session: Session) -> None:
        """Send unavailable presence for a client that has disconnected (RFC 6121 §4.5.1)."""
        self._leave(session, None)

    def forget(self, session: Session, jid: JID) -> None:
        """Remove a contact from a client's roster (RFC 6121 §2.5).

        Raises:
            StanzaError: ``item-not-found``.
        """
        account = self._table.account_of(session)
        for type_ in account.roster.remove(jid):
            xml = Presence(from_=account.jid, to=jid, type=type_).encode()
            self.post(type_, account.jid, jid, xml)
            if type_ == "unsubscribed":
                self._show(account, jid, gone=True)
        self.push(account, RosterItem(jid=jid, subscription="remove"))

    def push(self, account: Account, item: RosterItem) -> None:
        """Push a change to the account's interested resources (RFC 6121 §2.1.6)."""
        for session in account.sessions.values():
            if session.interested:
                self._pushes += 1
                query = RosterQuery(items=(item,))
                push = IQ(
                    type="set",
                    id=f"push-{self._pushes}",
                    to=session.jid,
                    from_=account.jid,
                    payload=query,
                )
                session.link.send(push.encode())

    # Presence sent to an address.

    def post(self, type_: str, sender: JID, to: JID, xml: str) -> None:
        """Deliver a stamped presence to ``to``; ignored if ``to`` does not exist."""
        table = self._table
        if to.domain in table.components:
            link = table.components[to.domain]
            if link is not None:
                link.send(xml)
        elif to.domain == table.host and to.local is not None:
            account = table.accounts.get(to.local)
            if account is not None:
                self._arrive(account, type_, sender, to, xml)
            elif type_ == "subscribe":
                self._answer("unsubscribed", to.bare, sender.bare)

    def _arrive(self, account: Account, type_: str, sender: JID, to: JID, xml: str) -> None:
        if type_ in SUBSCRIBING:
            self._subscribing(account, cast("Subscribing", type_), sender.bare, xml)
        elif type_ == "probe":
            self._probed(account, sender)
        elif to.resource is None:
            for session in account.available:
                session.link.send(xml)
        elif session_there := account.sessions.get(to.resource):
            session_there.link.send(xml)

    def _subscribing(self, account: Account, type_: Subscribing, sender: JID, xml: str) -> None:
        if sender == account.jid:
            return
        was_seen = account.roster.seen_by(sender)
        change = account.roster.receive(type_, sender, xml)
        if change.answer is not None:
            self._confirm(account, change.answer, sender)
        if change.passes:
            for session in account.available:
                session.link.send(xml)
        if change.push is not None:
            self.push(account, change.push)
        if type_ == "unsubscribe" and was_seen:
            self._end(account, sender)

    def _confirm(self, account: Account, answer: Subscribing, to: JID) -> None:
        """Answer a request of somebody who is subscribed already."""
        self._answer(answer, account.jid, to)
        self._show(account, to)

    def _end(self, account: Account, to: JID) -> None:
        """Tell somebody that a subscription has ended, as they asked (RFC 6121 §3.3.3)."""
        self._show(account, to, gone=True)

    def _probed(self, account: Account, sender: JID) -> None:
        if sender.bare in account.roster.requests:
            return  # "unsubscribed" would withdraw the request without the account's decision
        if sender.bare != account.jid and not account.roster.seen_by(sender.bare):
            self._answer("unsubscribed", account.jid, sender.bare)
        elif account.available:
            self._show(account, sender)
        else:
            xml = Presence(from_=account.jid, to=sender, type="unavailable").encode()
            self.post("unavailable", account.jid, sender, xml)

    # Presence to others.

    def _subscription(
        self, session: Session, type_: Subscribing, to: JID, stanza: Incoming
    ) -> None:
        account = self._table.account_of(session)
        if to == account.jid:
            return  # accounts see their own resources anyway
        was_seen = account.roster.seen_by(to)
        change = account.roster.send(type_, to)
        if change.push is not None:
            self.push(account, change.push)
        if not change.passes:
            return
        self.post(type_, account.jid, to, stanza.forward(from_=str(account.jid), to=str(to)))
        # A request that is refused must not disclose who is there.
        if type_ == "subscribed" or (type_ == "unsubscribed" and was_seen):
            self._show(account, to, gone=type_ == "unsubscribed")

    def _introduce(self, account: Account, session: Session) -> None:
        """Send a newly available session the presence it subscribes to (RFC 6121 §4.2.2, §4.3)
        and pending requests (§3.1.3).
        """
        for other in account.available:
            if other is not session:
                session.link.send(self._last(other, session.jid))
        for jid, contact in account.roster.contacts.items():
            if contact.sees:
                probe = Presence(from_=session.jid, to=jid, type="probe").encode()
                self.post("probe", session.jid, jid, probe)
        for request in [*account.roster.requests.values()]:  # it may answer at once
            session.link.send(request)

    def _leave(self, session: Session, stanza: Incoming | None) -> None:
        account = self._table.account_of(session)
        directed, session.directed = session.directed, set()
        if session.presence is not None:
            self._broadcast(account, session, stanza)
            session.presence = None
        for jid in directed:
            if not account.roster.seen_by(jid.bare):
                self.post("unavailable", session.jid, jid, _told(session, stanza, jid))

    def _broadcast(self, account: Account, session: Session, stanza: Incoming | None) -> None:
        for own in account.available:
            own.link.send(_told(session, stanza, own.jid))
        type_ = "unavailable" if stanza is None else stanza.type
        for jid, contact in account.roster.contacts.items():
            if contact.seen_by:
                self.post(type_, session.jid, jid, _told(session, stanza, jid))

    def _show(self, account: Account, to: JID, *, gone: bool = False) -> None:
        """Send ``to`` the presence of each available resource, or unavailable presence."""
        type_ = "unavailable" if gone else "available"
        for session in account.available:
            xml = _told(session, None if gone else session.presence, to)
            self.post(type_, session.jid, to, xml)

    def _last(self, session: Session, to: JID) -> str:
        """Return the last presence of a session, for an entity that has not received it."""
        return _told(session, session.presence, to)

    def _answer(self, type_: Subscribing, sender: JID, to: JID) -> None:
        self.post(type_, sender, to, Presence(from_=sender, to=to, type=type_).encode())


def _told(session: Session, stanza: Incoming | None, to: JID) -> str:
    """``stanza`` as ``session`` sends it to ``to``; without one, unavailable presence."""
    if stanza is None:
        return Presence(from_=session.jid, to=to, type="unavailable").encode()
    return stanza.forward(from_=str(session.jid), to=str(to))


def _priority(stanza: Incoming) -> int:
    """Return the priority of a presence; 0 if it is not a number from -128 to 127."""
    try:
        priority = int(stanza.text_of("priority") or 0)
    except ValueError:
        return 0
    return priority if -128 <= priority <= 127 else 0
