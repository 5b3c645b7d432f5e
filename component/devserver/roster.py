"""The contacts of one account and who may see whom (RFC 6121 §2, §3), in memory."""

from dataclasses import dataclass
from typing import Annotated, Literal

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.jid import JID
from xep.stanza_error import StanzaError

NAMESPACE = "jabber:iq:roster"
MAX_CONTACTS = 1000
"""Contacts of one account, and requests that wait for its answer: memory stays bounded."""

Subscription = Literal["none", "to", "from", "both", "remove"]
Subscribing = Literal["subscribe", "subscribed", "unsubscribe", "unsubscribed"]


class RosterItem(Payload, frozen=True, kw_only=True):
    """A contact on the wire (RFC 6121 §2.1.2)."""

    xml = Name(NAMESPACE, "item")

    jid: Annotated[JID, Attr()]
    name: Annotated[str | None, Attr()] = None
    subscription: Annotated[Subscription | None, Attr()] = None
    ask: Annotated[Literal["subscribe"] | None, Attr()] = None
    groups: Annotated[tuple[str, ...], TextChild("group")] = ()


class RosterQuery(Payload, frozen=True, kw_only=True):
    """A roster or a change of it (RFC 6121 §2.1.1)."""

    xml = Name(NAMESPACE, "query")

    ver: Annotated[str | None, Attr()] = None
    items: Annotated[tuple[RosterItem, ...], Child()] = ()


@dataclass(slots=True)
class Contact:
    """What an account keeps of a contact.

    Attributes:
        sees: the account is told the contact's presence (``to``).
        seen_by: the contact is told the account's presence (``from``).
        asked: the account waits for the contact's answer (pending out).
    """

    name: str | None = None
    groups: tuple[str, ...] = ()
    sees: bool = False
    seen_by: bool = False
    asked: bool = False

    def item(self, jid: JID) -> RosterItem:
        """As it stands in a roster."""
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
    """What follows from a subscription stanza.

    Attributes:
        passes: it goes on: to the contact, or to the account's resources.
        push: the contact's new item, when the roster changed.
        answer: the account's side answers at once, without asking anybody.
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
        """All contacts as they stand in a roster."""
        return tuple(contact.item(jid) for jid, contact in self.contacts.items())

    def sees(self, jid: JID) -> bool:
        """Whether the account is told the presence of ``jid``, a bare JID."""
        contact = self.contacts.get(jid)
        return contact is not None and contact.sees

    def seen_by(self, jid: JID) -> bool:
        """Whether ``jid``, a bare JID, is told the account's presence."""
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
        """Forget a contact (RFC 6121 §2.5); return what the contact has to be told.

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
            # Nobody asked: there is nothing to approve, and the contact must not hear of it.
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

        ``xml`` is the stanza, kept for resources that come later when it is a request.
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
