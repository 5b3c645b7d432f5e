"""The contacts and presence subscriptions of one account (RFC 6121 §2, §3), in memory."""

from dataclasses import dataclass
from typing import Literal

from xep.jid import JID
from xep.roster import RosterItem, Subscription
from xep.stanza_error import StanzaError

MAX_CONTACTS = 1000
"""Maximum number of contacts of one account, and of pending requests to it."""

Subscribing = Literal["subscribe", "subscribed", "unsubscribe", "unsubscribed"]


@dataclass(slots=True)
class Contact:
    """A contact of an account.

    Attributes:
        sees: the account receives the contact's presence (``to``).
        seen_by: the contact receives the account's presence (``from``).
        asked: the account waits for the contact's answer (pending out).
    """

    name: str | None = None
    groups: tuple[str, ...] = ()
    sees: bool = False
    seen_by: bool = False
    asked: bool = False

    def item(self, jid: JID) -> RosterItem:
        """Return the roster item."""
        both: Subscription = "both" if self.seen_by else "to"
        return RosterItem(
            jid=jid,
            name=self.name,
            groups=self.groups,
            subscription=both if self.sees else ("from" if self.seen_by else "none"),
            ask="subscribe" if self.asked else None,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """The effects of a subscription stanza.

    Attributes:
        passes: it is forwarded to the contact, or to the account's resources.
        push: the contact's new item, if the roster changed.
        answer: the automatic answer on behalf of the account.
    """

    passes: bool
    push: RosterItem | None = None
    answer: Subscribing | None = None


class Roster:
    """The contacts of one account. The states are those of RFC 6121 appendix A.

    Attributes:
        contacts: by bare JID.
        requests: subscription requests that wait for the account's answer (pending in): the
            stanza as XML, by the bare JID that asks.
    """

    def __init__(self) -> None:
        self.contacts: dict[JID, Contact] = {}
        self.requests: dict[JID, str] = {}

    def items(self) -> tuple[RosterItem, ...]:
        """Return all roster items."""
        return tuple(contact.item(jid) for jid, contact in self.contacts.items())

    def sees(self, jid: JID) -> bool:
        """Return whether the account receives the presence of ``jid``, a bare JID."""
        contact = self.contacts.get(jid)
        return contact is not None and contact.sees

    def seen_by(self, jid: JID) -> bool:
        """Return whether ``jid``, a bare JID, receives the account's presence."""
        contact = self.contacts.get(jid)
        return contact is not None and contact.seen_by

    def set(self, item: RosterItem) -> RosterItem:
        """Add a contact or change its name and groups (RFC 6121 §2.3, §2.4); return the push.

        Raises:
            StanzaError: ``resource-constraint``, the roster is full.
        """
        contact = self._contact(item.jid.bare)
        contact.name, contact.groups = item.name, item.groups
        return contact.item(item.jid.bare)

    def remove(self, jid: JID) -> list[Subscribing]:
        """Remove a contact (RFC 6121 §2.5); return the presence types to send to it.

        Raises:
            StanzaError: ``item-not-found``, there is no such contact.
        """
        contact = self.contacts.pop(jid, None)
        if contact is None:
            raise StanzaError("item-not-found", f"{jid} is not in the roster")
        told: list[Subscribing] = []
        if contact.sees or contact.asked:
            told.append("unsubscribe")
        asked = self.requests.pop(jid, None) is not None
        if contact.seen_by or asked:
            told.append("unsubscribed")
        return told

    def send(self, type_: Subscribing, jid: JID) -> Change:
        """The account sends a subscription stanza to ``jid``, a bare JID (RFC 6121 A.2).

        Raises:
            StanzaError: ``resource-constraint``, the roster is full.
        """
        if type_ in ("subscribe", "subscribed"):
            if type_ == "subscribe":
                contact = self._contact(jid)
                contact.asked = not contact.sees
                return Change(passes=True, push=contact.item(jid))
            # Without a request there is nothing to approve, and the contact must not be informed.
            if jid not in self.requests:
                return Change(passes=False)
            contact = self._contact(jid)
            contact.seen_by = True
            del self.requests[jid]
            return Change(passes=True, push=contact.item(jid))
        asked = self.requests.pop(jid, None) if type_ == "unsubscribed" else None
        found = self.contacts.get(jid)
        if found is None:
            return Change(passes=asked is not None)
        if type_ == "unsubscribe":
            found.sees = found.asked = False
        else:
            found.seen_by = False
        return Change(passes=True, push=found.item(jid))

    def receive(self, type_: Subscribing, jid: JID, xml: str = "") -> Change:
        """``jid``, a bare JID, sends the account a subscription stanza (RFC 6121 A.3).

        ``xml`` is the stanza; a request is stored for resources that connect later.
        """
        contact = self.contacts.get(jid)
        match type_:
            case "subscribe":
                if contact is not None and contact.seen_by:
                    return Change(passes=False, answer="subscribed")
                new = jid not in self.requests
                if new and len(self.requests) >= MAX_CONTACTS:
                    return Change(passes=False)
                self.requests[jid] = xml
                return Change(passes=new)
            case "unsubscribe":
                asked = self.requests.pop(jid, None) is not None
                if contact is None or not contact.seen_by:
                    return Change(passes=asked)
                contact.seen_by = False
            case "subscribed":
                if contact is None or not contact.asked:
                    return Change(passes=False)
                contact.sees, contact.asked = True, False
            case "unsubscribed":
                if contact is None or not (contact.sees or contact.asked):
                    return Change(passes=False)
                contact.sees = contact.asked = False
        return Change(passes=True, push=contact.item(jid))

    def _contact(self, jid: JID) -> Contact:
        contact = self.contacts.get(jid)
        if contact is None:
            if len(self.contacts) >= MAX_CONTACTS:
                raise StanzaError(
                    "resource-constraint", f"a roster holds at most {MAX_CONTACTS} contacts"
                )
            contact = self.contacts[jid] = Contact()
        return contact
