"""The command `/forget` in the database: each feature deletes the rows of its own tables."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from component.store.database import Database
from xep.jid import JID


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A person whose rows are deleted, as far as they belong to one agent: a bare JID, or the full
    one of an occupant of a room (`SessionKey.who`), to whom nothing of the room belongs.
    """

    agent: str
    address: JID
    person: JID


Forget: TypeAlias = Callable[[Database, Forgotten], Callable[[], None] | None]
"""Deletes the rows within a transaction, and returns what is called after the commit."""


def forget(
    forgets: Sequence[Forget], database: Database, *, who: Forgotten
) -> list[Callable[[], None]]:
    """Delete the rows of a person in all tables; return what is called after the commit."""
    return [after for each in forgets if (after := each(database, who)) is not None]
