"""What the agent has told people by itself becomes lines of their conversations.

It is recorded in the database until the next message of the conversation (`component.store.told`).
Its lines are written before that message, so a prompt grows only at its end.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from component.agent import history
from component.agent.run import Run
from component.conversations.lines import Told, rfc3339
from component.conversations.sessions import Sessions
from component.memory_directory.layout import SessionKey
from component.policy.taint import TAINTS, Taint, worst
from component.store import Storage, told
from component.store.database import Database
from component.zones import exact_time
from xep.jid import JID

_CONTEXT: Final = (
    "This is not from the person: you have sent it to {whom} by yourself. It was {when}. {about}"
)


class ToldMessages:
    """Takes what an agent has told people out of the database, for their conversations.

    Args:
        address_of: returns the address of an agent, by its name.
    """

    def __init__(
        self, storage: Storage, sessions: Sessions, address_of: Callable[[str], JID]
    ) -> None:
        self._storage = storage
        self._sessions = sessions
        self._address_of = address_of

    def are_waiting(self, database: Database, key: SessionKey) -> bool:
        """Return whether there are messages that a conversation does not have, or may have."""
        return told.is_any(database, self._address_of(key.agent), key.who)

    async def new(self, key: SessionKey) -> Sequence[told.ToldMessage]:
        """Return what a conversation does not have, the oldest first. What it has is deleted from
        the database. Raises StorageError.
        """
        at = self._address_of(key.agent)
        read = partial(told.of_conversation, agent=at, peer=key.who)
        found = await self._storage.read(read)
        known = await self._sessions.told(key, [one.id for one in found])
        for turn in {one.turn for one in found if one.turn} - known:
            if await self._sessions.turn(key, turn):
                known |= {one.id for one in found if one.turn == turn}
        await self.written(key, known)
        return [one for one in found if one.id not in known]

    async def written(self, key: SessionKey, ids: Collection[str]) -> None:
        """Delete messages that are in the conversation. Raises StorageError."""
        if ids:
            await self._delete(key, ids)

    async def forget(self, key: SessionKey) -> None:
        """Delete all that the conversation does not have, because it has ended. Raises
        StorageError.
        """
        await self._delete(key, None)

    async def _delete(self, key: SessionKey, ids: Collection[str] | None) -> None:
        at = self._address_of(key.agent)
        await self._storage.write(partial(told.delete, agent=at, peer=key.who, ids=ids))


def line_of(run: Run, message: told.ToldMessage, finding: str, most: int) -> Told:
    """Return the line of a message, of which the prompt shows `most` tokens."""
    when = exact_time(datetime.fromtimestamp(message.at / 1000, UTC), run.ask.profile.zone)
    whom = "this room" if run.about == "this room" else "the person"
    taints = authors_of(message)
    return Told(
        id=message.id,
        content=message.text,
        context=_CONTEXT.format(when=when, whom=whom, about=message.about),
        taint=worst(taints),
        taints=history.in_order(taints),
        shown=history.kept_characters(message.text, most, run.model.tokens),
        finding=finding,
        files=message.files,
        ts=rfc3339(message.at / 1000),
    )


def authors_of(message: told.ToldMessage) -> Sequence[Taint]:
    """Return the possible authors of a message."""
    return [taint for taint in TAINTS if taint in message.taints]
