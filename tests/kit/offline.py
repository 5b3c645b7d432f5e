"""Messages for people who are away, as the servers keep them (XEP-0160).

Both servers keep messages of type chat and normal, and deliver them in their order, with the time
of their arrival (XEP-0203), when a client sends presence with a priority of 0 or more: Prosody only
if this is the first presence of its session. Prosody (`mod_message` and `mod_offline`) keeps
everything. ejabberd (`ejabberd_sm`, `mod_offline`) refuses what a sender does not want to be stored
(XEP-0334) and chat states without a text, and keeps `EJABBERD_MOST` messages for one account.
"""

from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from component import system
from demo_server.router import Sender, stamped
from demo_server.table import Account, Table
from tests.kit.blocking import BlockingRouter, OnKeptOut
from tests.kit.elements import delayed
from xep.jid import JID
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

OfflineStorage: TypeAlias = Literal["prosody", "ejabberd"]
EJABBERD_MOST: Final = 100
"""Messages of one account, unless it is that of an admin."""
_HINTS: Final = "{urn:xmpp:hints}"
_IGNORED: Final = (
    "{http://jabber.org/protocol/chatstates}",
    "{urn:xmpp:delay}",
    _HINTS,
    "{urn:xmpp:sid:0}",
)
"""Namespaces of what may be in a message that is a chat state and nothing else."""


class _Kept(msgspec.Struct, frozen=True):
    to: JID
    xml: str
    at: datetime


class OfflineRouter(BlockingRouter):
    """A server that keeps messages for people who are away."""

    def __init__(self, table: Table, server: OfflineStorage, kept_out: OnKeptOut) -> None:
        super().__init__(table, server, kept_out)
        self._kept: dict[str, list[_Kept]] = {}

    def _unreachable(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        account = self._account(to)
        if account is None or stanza.type == "groupchat":
            raise StanzaError("service-unavailable")
        kept = self._kept.setdefault(account.jid.local or "", [])
        if self._server == "ejabberd":
            _check_as_ejabberd(stanza, len(kept))
        kept.append(_Kept(to, stamped(sender, stanza), system.now()))

    def _presence(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        session = sender.session
        is_new = session is not None and (
            session.presence is None or (self._server == "ejabberd" and session.priority < 0)
        )
        super()._presence(sender, stanza, to)
        if session is not None and is_new and session.presence and session.priority >= 0:
            self._deliver(self.table.account_of(session), sender)

    def _deliver(self, account: Account, sender: Sender) -> None:
        text = "" if self._server == "prosody" else "Offline storage"
        for each in self._kept.pop(account.jid.local or "", ()):
            xml = delayed(each.xml, self.table.host, each.at, text)
            receivers = [sender.link]
            if self._server == "ejabberd":  # it routes the message again
                available = [one for one in account.available if one.priority >= 0]
                there = account.sessions.get(each.to.resource or "")
                top = max(one.priority for one in available)
                best = [one.link for one in available if one.priority == top]
                receivers = best if there is None else [there.link]
            for link in receivers:
                link.send(xml)


def _check_as_ejabberd(stanza: Incoming, kept: int) -> None:
    """Raise StanzaError if ejabberd does not keep a message."""
    names = stanza.child_names
    if f"{_HINTS}store" not in names:
        unwanted = {f"{_HINTS}no-store", f"{_HINTS}no-storage"} & set(names)
        if unwanted or all(name.startswith(_IGNORED) or name.endswith("}thread") for name in names):
            raise StanzaError("service-unavailable", "User session not found")
    if kept >= EJABBERD_MOST:
        text = "Your contact offline message queue is full. The message has been discarded."
        raise StanzaError("resource-constraint", text)
