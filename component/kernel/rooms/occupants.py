"""What an agent sees of a room, from the presence that the room sends (XEP-0045 §7.2).

`RoomView` is a state machine without I/O. Who an occupant is comes from presence only, because a
message can contain a forged `<occupant-id/>` or `<x/>`.
"""

from collections.abc import Container, Sequence
from hashlib import sha256
from itertools import count
from typing import Final, Literal, TypeAlias

import msgspec

from component.link.messages.signals import Show
from xep import muc
from xep.caps import Caps
from xep.hats import NAMESPACE as HATS
from xep.occupant_ids import NAMESPACE as OCCUPANT_IDS
from xep.stanza_error import StanzaError

What: TypeAlias = Literal["joined", "changed", "renamed", "left"]
"""What an occupant has done."""
Return: TypeAlias = Literal["soon", "later", "next session"]
"""When the agent joins a room again that it is not in."""

MOST_OCCUPANTS: Final = 20_000
"""Occupants of a room; others are not seen."""
_MOST_RENAMED: Final = 100
"""Occupants who have changed their nickname, and whose presence under the new one is to come."""
_LONGEST_STATUS: Final = 1_000
"""Characters of a status that are kept."""

_REFUSALS: Final = {
    "bad-request": (
        "the server does not accept the nickname {nick}",
        "Choose another nickname for the agent, without emoji.",
    ),
    "conflict": (
        "another occupant has the nickname {nick}",
        "Choose another nickname for the agent.",
    ),
    "forbidden": ("the agent is banned from the room", "Ask an owner of the room to lift the ban."),
    "item-not-found": ("there is no such room, or it is locked", "Correct the address."),
    "jid-malformed": (
        "the room does not accept the nickname {nick}",
        "Choose another nickname for the agent, without emoji.",
    ),
    "not-acceptable": (
        "the nickname {nick} must not be used there",
        "Choose the nickname that the room has reserved for the agent.",
    ),
    "not-allowed": (
        "the agent may not create the room",
        "Create the room, or correct its address.",
    ),
    "not-authorized": (
        "the room has a password, and the agent has none or another one",
        "Set the password of the room.",
    ),
    "registration-required": (
        "only members may join",
        "Ask an admin of the room to make the agent a member.",
    ),
    "service-unavailable": ("the room is full or is not available", ""),
}
"""Why a room does not let an agent in, and what an admin can do (XEP-0045 §7.2)."""


