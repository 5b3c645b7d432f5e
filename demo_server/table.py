"""The routing table: accounts with their sessions, and components with their links."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from demo_server.roster import Roster
from xep.jid import JID, JIDError
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import StreamError

MAX_SESSIONS = 100
"""Maximum number of concurrent sessions of one account."""


class Link(Protocol):
    """The connection to a client or component. Methods do not wait: a peer that does not read is
    disconnected.
    """

    def send(self, xml: str) -> None:
        """Queue a stanza."""

    def close(self, error: StreamError) -> None:
        """End the stream with ``error`` after what is queued."""


@dataclass(slots=True, eq=False)
class Session:
    """A client with a bound resource.

    Attributes:
        jid: its full JID.
        presence: its last available presence; None before the first and after unavailable.
        priority: the priority of that presence (RFC 6121 §4.7.2.3).
        interested: whether it has requested the roster, so that it gets pushes (RFC 6121 §2.2).
        directed: addresses that were sent directed presence (RFC 6121 §4.6).
    """

    jid: JID
    link: Link
    presence: Incoming | None = None
    priority: int = 0
    interested: bool = False
    directed: set[JID] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Account:
    """An account of the host: its bare JID, its contacts, its sessions by resource."""

    jid: JID
    roster: Roster = field(default_factory=Roster)
    sessions: dict[str, Session] = field(default_factory=dict)

    @property
    def available(self) -> list[Session]:
        """The sessions that have sent available presence."""
        return [session for session in self.sessions.values() if session.presence is not None]


class Table:
    """The addresses of one host and of the components beside it.

    Args:
        host: the domain of the server and its accounts.
        accounts: localparts, prepared.
        components: domains that components may serve, prepared.
    """

    def __init__(self, host: str, accounts: Iterable[str], components: Iterable[str]) -> None:
        self.host = host
        self.accounts = {name: Account(JID(name, host)) for name in accounts}
        self.components: dict[str, Link | None] = dict.fromkeys(components)

    def account_of(self, session: Session) -> Account:
        """Return the account that ``session`` belongs to."""
        return self.accounts[session.jid.local or ""]

    def find_session(self, jid: JID) -> Session | None:
        """Return the session with this full JID on this host."""
        account = self.accounts.get(jid.local or "") if jid.domain == self.host else None
        return account.sessions.get(jid.resource or "") if account else None

    def address(self, name: str, resource: str | None) -> JID:
        """Return the full JID of account ``name`` with ``resource``; None generates a resource.

        Raises:
            StanzaError: ``bad-request`` for an invalid resource.
        """
        try:
            return JID(name, self.host).with_resource(resource or uuid4().hex[:12])
        except JIDError as error:
            raise StanzaError("bad-request", str(error)) from error

    def bind(self, jid: JID, link: Link) -> Session:
        """Bind ``link`` to ``jid``, a full JID of an account that no session has.

        Raises:
            StanzaError: ``resource-constraint`` when the account has too many sessions.
        """
        sessions = self.accounts[jid.local or ""].sessions
        if len(sessions) >= MAX_SESSIONS:
            text = f"an account has at most {MAX_SESSIONS} sessions"
            raise StanzaError("resource-constraint", text)
        session = sessions[jid.resource or ""] = Session(jid, link)
        return session

    def unbind(self, session: Session) -> None:
        """Remove ``session``, unless another has replaced it."""
        sessions = self.account_of(session).sessions
        resource = session.jid.resource or ""
        if sessions.get(resource) is session:
            del sessions[resource]
