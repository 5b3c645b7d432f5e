"""Contacts of the agents: presence subscriptions, who wants no messages, and which address of the
default agent each uses.
"""

from collections.abc import Callable, Collection
from typing import Final, Literal

import anyio
import msgspec

from component.store.database import Database
from component.store.errors import StorageError
from component.store.storage import Storage
from xep.jid import JID, JIDError

SubscriptionState = Literal["none", "from", "to", "both"]
"""The state from the agent's side (RFC 6121 §2.1.2.5): `from` means that the contact
receives the agent's presence, `to` that the agent receives the contact's."""


_HOUR_MS: Final = 3_600_000
_PAUSES_MS: Final = tuple(_HOUR_MS * hours for hours in (1, 6, 24, 7 * 24, 30 * 24))
"""How long no presence is sent to a contact after each failure in a row. After one more failure,
none is sent until the contact sends something."""
_NEVER: Final = 2**62
_COLUMNS: Final = "owner, contact, state, ask, failures"


class Subscription(msgspec.Struct, frozen=True):
    """One agent's side of a subscription."""

    owner: JID
    """Bare JID of the agent, or of the domain itself."""
    contact: JID
    """Bare JID of the other side."""
    state: SubscriptionState
    ask: bool = False
    """Whether the agent has asked for the contact's presence and waits for the answer."""
    failures: int = 0
    """How many times in a row presence was returned with an error."""


class SubscriptionStore:
    """The subscriptions in the database. Methods raise StorageError."""

    def __init__(self, storage: Storage) -> None:
        """Use this storage, which must be open while the store is used."""
        self._storage = storage

    async def put(self, subscription: Subscription) -> None:
        """Insert it, or replace the one with the same owner and contact.

        `failures` is not stored: a contact that has just sent something has none.
        """
        key = _key(subscription.owner, subscription.contact)
        await self._storage.change(
            "INSERT INTO subscriptions (owner, contact, state, ask) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (owner, contact) DO UPDATE SET state = excluded.state,"
            " ask = excluded.ask, failures = 0, silent_until = NULL",
            (*key, subscription.state, int(subscription.ask)),
        )

    async def remove(self, owner: JID, contact: JID) -> bool:
        """Delete a subscription; return whether it existed."""
        count = await self._storage.change(
            "DELETE FROM subscriptions WHERE owner = ? AND contact = ?", _key(owner, contact)
        )
        return count > 0

    async def get(self, owner: JID, contact: JID) -> Subscription | None:
        """Return a subscription, or None."""
        found = await self._storage.select(
            f"SELECT {_COLUMNS} FROM subscriptions WHERE owner = ? AND contact = ?",  # noqa: S608 - a constant
            _key(owner, contact),
        )
        return _subscription(*found[0]) if found else None

    async def receivers(
        self, after: Subscription | None = None, limit: int = 1_000
    ) -> list[Subscription]:
        """Return a page of subscriptions whose contact receives presence, in a fixed order.

        Contacts whose servers return presence with errors are skipped for a while (`failed`).

        Args:
            after: the last one of the previous page; None for the first page.
        """
        owner, contact = ("", "") if after is None else (str(after.owner), str(after.contact))

        def work(database: Database) -> list[Subscription]:
            rows = database.execute(
                f"SELECT {_COLUMNS} FROM subscriptions WHERE (owner, contact) > (?, ?)"  # noqa: S608 - a constant
                " AND state IN ('from', 'both') AND (silent_until IS NULL OR silent_until <= ?)"
                " ORDER BY owner, contact LIMIT ?",
                (owner, contact, database.now, limit),
            )
            return [_subscription(*row) for row in rows.fetchall()]

        return await self._storage.read(work)

    async def failed(self, owner: JID, contact: JID, *, for_good: bool) -> bool:
        """Note that presence to the contact was returned with an error.

        No presence is sent to the contact for an hour, and for longer with each failure in a row,
        up to 30 days; then, or immediately if the error is permanent (`for_good`), until it sends
        something (`heard`, `put`). Returns whether the latter applies now; False if there is no
        subscription.
        """
        key = _key(owner, contact)

        def work(database: Database) -> bool:
            found = database.execute(
                "SELECT failures FROM subscriptions WHERE owner = ? AND contact = ?", key
            ).fetchone()
            if found is None:
                return False
            failures = int(found[0])
            gone = for_good or failures >= len(_PAUSES_MS)
            until = _NEVER if gone else database.now + _PAUSES_MS[failures]
            database.execute(
                "UPDATE subscriptions SET failures = ?, silent_until = ?"
                " WHERE owner = ? AND contact = ?",
                (min(failures + 1, len(_PAUSES_MS)), until, *key),
            )
            return gone

        return await self._storage.write(work)

    async def reachable(self, owner: JID, contact: JID) -> None:
        """Note that the contact can be reached, so presence is sent to it again."""
        await self._storage.change(
            "UPDATE subscriptions SET failures = 0, silent_until = NULL"
            " WHERE owner = ? AND contact = ?",
            _key(owner, contact),
        )


