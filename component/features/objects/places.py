"""Whose objects a person may use: her own, those of a room, and those of scopes.

The scopes are those of memories (`[[memory.scopes]]`), with the same members and writers.
"""

from collections.abc import Callable, Collection
from typing import Final

from component.features.objects.rows import Space
from component.features.objects.stored import ObjectError
from component.memory.sharing import PRIVATE, Sharing
from component.memory_directory.layout import SessionKey
from xep.jid import JID, JIDError

_SCOPE: Final = "scope:"
"""Begins the owner of what a scope has. No address has a colon there."""


class Places:
    """Where objects are, and who may read and change them.

    Args:
        accounts_in: returns the accounts that the presence of a room shows to an agent.
    """

    def __init__(
        self, sharing: Sharing, accounts_in: Callable[[str, JID], Collection[str]]
    ) -> None:
        self._sharing = sharing
        self._accounts_in = accounts_in

    def space(self, whose: SessionKey, scope: str = PRIVATE, *, writes: bool = False) -> Space:
        """Return where the objects of a scope are; `private` is the person or the room itself. A
        sub-agent has those of its agent. Raises ObjectError.
        """
        whose = SessionKey(whose.agent.partition("/")[0], whose.who)
        if scope == PRIVATE:
            return Space(whose.agent, str(whose.who))
        place = self._sharing.place(scope, whose)
        if place is None:
            names = ", ".join(each.scope for each in self._sharing.visible(whose))
            raise ObjectError(
                f"There is no scope {scope[:80]!r} here. There are: {names}.", "scope"
            )
        if writes and not place.may_write:
            raise ObjectError(f"The objects of {scope} are for you to read only.", "scope")
        return Space(whose.agent, f"{_SCOPE}{scope}")

    def spaces(self, whose: SessionKey) -> list[Space]:
        """Return where all objects are that a person may read, her own first."""
        return [self.space(whose, each.scope) for each in self._sharing.visible(whose)]

    def of_node(self, agent: str, name: str, reader: JID | None) -> Space | None:
        """Return where the objects of a node are, by the part of its name that says whose they are:
        the address of a person or a room, or the name of a scope. None if `reader`, a bare JID,
        may not read them. None as the reader is the agent itself, which may read all.
        """
        if "@" not in name:
            whose = None if reader is None else SessionKey(agent, reader)
            if whose is not None and (name == PRIVATE or self._sharing.place(name, whose) is None):
                return None
            return Space(agent, f"{_SCOPE}{name}")
        try:
            owner = JID.parse(name)
        except JIDError:
            return None
        if owner.resource is not None or str(owner) != name:
            return None
        if reader not in (None, owner) and str(reader) not in self._accounts_in(agent, owner):
            return None
        return Space(agent, name)


def is_shared(space: Space) -> bool:
    """Return whether the objects are those of a scope, and have several authors."""
    return space.owner.startswith(_SCOPE)


def node_part(space: Space) -> str | None:
    """Return the part of the name of a node that says whose objects it has. None for those who have
    no nodes: an occupant of a room, whose nickname can be that of another one later, and a service.
    """
    owner = space.owner
    if is_shared(space):
        return owner.removeprefix(_SCOPE)
    return owner if "@" in owner and "/" not in owner else None
