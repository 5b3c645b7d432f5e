"""Routing of stanzas (RFC 6120 §10, RFC 6121 §8), without waiting and without sockets."""

from dataclasses import dataclass

from demo_server.presence import Presences
from demo_server.services import Services
from demo_server.table import Account, Link, Session, Table
from xep.binding import ContentError, Payload
from xep.jid import JID, JIDError
from xep.stanza import IQ, Incoming, Message, Presence
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped, StreamError


@dataclass(frozen=True, slots=True)
class Sender:
    """The authenticated sender of a stanza: address, link, and session if it is a client."""

    jid: JID
    link: Link
    session: Session | None = None


class Router:
    """Routes stanzas from authenticated senders to their recipients.

    Undeliverable requests are answered with an error; replies and errors never are.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.presences = Presences(table)
        self._services = Services(table, self.presences)

    def from_client(self, session: Session, stanza: Incoming) -> None:
        """Route a stanza from a client; ``from`` is always replaced with its full JID."""
        self._take(Sender(session.jid, session.link, session), stanza)

    def from_component(self, jid: JID, stanza: Incoming, link: Link) -> None:
        """Route a stanza from a component; its ``from`` is ``jid``, an address of its domain."""
        self._take(Sender(jid, link), stanza)

    def enter(self, account: str, resource: str | None, link: Link) -> Session:
        """Bind a resource for a logged-in client (RFC 6120 §7). A session that already has it is
        closed with ``conflict``, since it is usually a dead connection.

        Raises:
            StanzaError: ``bad-request`` for an invalid resource, ``resource-constraint`` when the
                account has too many sessions.
        """
        jid = self.table.address(account, resource)
        former = self.table.find_session(jid)
        if former is not None:
            former.link.close(StreamError("conflict", f"another client has bound {jid}"))
            self.leave(former)
        return self.table.bind(jid, link)

    def leave(self, session: Session) -> None:
        """End a session and announce that (RFC 6121 §4.5.1). A second call has no effect."""
        self.presences.leave(session)
        self.table.unbind(session)

    def refuse_skipped(self, jid: JID, skipped: StanzaSkipped, link: Link) -> None:
        """Answer a request of ``jid`` that was skipped: over a limit, or not well-formed."""
        if skipped.kind == "iq" and skipped.type in ("get", "set"):
            if skipped.error is None:
                text = f"the stanza breaks the limit of {skipped.limit}"
                error = StanzaError("policy-violation", text)
            else:
                error = StanzaError("bad-request", skipped.error.text)
            by = skipped.to if skipped.to is not None else jid.bare
            xml = IQ(type="error", id=skipped.id or "", to=jid, from_=by, error=error).encode()
            link.send(xml)

    def _take(self, sender: Sender, stanza: Incoming) -> None:
        try:
            to = _address(sender, stanza)
            if stanza.kind == "presence":
                self._presence(sender, stanza, to)
            elif stanza.kind == "message":
                self._message(sender, stanza, to)
            else:
                _check_iq(stanza)
                self._iq(sender, stanza, to)
        except ContentError as error:
            self._refuse(sender, stanza, StanzaError("bad-request", str(error)))
        except StanzaError as error:
            self._refuse(sender, stanza, error)

    def _refuse(self, sender: Sender, stanza: Incoming, error: StanzaError) -> None:
        xml = self._refusal(sender, stanza, error)
        if xml is not None:
            sender.link.send(xml)

    def _refusal(self, sender: Sender, stanza: Incoming, error: StanzaError) -> str | None:
        """Return the answer with ``error``; None if the stanza was itself an answer (RFC 6120
        §8.3.1).
        """
        back, by = sender.jid, stanza.to if stanza.to is not None else sender.jid.bare
        if stanza.kind == "iq" and stanza.type not in ("result", "error"):
            return IQ(type="error", id=stanza.id or "", to=back, from_=by, error=error).encode()
        if stanza.kind == "message" and stanza.type != "error":
            return Message(type="error", id=stanza.id, to=back, from_=by, error=error).encode()
        if stanza.kind == "presence" and stanza.type not in ("error", "unavailable"):
            return Presence(type="error", id=stanza.id, to=back, from_=by, error=error).encode()
        return None

    def _presence(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        if sender.session is None:
            self.presences.post(stanza.type, sender.jid, to, stamped(sender, stanza))
        elif stanza.to is None:
            self.presences.update(sender.session, stanza)
        else:
            self.presences.direct(sender.session, stanza, to)

    def _message(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        """Deliver to the named resource, or to those with the highest priority (RFC 6121 §8.5)."""
        if self._went_to_component(sender, stanza, to):
            return
        account = self._account(to)
        there = account.sessions.get(to.resource) if account and to.resource else None
        if there is not None:
            there.link.send(stamped(sender, stanza))
            return
        willing = [s for s in account.available if s.priority >= 0] if account else []
        if stanza.type in ("error", "headline"):
            receivers = willing if stanza.type == "headline" and to.is_bare else []
        elif stanza.type == "groupchat" or not willing:
            self._unreachable(sender, stanza, to)
            return
        else:
            top = max(s.priority for s in willing)
            receivers = [s for s in willing if s.priority == top]
        for session in receivers:
            session.link.send(stamped(sender, stanza))

    def _unreachable(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        """Handle a message that nobody can receive now. Raises StanzaError."""
        # There is no offline storage, so the sender must get an error.
        raise StanzaError("service-unavailable", f"{to} cannot be reached now")

    def _iq(self, sender: Sender, stanza: Incoming, to: JID) -> None:
        if self._went_to_component(sender, stanza, to):
            return
        account = self._account(to)
        if account is not None and to.resource is not None:
            there = account.sessions.get(to.resource)
            if there is None:
                raise StanzaError("service-unavailable", f"{to} is not connected")
            there.link.send(stamped(sender, stanza))
        elif stanza.type in ("get", "set"):
            payload: Payload | None
            if to.local is None:
                payload = self._services.answer_for_host(stanza)
            elif sender.session is not None and to == sender.session.jid.bare:
                payload = self._services.answer_for_account(sender.session, stanza)
            else:  # others must not learn whether an account exists (RFC 6121 §8.5.1)
                raise StanzaError("service-unavailable")
            result = IQ(type="result", id=stanza.id or "", to=sender.jid, from_=to, payload=payload)
            sender.link.send(result.encode())

    def _went_to_component(self, sender: Sender, stanza: Incoming, to: JID) -> bool:
        """Pass the stanza to the component of ``to``; return whether there is one.

        Raises:
            StanzaError: the component is not connected, or the domain is unknown.
        """
        if to.domain in self.table.components:
            link = self.table.components[to.domain]
            if link is None:  # as Prosody answers, since it may reconnect
                text = f"the component {to.domain} is not connected"
                raise StanzaError("remote-server-timeout", text)
            link.send(stamped(sender, stanza))
            return True
        if to.domain != self.table.host:
            raise StanzaError("remote-server-not-found", f"no server is known for {to.domain}")
        return False

    def _account(self, to: JID) -> Account | None:
        return self.table.accounts.get(to.local) if to.local is not None else None


def _address(sender: Sender, stanza: Incoming) -> JID:
    """Return the recipient; without ``to``, the client's own account (RFC 6120 §10.3)."""
    if stanza.to is None:
        return sender.jid.bare
    try:
        return JID.parse(stanza.to)
    except JIDError as error:
        raise StanzaError("jid-malformed", str(error)) from error


def _check_iq(stanza: Incoming) -> None:
    """Check RFC 6120 §8.2.3, as servers do before they pass on a request."""
    if stanza.type not in ("get", "set", "result", "error"):
        raise StanzaError("bad-request", "the type of an IQ is get, set, result or error")
    if stanza.id is None:
        raise StanzaError("bad-request", "an IQ has an id")
    if stanza.type in ("get", "set") and stanza.sole_child is None:
        raise StanzaError("bad-request", "an IQ of type get or set has exactly one child")


def stamped(sender: Sender, stanza: Incoming) -> str:
    """Return a stanza as XML, with the address of its sender."""
    # A component's address keeps its spelling; a client's is the bound JID.
    spelled = str(sender.jid) if sender.session is not None else stanza.sender
    return stanza.forward(from_=spelled or str(sender.jid))
