"""XEP-0045 Multi-User Chat: the payloads of rooms, for occupants and those who are invited."""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.jid import JID

NAMESPACE: Final = "http://jabber.org/protocol/muc"
USER: Final = f"{NAMESPACE}#user"
OWNER: Final = f"{NAMESPACE}#owner"
ADMIN: Final = f"{NAMESPACE}#admin"

Affiliation: TypeAlias = Literal["owner", "admin", "member", "none", "outcast"]
"""What a room grants a person for longer than a visit (XEP-0045 §5.2)."""
Role: TypeAlias = Literal["moderator", "participant", "visitor", "none"]
"""What an occupant may do during a visit (XEP-0045 §5.1)."""

CONFIGURED: Final = 104
SELF: Final = 110
NON_ANONYMOUS: Final = 172
SEMI_ANONYMOUS: Final = 173
CREATED: Final = 201
BANNED: Final = 301
RENAMED: Final = 303
KICKED: Final = 307
AFFILIATION_LOST: Final = 321
MEMBERS_ONLY: Final = 322
SHUTDOWN: Final = 332
TECHNICAL: Final = 333
"""Status codes (XEP-0045 §15.6)."""


class History(Payload, frozen=True, kw_only=True):
    """How much of the discussion so far is wanted (XEP-0045 §7.2.14): at most `max_stanzas`
    messages, and only those since a time.
    """

    xml = Name(NAMESPACE, "history")

    max_stanzas: Annotated[int | None, Attr("maxstanzas")] = None
    since: Annotated[datetime | None, Attr()] = None


class Join(Payload, frozen=True, kw_only=True):
    """The wish to enter a room (XEP-0045 §7.2.2). Rooms repeat it in a refusal."""

    xml = Name(NAMESPACE, "x")

    history: Annotated[History | None, Child()] = None
    password: Annotated[str | None, TextChild()] = None


class Actor(Payload, frozen=True, kw_only=True):
    """Who has kicked or banned an occupant (XEP-0045 §8.2)."""

    xml = Name(USER, "actor")

    jid: Annotated[JID | None, Attr()] = None
    nick: Annotated[str | None, Attr()] = None


class Item(Payload, frozen=True, kw_only=True):
    """What an occupant is (XEP-0045 §7.2.2).

    ``jid`` is the real JID, where it may be seen; ``nick`` is the new nickname of one who changes
    it.
    """

    xml = Name(USER, "item")

    affiliation: Annotated[Affiliation | None, Attr()] = None
    role: Annotated[Role | None, Attr()] = None
    jid: Annotated[JID | None, Attr()] = None
    nick: Annotated[str | None, Attr()] = None
    actor: Annotated[Actor | None, Child()] = None
    reason: Annotated[str | None, TextChild()] = None


class Status(Payload, frozen=True, kw_only=True):
    """What has happened, as a number (XEP-0045 §15.6)."""

    xml = Name(USER, "status")

    code: Annotated[int, Attr()]


class Destroy(Payload, frozen=True, kw_only=True):
    """The room was destroyed (XEP-0045 §10.9); ``jid`` is a room that replaces it."""

    xml = Name(USER, "destroy")

    jid: Annotated[JID | None, Attr()] = None
    reason: Annotated[str | None, TextChild()] = None


class Invite(Payload, frozen=True, kw_only=True):
    """An invitation that a room passes on (XEP-0045 §7.8.2). ``from_`` has invited."""

    xml = Name(USER, "invite")

    from_: Annotated[JID | None, Attr("from")] = None
    to: Annotated[JID | None, Attr()] = None
    reason: Annotated[str | None, TextChild()] = None


class Decline(Payload, frozen=True, kw_only=True):
    """The refusal of an invitation, for the room to pass on (XEP-0045 §7.8.2)."""

    xml = Name(USER, "decline")

    from_: Annotated[JID | None, Attr("from")] = None
    to: Annotated[JID | None, Attr()] = None
    reason: Annotated[str | None, TextChild()] = None


class User(Payload, frozen=True, kw_only=True):
    """What the presence of an occupant says about the room (XEP-0045 §7.2.2). In messages, it marks
    private messages of occupants, and has invitations (§7.5, §7.8.2).
    """

    xml = Name(USER, "x")

    items: Annotated[tuple[Item, ...], Child(malformed="drop")] = ()
    statuses: Annotated[tuple[Status, ...], Child(malformed="drop")] = ()
    destroy: Annotated[Destroy | None, Child()] = None
    invites: Annotated[tuple[Invite, ...], Child(malformed="drop")] = ()
    decline: Annotated[Decline | None, Child(malformed="drop")] = None

    @property
    def codes(self) -> frozenset[int]:
        """The status codes."""
        return frozenset(each.code for each in self.statuses)


class OwnerDestroy(Payload, frozen=True, kw_only=True):
    """The wish of an owner to destroy the room (XEP-0045 §10.9)."""

    xml = Name(OWNER, "destroy")


class OwnerQuery(Payload, frozen=True, kw_only=True):
    """What an owner wants done with the room (XEP-0045 §10)."""

    xml = Name(OWNER, "query")

    destroy: Annotated[OwnerDestroy | None, Child()] = None


class AdminItem(Payload, frozen=True, kw_only=True):
    """A person with an affiliation (XEP-0045 §9.5), or in a query the affiliation alone."""

    xml = Name(ADMIN, "item")

    affiliation: Annotated[Affiliation | None, Attr()] = None
    jid: Annotated[JID | None, Attr()] = None


class AdminQuery(Payload, frozen=True, kw_only=True):
    """A query for those with an affiliation, and its result (XEP-0045 §9.5)."""

    xml = Name(ADMIN, "query")

    items: Annotated[tuple[AdminItem, ...], Child(malformed="drop")] = ()
