"""What an agent sees of a room, from the presence that the room sends (XEP-0045 §7.2).

`RoomView` is a state machine without I/O. Who an occupant is comes from presence only, because a
message can contain a forged `<occupant-id/>` or `<x/>`.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec

from component.link.messages.signals import Show
from xep import muc
from xep.stanza_error import StanzaError

What: TypeAlias = Literal["joined", "changed", "renamed", "left"]
"""What an occupant has done."""
Return: TypeAlias = Literal["soon", "later", "next session"]
"""When the agent joins a room again that it is not in."""

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


class RoomOccupant(msgspec.Struct, frozen=True, kw_only=True):
    """An occupant, as the room's presence shows it.

    Attributes:
        jid: the bare real JID; empty where the room does not show it.
        previous: the nickname before, of an occupant who has just changed it.
        occupant_id: the same under every nickname (XEP-0421); empty where the room gives none.
        hats: the URIs of the hats that the room gives it (XEP-0317).
        is_agent: whether its client says that it is a program.
        visit: tells two visits under one nickname apart: it is another number after each entry.
    """

    nick: str
    jid: str = ""
    affiliation: str = "none"
    role: str = "none"
    show: Show = "online"
    status: str = ""
    previous: str = ""
    occupant_id: str = ""
    hats: tuple[str, ...] = ()
    is_agent: bool = False
    visit: int = 0

    @property
    def version(self) -> str:
        """A digest of everything but the text of the status."""
        parts = (self.nick, self.jid, self.affiliation, self.role, self.show)
        return sha256("\n".join(parts).encode()).hexdigest()[:32]


class RoomPresence(msgspec.Struct, frozen=True, kw_only=True):
    """A presence that a room has sent. `nick` is the nickname of the occupant whose it is; empty
    for that of the room itself. `error` says why the agent could not join.
    """

    nick: str
    user: muc.User = muc.User()
    show: Show = "online"
    status: str = ""
    error: StanzaError | None = None


class Moved(msgspec.Struct, frozen=True):
    """An occupant has entered, changed or left."""

    what: What
    occupant: RoomOccupant


class Joined(msgspec.Struct, frozen=True):
    """The agent is in the room with these occupants. `created` says that the room is new."""

    occupants: tuple[RoomOccupant, ...]
    created: bool = False


class Out(msgspec.Struct, frozen=True):
    """The agent is not in the room: why, as part of a sentence, and when it joins again."""

    reason: str
    again: Return
    refused: bool = False


Change: TypeAlias = Moved | Joined | Out


class RoomView:
    """What the agent sees of a room. `nick` is the nickname of the agent, `own` the agent as an
    occupant once it is in the room. `occupants` are the other occupants by nickname.
    """

    def __init__(self) -> None:
        self.nick = ""
        self.is_in = False
        self.own: RoomOccupant | None = None
        self.occupants: dict[str, RoomOccupant] = {}
        self._renamed: dict[str, str] = {}

    def join(self, nick: str) -> None:
        """Start joining under a nickname, and forget the previous state."""
        self.nick, self.is_in, self.own = nick, False, None
        self.occupants.clear()
        self._renamed.clear()

    def take(self, presence: RoomPresence) -> Sequence[Change]:
        """Process a presence, and return the resulting changes, in order."""
        if presence.error is not None:
            return () if self.is_in else (_refusal(presence.error, self.nick),)
        codes = presence.user.codes
        if muc.SELF in codes or (presence.nick == self.nick and self.is_in):
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
            self.own = _occupant(presence, "")
            self.occupants.pop(presence.nick, None)
            if self.is_in:
                return ()
            self.is_in = True
            return (Joined(tuple(self.occupants.values()), muc.CREATED in codes),)
        if muc.RENAMED in codes:
            self.nick = next((each.nick for each in presence.user.items if each.nick), self.nick)
            return ()
        self.is_in, self.own = False, None
        self.occupants.clear()
        return (_removal(presence.user, codes),)

    def _gone(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        before = self.occupants.pop(presence.nick, None)
        if muc.RENAMED in codes:
            for item in presence.user.items:
                if item.nick:
                    self._renamed[item.nick] = presence.nick
            return ()
        if not self.is_in:
            return ()
        found = before or _occupant(presence, "")
        return (Moved("left", msgspec.structs.replace(found, show="offline")),)


def _occupant(presence: RoomPresence, previous: str) -> RoomOccupant:
    item = presence.user.items[0] if presence.user.items else muc.Item()
    return RoomOccupant(
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


def _removal(user: muc.User, codes: frozenset[int]) -> Out:
    """Return why the room has removed the agent (XEP-0045 §8.2, §9.1, §9.4, §10.9)."""
    item = user.items[0] if user.items else muc.Item()
    by, said = "", ""
    if item.actor is not None:
        by = f" by {item.actor.nick or item.actor.jid or 'a moderator'}"
    if item.reason:
        said = f": {item.reason}"
    if user.destroy is not None:
        instead = f"; it is replaced by {user.destroy.jid}" if user.destroy.jid else ""
        why = f": {user.destroy.reason}" if user.destroy.reason else ""
        return Out(f"the room was destroyed{why}{instead}", "later")
    if muc.BANNED in codes:
        return Out(f"the agent was banned{by}{said}", "next session", refused=True)
    if muc.TECHNICAL in codes:
        return Out("the server removed the agent because of an error", "soon")
    if muc.KICKED in codes:
        return Out(f"the agent was kicked{by}{said}", "next session", refused=True)
    if codes & {muc.AFFILIATION_LOST, muc.MEMBERS_ONLY}:
        return Out("only members may be in the room, and the agent is none", "later", refused=True)
    if muc.SHUTDOWN in codes:
        return Out("the service of the room is shut down", "soon")
    return Out("the agent has left the room", "soon")
