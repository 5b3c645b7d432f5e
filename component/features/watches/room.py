"""A room as one of its occupants sees it (XEP-0045): a state machine without I/O.

It is given the presence that the room sends, and says what that means: who has come, changed or
gone, that the agent has joined, or why it is not in the room.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec

from component.features.watches.watch import Observed
from component.link.messages.signals import Show
from xep.binding.escaping import escape_attribute, escape_text
from xep.muc import (
    AFFILIATION_LOST,
    BANNED,
    CREATED,
    KICKED,
    MEMBERS_ONLY,
    RENAMED,
    SELF,
    SHUTDOWN,
    TECHNICAL,
    Item,
    User,
)
from xep.stanza_error import StanzaError

What: TypeAlias = Literal["joined", "changed", "renamed", "left"]
"""What an occupant has done."""
Return: TypeAlias = Literal["soon", "later", "next session"]
"""When the agent joins a room again that it is not in."""

LEFT: Final = "left"
"""The version of an occupant who is not in the room."""

_REFUSALS: Final = {
    "conflict": "another occupant has the nickname {nick}: give the watch another one",
    "forbidden": "the agent is banned from the room",
    "item-not-found": "there is no such room, or it is locked",
    "jid-malformed": "the room does not accept the nickname {nick}",
    "not-acceptable": "the nickname {nick} must not be used there",
    "not-allowed": "the agent may not create the room",
    "not-authorized": "the room has a password",
    "registration-required": "only members may join: make the agent one",
    "service-unavailable": "the room is full or is not available",
}


class Occupant(msgspec.Struct, frozen=True, kw_only=True):
    """An occupant. `jid` is the bare real JID, empty where the room does not show it."""

    nick: str
    jid: str = ""
    affiliation: str = "none"
    role: str = "none"
    show: Show = "online"
    status: str = ""
    previous: str = ""

    @property
    def version(self) -> str:
        """A digest of everything but the text of the status."""
        parts = (self.nick, self.jid, self.affiliation, self.role, self.show)
        return sha256("\n".join(parts).encode()).hexdigest()[:32]


class RoomPresence(msgspec.Struct, frozen=True, kw_only=True):
    """A presence that a room has sent.

    Attributes:
        nick: the nickname of the occupant whose it is; empty for that of the room itself.
        user: what it says about the room.
        show: what the occupant shows; `offline` if the occupant leaves.
        status: the text of the status.
        error: why the agent could not join, if that is what it says.
    """

    nick: str
    user: User = User()
    show: Show = "online"
    status: str = ""
    error: StanzaError | None = None


class Moved(msgspec.Struct, frozen=True):
    """An occupant has entered, changed or left."""

    what: What
    occupant: Occupant


class Joined(msgspec.Struct, frozen=True):
    """The agent is in the room, together with these occupants. `created` says that there was no
    such room before.
    """

    occupants: tuple[Occupant, ...]
    created: bool = False


class Out(msgspec.Struct, frozen=True):
    """The agent is not in the room: why, as part of a sentence, and when it joins again."""

    reason: str
    again: Return
    refused: bool = False


Change: TypeAlias = Moved | Joined | Out


class Room:
    """What the agent sees of a room.

    Attributes:
        nick: the nickname of the agent.
        is_in: whether it has joined.
        occupants: the other occupants by nickname.
    """

    def __init__(self) -> None:
        self.nick = ""
        self.is_in = False
        self.occupants: dict[str, Occupant] = {}
        self._renamed: dict[str, str] = {}

    def join(self, nick: str) -> None:
        """Start joining under a nickname, and forget the previous state."""
        self.nick, self.is_in = nick, False
        self.occupants.clear()
        self._renamed.clear()

    def take(self, presence: RoomPresence) -> Sequence[Change]:
        """Process a presence, and return the resulting changes, in order."""
        if presence.error is not None:
            return () if self.is_in else (_refusal(presence.error, self.nick),)
        codes = presence.user.codes
        if SELF in codes or (presence.nick == self.nick and self.is_in):
            return self._own(presence, codes)
        if presence.show == "offline":
            return self._gone(presence, codes)
        occupant = _occupant(presence, self._renamed.pop(presence.nick, ""))
        before = self.occupants.get(presence.nick)
        self.occupants[presence.nick] = occupant
        if not self.is_in:  # one of those who are there when the agent joins
            return ()
        if before is None:
            return (Moved("renamed" if occupant.previous else "joined", occupant),)
        return (Moved("changed", occupant),) if occupant.version != before.version else ()

    def _own(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        if presence.show != "offline":
            self.nick = presence.nick  # the room may have chosen another one (status 210)
            self.occupants.pop(presence.nick, None)
            if self.is_in:
                return ()
            self.is_in = True
            return (Joined(tuple(self.occupants.values()), CREATED in codes),)
        if RENAMED in codes:
            self.nick = next((each.nick for each in presence.user.items if each.nick), self.nick)
            return ()
        self.is_in = False
        self.occupants.clear()
        return (_removal(presence.user, codes),)

    def _gone(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        before = self.occupants.pop(presence.nick, None)
        if RENAMED in codes:
            for item in presence.user.items:
                if item.nick:
                    self._renamed[item.nick] = presence.nick
            return ()
        if not self.is_in:
            return ()
        found = before or _occupant(presence, "")
        return (Moved("left", msgspec.structs.replace(found, show="offline")),)


def observed(what: What, occupant: Occupant, room: str) -> Observed:
    """Return an event of a room as a watch handles it: its item is the nickname."""
    members = {"event": what, **msgspec.structs.asdict(occupant)}
    shown = {name: value for name, value in members.items() if value and name != "status"}
    attributes = "".join(f" {name}='{escape_attribute(value)}'" for name, value in shown.items())
    return Observed(
        item=occupant.nick,
        version=LEFT if what == "left" else occupant.version,
        payload=(
            f"<presence xmlns='jabber:client' from='{escape_attribute(room)}'{attributes}>"
            f"{escape_text(occupant.status)}</presence>"
        ),
        publisher=occupant.jid,
        json=msgspec.Raw(msgspec.json.encode(members)),
    )


def _occupant(presence: RoomPresence, previous: str) -> Occupant:
    item = presence.user.items[0] if presence.user.items else Item()
    return Occupant(
        nick=presence.nick,
        jid="" if item.jid is None else str(item.jid.bare),
        affiliation=item.affiliation or "none",
        role=item.role or "none",
        show=presence.show,
        status=presence.status,
        previous=previous,
    )


def _refusal(error: StanzaError, nick: str) -> Out:
    known = _REFUSALS.get(error.condition, f"the room refused it ({error.condition})")
    reason = known.format(nick=nick)
    if error.text:
        reason = f"{reason} ({error.text})"
    is_over_soon = error.condition in ("remote-server-timeout", "remote-server-not-found")
    return Out(reason, "soon" if is_over_soon else "later", refused=not is_over_soon)


def _removal(user: User, codes: frozenset[int]) -> Out:
    """Return why the room has removed the agent (XEP-0045 §8.2, §9.1, §9.4, §10.9)."""
    item = user.items[0] if user.items else Item()
    by, said = "", ""
    if item.actor is not None:
        by = f" by {item.actor.nick or item.actor.jid or 'a moderator'}"
    if item.reason:
        said = f": {item.reason}"
    if user.destroy is not None:
        instead = f"; it is replaced by {user.destroy.jid}" if user.destroy.jid else ""
        why = f": {user.destroy.reason}" if user.destroy.reason else ""
        return Out(f"the room was destroyed{why}{instead}", "later")
    if BANNED in codes:
        return Out(f"the agent was banned{by}{said}", "next session", refused=True)
    if TECHNICAL in codes:
        return Out("the server removed the agent because of an error", "soon")
    if KICKED in codes:
        return Out(f"the agent was kicked{by}{said}", "next session", refused=True)
    if codes & {AFFILIATION_LOST, MEMBERS_ONLY}:
        return Out("only members may be in the room, and the agent is none", "later", refused=True)
    if SHUTDOWN in codes:
        return Out("the service of the room is shut down", "soon")
    return Out("the agent has left the room", "soon")