def _key(owner: JID, contact: JID) -> tuple[str, str]:
    return str(owner.bare), str(contact.bare)


def _subscription(
    owner: str, contact: str, state: SubscriptionState, ask: int, failures: int
) -> Subscription:
    try:
        return Subscription(JID.parse(owner), JID.parse(contact), state, bool(ask), failures)
    except JIDError as error:
        raise StorageError(
            f"The table subscriptions of the database contains {owner!r} and {contact!r}, which are"
            f" not both valid addresses: {error} Delete that row, which no release has written."
        ) from error


class StoppedContacts:
    """The contacts that have stopped messages, in the database and cached in memory.

    Until `load` has returned, all contacts count as stopped. `reload` is called when another
    instance has changed them.

    Args:
        agent: maps an address of the component to the bare address that stands for its agent.
    """

    def __init__(
        self, storage: Storage, agent: Callable[[JID], JID] = lambda address: address.bare
    ) -> None:
        self._storage = storage
        self._agent = agent
        self._stopped: set[tuple[JID, JID]] | None = None
        self._one_at_a_time = anyio.Lock()

    async def load(self) -> None:
        """Load the stopped contacts. Raises StorageError."""
        async with self._one_at_a_time:  # concurrent changes must not be lost
            found = await self._storage.select("SELECT owner, contact FROM stopped")
            self._stopped = {(JID.parse(owner), JID.parse(contact)) for owner, contact in found}

    async def reload(self, subjects: Collection[str] | None = None) -> None:
        """Reload these subjects, or all with None. Raises StorageError.

        A subject is the address of the agent and that of the contact, separated by a space.
        """
        if subjects is None or self._stopped is None:
            await self.load()
            return
        pairs = [map(JID.parse, subject.split(" ")) for subject in subjects]
        keys = [(owner, contact) for owner, contact in pairs]

        def work(database: Database) -> list[bool]:
            return [
                database.execute(
                    "SELECT 1 FROM stopped WHERE owner = ? AND contact = ?", _key(*key)
                ).fetchone()
                is not None
                for key in keys
            ]

        async with self._one_at_a_time:
            for key, is_stopped in zip(keys, await self._storage.read(work), strict=True):
                if is_stopped:
                    self._stopped.add(key)
                else:
                    self._stopped.discard(key)

    def may_write(self, agent: JID, contact: JID) -> bool:
        """Whether this address may send unsolicited messages to the contact."""
        return self._stopped is not None and self._key(agent, contact) not in self._stopped

    async def stop(self, agent: JID, contact: JID) -> None:
        """Stop messages from the agent to the contact. Raises StorageError.

        This takes effect immediately, even if it cannot be stored.
        """
        key = self._key(agent, contact)
        if self._stopped is not None:
            self._stopped.add(key)
        async with self._one_at_a_time:
            if self._stopped is not None:
                self._stopped.add(key)  # again, in case of a concurrent load
            await self._storage.change(
                "INSERT INTO stopped (owner, contact) VALUES (?, ?) ON CONFLICT DO NOTHING",
                _key(*key),
            )

    async def start(self, agent: JID, contact: JID) -> None:
        """Allow messages from the agent to the contact again. Raises StorageError."""
        key = self._key(agent, contact)
        async with self._one_at_a_time:
            await self._storage.change(
                "DELETE FROM stopped WHERE owner = ? AND contact = ?", _key(*key)
            )
            if self._stopped is not None:
                self._stopped.discard(key)

    def _key(self, agent: JID, contact: JID) -> tuple[JID, JID]:
        return self._agent(agent), contact.bare


class LastAddresses:
    """The address at which each contact last reached the default agent, which has two; in the
    database and cached in memory. `reload` is called at the start, and when another instance has
    changed some.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._last: dict[str, str] = {}
        self._one_at_a_time = anyio.Lock()

    async def reload(self, contacts: Collection[str] | None = None) -> None:
        """Reload those of these contacts, or all with None. Raises StorageError."""
        sql = "SELECT contact, address FROM last_addresses"
        async with self._one_at_a_time:  # what is read must not be older than what is put
            if contacts is None:
                self._last.update(await self._storage.select(sql))
            for contact in contacts or ():
                found = await self._storage.select(f"{sql} WHERE contact = ?", (contact,))
                self._last.update(found)

    def get(self, contact: JID) -> JID | None:
        """Return the address that a contact last used; None if there is none."""
        found = self._last.get(str(contact.bare))
        return None if found is None else JID.parse(found)

    async def put(self, contact: JID, address: JID) -> None:
        """Record the address that a contact uses. Raises StorageError."""
        key = _key(contact, address)
        if self._last.get(key[0]) == key[1]:
            return
        async with self._one_at_a_time:
            await self._storage.change(
                "INSERT INTO last_addresses (contact, address) VALUES (?, ?)"
                " ON CONFLICT (contact) DO UPDATE SET address = excluded.address",
                key,
            )
            self._last[key[0]] = key[1]
