"""What applies to each room of an agent: the settings, and what commands and invitations have
changed.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import msgspec

from component.features.rooms.rows import RoomRow
from component.features.rooms.settings import Answer, Conversing, Invitations, RoomEntry
from component.policy.globs import pattern
from xep.jid import JID

Key: TypeAlias = tuple[str, JID]
"""The name of an agent, and the bare address of a room."""


class RoomOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to one agent in one room.

    Attributes:
        section: the section of the settings that applies.
        nick: the nickname that is wanted; empty if any will do.
        principal: whose rights occupants without a known account have.
        people: patterns of those who may give commands; none for owners and admins of the room.
        inviter: the bare JID of the person because of whom the agent is there; None for others.
        is_declared: whether it is a room of the settings.
        password: that of the room; empty for none.
    """

    agent: str
    room: JID
    section: Conversing
    nick: str
    answer: Answer
    persona: str
    principal: JID
    people: tuple[str, ...] = ()
    inviter: JID | None = None
    is_declared: bool = True
    password: str = ""

    @property
    def key(self) -> Key:
        """The agent and the room."""
        return self.agent, self.room

    def vouches(self, account: JID) -> bool:
        """Return whether the room counts when it says that an occupant has this account.

        A room could name anybody. Its server can speak for accounts of the same operator.
        """
        if self.section.accounts == "all":
            return True
        above = self.room.domain.partition(".")[2]
        return self.section.accounts == "server" and account.domain in (self.room.domain, above)

    def names(self, account: JID) -> bool:
        """Return whether somebody is among the people who may give commands."""
        return pattern(self.people).fullmatch(str(account.bare)) is not None


def all_options(
    entries: Iterable[RoomEntry], invitations: Invitations, rows: Iterable[RoomRow]
) -> Mapping[Key, RoomOptions]:
    """Return what applies to each room that agents are to be in."""
    found = {(each.agent, JID.parse(each.jid)): _declared(each) for each in entries}
    for row in rows:
        key = row.agent, JID.parse(row.room)
        options = found.pop(key, None) or _invited(key, invitations)
        if row.is_left:
            continue
        found[key] = msgspec.structs.replace(
            options,
            nick=row.nick or options.nick,
            answer=cast("Answer", row.answer or options.answer),
            persona=row.persona or options.persona,
            password=row.password or options.password,
            inviter=JID.parse(row.inviter) if row.inviter else None,
        )
    return found


def _declared(entry: RoomEntry) -> RoomOptions:
    room = JID.parse(entry.jid)
    return RoomOptions(
        agent=entry.agent,
        room=room,
        section=entry,
        nick=entry.nick,
        answer=entry.answer,
        persona=entry.persona,
        principal=JID.parse(entry.principal) if entry.principal else room,
        people=entry.people,
        password=entry.password.get_secret_value(),
    )


def _invited(key: Key, invitations: Invitations) -> RoomOptions:
    agent, room = key
    return RoomOptions(
        agent=agent,
        room=room,
        section=invitations,
        nick="",
        answer=invitations.answer,
        persona=invitations.persona,
        principal=room,
        is_declared=False,
    )
