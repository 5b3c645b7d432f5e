"""Presence as Prosody and ejabberd route it, where they differ from `demo_server`.

A probe is answered with the time at which a presence was sent. To those who are not subscribed,
ejabberd answers it only if a client is connected, and Prosody never.

Prosody answers a request for a subscription at once with unavailable presence, also on behalf of
accounts that do not exist, and sends a probe after an approval. It repeats requests that nobody has
answered when a client becomes available. Somebody who asks again for a subscription is sent
presence, twice; somebody who ends one is not told more.

ejabberd says twice that an account has withdrawn a subscription.
"""

from collections.abc import Callable
from datetime import datetime

from component import system
from demo_server.roster import Subscribing
from demo_server.table import Account, Session, Table
from tests.kit.blocking import BlockingPresences
from tests.kit.elements import delayed
from tests.kit.offline import OfflineStorage
from xep.jid import JID
from xep.stanza import Incoming, Presence


class ServerPresences(BlockingPresences):
    """Routes presence between the addresses of a table, as one of the servers does."""

    def __init__(
        self, table: Table, server: OfflineStorage, blocks: Callable[[JID, JID], bool]
    ) -> None:
        super().__init__(table, blocks)
        self._server = server
        self._times: dict[JID, datetime] = {}
        """When each client has sent its last presence."""

    def update(self, session: Session, stanza: Incoming) -> None:
        self._times[session.jid] = system.now()
        super().update(session, stanza)

    def post(self, type_: str, sender: JID, to: JID, xml: str) -> None:
        table = self._table
        if to.domain == table.host and to.local and to.local not in table.accounts:
            if type_ == "subscribe" and self._server == "prosody":
                self._send("unavailable", to.bare, sender.bare)
            return
        super().post(type_, sender, to, xml)

    def _subscribing(self, account: Account, type_: Subscribing, sender: JID, xml: str) -> None:
        is_new = type_ == "subscribe" and not account.roster.seen_by(sender)
        if is_new and self._server == "prosody" and sender != account.jid:
            self._send("unavailable", account.jid, sender)
        super()._subscribing(account, type_, sender, xml)

    def _confirm(self, account: Account, answer: Subscribing, to: JID) -> None:
        self._answer(answer, account.jid, to)
        if self._server == "prosody":
            for _ in range(2):
                self._show_last(account, to)

    def _end(self, account: Account, to: JID) -> None:
        if self._server == "ejabberd":
            self._answer("unsubscribed", account.jid, to)
            super()._end(account, to)

    def _subscription(
        self, session: Session, type_: Subscribing, to: JID, stanza: Incoming
    ) -> None:
        roster, sender = self._table.account_of(session).roster, session.jid.bare
        was_seen, was_asked = roster.seen_by(to), to in roster.requests
        super()._subscription(session, type_, to, stanza)
        if self._server == "ejabberd" and type_ == "unsubscribed" and was_seen:
            self._answer("unsubscribed", sender, to)
        elif self._server == "prosody" and type_ == "subscribed" and was_asked and roster.sees(to):
            self._send("probe", sender, to)

    def _introduce(self, account: Account, session: Session) -> None:
        super()._introduce(account, session)
        if self._server == "prosody":
            for jid, contact in account.roster.contacts.items():
                if contact.asked:
                    self._send("subscribe", account.jid, jid)

    def _probed(self, account: Account, sender: JID) -> None:
        if sender.bare == account.jid or account.roster.seen_by(sender.bare):
            if account.available:
                self._show_last(account, sender)
            elif self._server == "prosody":
                self._send("unavailable", account.jid, sender)
        elif self._server == "ejabberd" and account.available:
            self._answer("unsubscribed", account.jid, sender)

    def _show(self, account: Account, to: JID, *, gone: bool = False) -> None:
        if gone or self._server == "ejabberd":
            super()._show(account, to, gone=gone)
        else:
            self._show_last(account, to)

    def _show_last(self, account: Account, to: JID) -> None:
        for session in account.available:
            self.post("available", session.jid, to, self._last(session, to))

    def _last(self, session: Session, to: JID) -> str:
        xml = super()._last(session, to)
        return delayed(xml, str(session.jid), self._times[session.jid])

    def _send(self, type_: str, sender: JID, to: JID) -> None:
        self.post(type_, sender, to, Presence(type=type_, from_=sender, to=to).encode())
