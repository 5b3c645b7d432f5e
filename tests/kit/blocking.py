"""Accounts that block others (XEP-0191), as Prosody 0.12 and ejabberd 23.01 let them.

Both were asked, and the source of Prosody (`mod_blocklist`) was read. A message or a request of
somebody who is blocked is returned as `service-unavailable`, as if the account were not there;
Prosody drops a message to the full address of a client. Everything else is dropped: presence,
headlines, results, errors. Clients cannot write to whom they block. Prosody tells a contact that
sees the presence of the account that it is gone, or back; ejabberd does not.
"""

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias

from demo_server.presence import Presences
from demo_server.router import Router, Sender, stamped
from demo_server.services import Services
from demo_server.table import Account, Session, Table
from xep.binding import Attr, Child, Name, Payload
from xep.jid import JID
from xep.stanza import IQ, Incoming, Presence
from xep.stanza_error import StanzaError

Cause: TypeAlias = Literal["blocks", "away"]
"""Why an account does not get a stanza: it blocks the sender, or is away and nothing is kept."""
OnKeptOut: TypeAlias = Callable[[JID, str, Cause], None]
Answer: TypeAlias = Callable[[JID, JID, Incoming], Payload | None]
NAMESPACE: Final = "urn:xmpp:blocking"
Server: TypeAlias = Literal["prosody", "ejabberd"]


class _Item(Payload, frozen=True, kw_only=True):
    xml = Name(NAMESPACE, "item")

    jid: Annotated[JID, Attr()]


class Block(Payload, frozen=True, kw_only=True):
    """Asks the server to block these addresses: accounts, or whole domains."""

    xml = Name(NAMESPACE, "block")

    items: Annotated[tuple[_Item, ...], Child()] = ()


class Unblock(Payload, frozen=True, kw_only=True):
    """Asks the server to block these addresses no longer; without any, nobody."""

    xml = Name(NAMESPACE, "unblock")

    items: Annotated[tuple[_Item, ...], Child()] = ()


_BLOCK: Final = Block.xml.tag
_UNBLOCK: Final = Unblock.xml.tag


class BlockingPresences(Presences):
    """Presence that does not pass between an account and whom it blocks."""

    def __init__(self, table: Table, blocks: Callable[[JID, JID], bool]) -> None:
        super().__init__(table)
        self._blocks = blocks

    def post(self, type_: str, sender: JID, to: JID, xml: str) -> None:
        """See `Presences.post`."""
        if not (self._blocks(sender, to) or self._blocks(to, sender)):
            self.force(type_, sender, to, xml)

    def force(self, type_: str, sender: JID, to: JID, xml: str) -> None:
        """Deliver a presence to who is blocked, too."""
        super().post(type_, sender, to, xml)


class BlockingRouter(Router):
    """A server whose accounts can block others.

    Attributes:
        blocked: whom each account blocks, by its localpart.
        presences: see `Router`.
        kept_out: called with the account, the stanza that it does not get, and the cause.
        answers: answer requests to an account, with the account and the sender, by the payload.
    """

    presences: BlockingPresences

    def __init__(self, table: Table, server: Server, kept_out: OnKeptOut) -> None:
        super().__init__(table)
        self.presences = BlockingPresences(table, self.blocks)
        self._services = Services(table, self.presences)
        self.blocked: dict[str, set[JID]] = {}
        self.answers: dict[str, Answer] = {}
        self._server: Server = server
        self.kept_out = kept_out

    def _presence(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        if stanza.to is None or self._passes(sender, stanza, to):
            super()._presence(sender, stanza, to)

    def _message(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        if self._passes(sender, stanza, to):
            super()._message(sender, stanza, to)

    def _unreachable(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        self.kept_out(to.bare, stamped(sender, stanza), "away")
        super()._unreachable(sender, stanza, to)

    def _iq(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        session = sender.session
        is_own = session is not None and to == session.jid.bare and stanza.type == "set"
        if session is not None and is_own and stanza.sole_child in (_BLOCK, _UNBLOCK):
            self._change(session, stanza)
        elif self._passes(sender, stanza, to):
            answer = self.answers.get(stanza.sole_child or "")
            is_request = stanza.type in ("get", "set") and to.is_bare
            if answer is None or not is_request or self._account(to) is None:
                super()._iq(sender, stanza, to)
                return
            payload, id_ = answer(to, sender.jid, stanza), stanza.id or ""
            sender.link.send(
                IQ(type="result", id=id_, to=sender.jid, from_=to, payload=payload).encode()
            )

    def _passes(self, sender: Sender, stanza: Incoming, to: JID) -> bool:
        """Return whether nobody blocks the other; False drops the stanza. Raises StanzaError if it
        is returned.
        """
        if sender.session is not None and self.blocks(sender.jid, to):
            if stanza.type in ("error", "result"):
                return False
            raise StanzaError("not-acceptable", "You have blocked this JID")
        if not self.blocks(to, sender.jid):
            return True
        self.kept_out(to.bare, stamped(sender, stanza), "blocks")
        if self._returns(stanza, to):
            raise StanzaError("service-unavailable")
        return False

    def blocks(self, account: JID, other: JID) -> bool:
        """Return whether an account blocks an address."""
        if account.domain != self.table.host:
            return False
        blocked = self.blocked.get(account.local or "", set())
        return not blocked.isdisjoint((other, other.bare, JID(None, other.domain)))

    def _returns(self, stanza: Incoming, to: JID) -> bool:
        """Return whether a stanza of somebody who is blocked is returned to them."""
        if stanza.kind == "message":
            account = self._account(to)
            connected = account is not None and (to.resource or "") in account.sessions
            is_dropped = self._server == "prosody" and connected
            return stanza.type in ("chat", "normal") and not is_dropped
        return stanza.kind == "iq" and stanza.type in ("get", "set")

    def _change(self, session: Session, stanza: Incoming) -> None:
        account = self.table.account_of(session)
        before = self.blocked.get(account.jid.local or "", set())
        if stanza.sole_child == _BLOCK:
            after = before | {one.jid for one in stanza.require(Block).items}
        else:
            named = {one.jid for one in stanza.require(Unblock).items}
            after = before - named if named else set()
        self.blocked[account.jid.local or ""] = after
        session.link.send(
            IQ(type="result", id=stanza.id or "", to=session.jid, from_=account.jid).encode()
        )
        if self._server == "prosody":
            self._tell(account, after - before, is_gone=True)
            self._tell(account, before - after, is_gone=False)

    def _tell(self, account: Account, others: set[JID], *, is_gone: bool) -> None:
        """Tell those who see the presence of the account that it is gone, or there again."""
        for other in sorted(others, key=str):
            for session in account.available if account.roster.seen_by(other) else ():
                gone = Presence(type="unavailable", from_=session.jid, to=other)
                shown = session.presence
                assert shown is not None, "it is available"
                there = shown.forward(from_=str(session.jid), to=str(other))
                type_, xml = ("unavailable", gone.encode()) if is_gone else ("available", there)
                self.presences.force(type_, session.jid, other, xml)