class RoomOccupant(msgspec.Struct, frozen=True, kw_only=True):
    """An occupant, as the room's presence shows it.

    Attributes:
        jid: the bare real JID; empty where the room does not show it.
        previous: the nickname before, of an occupant who has just changed it.
        occupant_id: the same under every nickname (XEP-0421); empty where the room gives none.
        hats: the URIs of the hats that the room gives it (XEP-0317); none where anybody can send
            hats.
        caps: the capabilities of its client (XEP-0115), as the client says.
        is_agent: whether it is known to be a program.
        visit: the same from its entry until it leaves, under every nickname, and never given to
            another occupant.
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
    caps: Caps | None = None
    is_agent: bool = False
    visit: int = 0

    @property
    def version(self) -> str:
        """A digest of what the room says, and the availability."""
        parts = (self.nick, self.jid, self.affiliation, self.role, self.show, *self.hats)
        return sha256("\n".join(parts).encode()).hexdigest()[:32]


def identity(occupant: RoomOccupant) -> str:
    """Return what identifies an occupant in its room, whatever its nickname is.

    Nobody else gets the same identity: it is made of what the room itself has said in presence.
    With an occupant id or a real JID, the identity is the same at each visit; otherwise each visit
    has another one. The first letters say which it is, so that an id which looks like a JID is not
    taken for one.
    """
    if occupant.occupant_id:
        return f"id:{occupant.occupant_id}"
    return f"jid:{occupant.jid}" if occupant.jid else f"visit:{occupant.visit}"


class RoomPresence(msgspec.Struct, frozen=True, kw_only=True):
    """A presence that a room has sent. `nick` is the nickname of the occupant whose it is; empty
    for that of the room itself. `error` says why the agent could not join.
    """

    nick: str
    user: muc.User = muc.User()
    show: Show = "online"
    status: str = ""
    occupant_id: str = ""
    hats: tuple[str, ...] = ()
    caps: Caps | None = None
    error: StanzaError | None = None


class Moved(msgspec.Struct, frozen=True):
    """An occupant has entered, changed or left."""

    what: What
    occupant: RoomOccupant


class Joined(msgspec.Struct, frozen=True):
    """The agent is in the room with these occupants. `created` says that the room is new."""

    occupants: tuple[RoomOccupant, ...]
    created: bool = False


class OwnChanged(msgspec.Struct, frozen=True):
    """The agent itself has another nickname, role or affiliation: it may have got or lost voice."""

    own: RoomOccupant


class Out(msgspec.Struct, frozen=True):
    """The agent is not in the room: why, as part of a sentence, and when it joins again. `refused`
    says that somebody does not want it there, or has to change something; `conflict`, that another
    occupant has the nickname. `advice` says what an admin can do, as a sentence.
    """

    reason: str
    again: Return
    refused: bool = False
    conflict: bool = False
    advice: str = ""


Change: TypeAlias = Moved | Joined | OwnChanged | Out


class RoomView:
    """What the agent sees of a room. `nick` is the nickname of the agent, `own` the agent as an
    occupant once it is in the room. `occupants` are the other occupants by nickname.

    Args:
        first_visit: the number of the first visit; others follow.
    """

    def __init__(self, first_visit: int = 0) -> None:
        self.nick = ""
        self.is_in = False
        self.own: RoomOccupant | None = None
        self.occupants: dict[str, RoomOccupant] = {}
        self._next = ""  # the nickname that the agent is about to have
        self._has_ids = False
        self._has_hats = False
        self._visits = count(first_visit)
        self._renamed: dict[str, RoomOccupant] = {}

    def supports(self, features: Container[str]) -> None:
        """Note the features of the room: what it does not announce, any client can forge."""
        self._has_ids = OCCUPANT_IDS in features
        self._has_hats = HATS in features

    def join(self, nick: str) -> None:
        """Start joining under a nickname, and forget the previous state."""
        self.nick, self.is_in, self.own, self._next = nick, False, None, ""
        self.occupants.clear()
        self._renamed.clear()

    def mark_agent(self, occupant: RoomOccupant) -> None:
        """Note that an occupant is a program, if it is still there."""
        found = self.occupants.get(occupant.nick)
        if found is not None and found.visit == occupant.visit:
            self.occupants[found.nick] = msgspec.structs.replace(found, is_agent=True)

    def take(self, presence: RoomPresence) -> Sequence[Change]:
        """Process a presence, and return the resulting changes, in order."""
        if presence.error is not None:
            # The room refuses the nickname that was asked for last. Once the agent is in, that was
            # another one than it has, and it keeps its own.
            is_ours = presence.nick in ("", self.nick) and not self.is_in
            return (_refusal(presence.error, self.nick),) if is_ours else ()
        codes = presence.user.codes
        is_other = self.is_in and presence.nick in self.occupants and presence.nick != self._next
        if presence.nick and (
            (muc.SELF in codes and not is_other) or (presence.nick == self.nick and self.is_in)
        ):
            return self._own(presence, codes)
        if presence.show == "offline":
            return self._gone(presence, codes)
        return self._there(presence)

    def _there(self, presence: RoomPresence) -> Sequence[Change]:
        if not presence.nick:  # the presence of the room itself
            return ()
        renamed = self._renamed.pop(presence.nick, None)
        before = self.occupants.get(presence.nick)
        if before is None and len(self.occupants) >= MOST_OCCUPANTS:
            return ()
        occupant = self._occupant(presence, renamed or before, renamed.nick if renamed else "")
        self.occupants[presence.nick] = occupant
        if not self.is_in:  # one of those who are there when the agent joins
            return ()
        if renamed is not None:
            return (Moved("renamed", occupant),)
        if before is None:
            return (Moved("joined", occupant),)
        return (Moved("changed", occupant),) if occupant.version != before.version else ()

    def _own(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        if presence.show != "offline":
            self.nick, self._next = presence.nick, ""  # the room may have chosen it (status 210)
            before = self.own
            self.own = own = self._occupant(presence, before)
            self.occupants.pop(presence.nick, None)
            if not self.is_in:
                self.is_in = True
                return (Joined(tuple(self.occupants.values()), muc.CREATED in codes),)
            is_same = before is not None and own.version == before.version
            return () if is_same else (OwnChanged(own),)
        if muc.RENAMED in codes:
            self._next = next((each.nick for each in presence.user.items if each.nick), "")
            return ()
        self.is_in, self.own = False, None
        self.occupants.clear()
        self._renamed.clear()
        return (_removal(presence.user, codes),)

    def _gone(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        before = self.occupants.pop(presence.nick, None)
        if before is None:
            return ()
        new = next((each.nick for each in presence.user.items if each.nick), None)
        if muc.RENAMED in codes and new is not None:
            if len(self._renamed) >= _MOST_RENAMED:
                self._renamed.clear()
            self._renamed[new] = before
            return ()
        return (Moved("left", msgspec.structs.replace(before, show="offline")),) * self.is_in

    def _occupant(
        self, presence: RoomPresence, before: RoomOccupant | None, previous: str = ""
    ) -> RoomOccupant:
        item = presence.user.items[0] if presence.user.items else muc.Item()
        return RoomOccupant(
            nick=presence.nick,
            jid="" if item.jid is None else str(item.jid.bare),
            affiliation=item.affiliation or "none",
            role=item.role or "none",
            show=presence.show,
            status=presence.status[:_LONGEST_STATUS],
            previous=previous,
            occupant_id=presence.occupant_id if self._has_ids else "",
            hats=presence.hats if self._has_hats else (),
            caps=presence.caps,
            is_agent=before is not None and before.is_agent,
            visit=next(self._visits) if before is None else before.visit,
        )


def missing(why: str = "there is no such room") -> Out:
    """Return that there is no room to join."""
    return Out(why, "later", advice="Create the room, or correct its address.")


def _refusal(error: StanzaError, nick: str) -> Out:
    unknown = f"the room refused it ({error.condition})", ""
    reason, advice = (each.format(nick=nick) for each in _REFUSALS.get(error.condition, unknown))
    if error.text:
        reason = f"{reason} ({error.text})"
    is_over_soon = error.condition in ("remote-server-timeout", "remote-server-not-found")
    return Out(
        reason,
        "soon" if is_over_soon else "later",
        refused=not is_over_soon,
        conflict=error.condition == "conflict",
        advice=advice,
    )


def _removal(user: muc.User, codes: frozenset[int]) -> Out:
    """Return why the room has removed the agent (XEP-0045 §8.2, §9.1, §9.4, §10.9)."""
    item = user.items[0] if user.items else muc.Item()
    by, said = "", ""
    if item.actor is not None:
        by = f" by {item.actor.nick or item.actor.jid or 'a moderator'}"
    if item.reason:
        said = f": {item.reason}"
    if user.destroy is not None:
        # The agent does not join the replacement: its address is chosen by the room's owner.
        instead = f"; it is replaced by {user.destroy.jid}" if user.destroy.jid else ""
        why = f": {user.destroy.reason}" if user.destroy.reason else ""
        return missing(f"the room was destroyed{why}{instead}")
    if muc.BANNED in codes:
        return Out(f"the agent was banned{by}{said}", "next session", refused=True, advice=_RETURN)
    if muc.TECHNICAL in codes:
        return Out("the server removed the agent because of an error", "soon")
    if muc.KICKED in codes:
        return Out(f"the agent was kicked{by}{said}", "next session", refused=True, advice=_RETURN)
    if codes & {muc.AFFILIATION_LOST, muc.MEMBERS_ONLY}:
        return Out(
            f"only members may be in the room, and the agent is none{said}",
            "later",
            refused=True,
            advice="Ask an admin of the room to make the agent a member.",
        )
    if muc.SHUTDOWN in codes:
        return Out("the service of the room is shut down", "soon")
    return Out("the agent has left the room", "soon")


_RETURN: Final = (
    "It stays out until it is invited again, or until the service connects again. If it is not"
    " wanted there, remove the room from the settings."
)
