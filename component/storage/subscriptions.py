"""Presence subscriptions between the agents and their contacts.

Nobody keeps a roster for a component, so it keeps its own side of each subscription (RFC 6121 §3)
and announces itself to its subscribers after each connect.
"""

from typing import Literal

import msgspec

from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.storage import Storage
from xep.jid import JID, JIDError

SubscriptionState = Literal["none", "from", "to", "both"]
"""Seen from the agent, as a roster says it (RFC 6121 §2.1.2.5): `from` means that the contact
receives the agent's presence, `to` that the agent receives the contact's, `both` and `none` what
they say."""


class Subscription(msgspec.Struct, frozen=True):
    """One agent's side of a subscription."""

    owner: JID
    """Bare JID of the agent, or of the domain itself."""
    contact: JID
    """Bare JID of the other side."""
    state: SubscriptionState
    ask: bool = False
    """Whether the agent has asked for the contact's presence and waits for the answer."""


class SubscriptionStore:
    """The subscriptions on disk. Every method raises StorageError if the disk refuses."""

    def __init__(self, storage: Storage) -> None:
        """Keep them in this storage, which must be open while the store is used."""
        self._storage = storage

    async def put(self, subscription: Subscription) -> None:
        """Add it, or put it in the place of the one between the same two."""
        row = (
            str(subscription.owner.bare),
            str(subscription.contact.bare),
            subscription.state,
            int(subscription.ask),
        )

        def work(database: Database) -> None:
            database.execute(
                "INSERT INTO subscriptions (owner, contact, state, ask) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (owner, contact)"
                " DO UPDATE SET state = excluded.state, ask = excluded.ask",
                row,
            )

        await self._storage.write(work)

    async def remove(self, owner: JID, contact: JID) -> bool:
        """Forget what is between the two; return whether there was anything."""
        key = (str(owner.bare), str(contact.bare))

        def work(database: Database) -> bool:
            done = database.execute(
                "DELETE FROM subscriptions WHERE owner = ? AND contact = ?", key
            )
            return done.rowcount > 0

        return await self._storage.write(work)

    async def get(self, owner: JID, contact: JID) -> Subscription | None:
        """Return what is between the two, or None."""
        found = await self._select(
            "WHERE owner = ? AND contact = ?", str(owner.bare), str(contact.bare)
        )
        return found[0] if found else None

    async def of_owner(self, owner: JID) -> list[Subscription]:
        """Return all of one agent, in the order of the contacts' text."""
        return await self._select("WHERE owner = ? ORDER BY contact", str(owner.bare))

    async def all(self) -> list[Subscription]:
        """Return all there are, in the order of the owners' and the contacts' text."""
        return await self._select("ORDER BY owner, contact")

    async def _select(self, which: str, *values: str) -> list[Subscription]:
        query = f"SELECT owner, contact, state, ask FROM subscriptions {which}"  # noqa: S608 ours

        def work(database: Database) -> list[Subscription]:
            return [_subscription(*row) for row in database.execute(query, values).fetchall()]

        return await self._storage.read(work)


def _subscription(owner: str, contact: str, state: SubscriptionState, ask: int) -> Subscription:
    try:
        return Subscription(JID.parse(owner), JID.parse(contact), state, bool(ask))
    except JIDError as error:
        raise StorageError(
            f"The table subscriptions of the database holds {owner!r} and {contact!r}, which are"
            f" not both addresses: {error} Delete that row, which no release has written."
        ) from error
