"""The notifications of people on disk: those that are held, and those that were sent lately.

A recipient is a person as one agent sees them. Each instance looks at the recipients that are due,
and claims one for the time in which it sends (`take`): so of several instances one sends. What is
to be sent is decided and stored in the same transaction that claims, with the id of the message,
and marked as sent afterwards. If a process is killed in between, the next one sends the message
again under the same id.

All times are in milliseconds on the steady clock (`component.store.clock`), except `created`,
which people are shown.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from component import system
from component.agent_addresses import both_addresses
from component.store import told
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table
from component.store.storage import Storage
from xep.file_sharing import FileSharing
from xep.jid import JID

TABLES: Final = (
    Table(
        name="notifications",
        columns="""
            id TEXT {C} NOT NULL PRIMARY KEY,
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            priority INTEGER NOT NULL,
            title TEXT NOT NULL,
            text TEXT NOT NULL,
            created BIGINT NOT NULL,
            waits_online INTEGER NOT NULL,
            message TEXT {C},
            sent BIGINT,
            received INTEGER NOT NULL DEFAULT 0,
            repeated INTEGER NOT NULL DEFAULT 0,
            on_time INTEGER NOT NULL DEFAULT 0,
            files TEXT NOT NULL DEFAULT '[]',
            subject TEXT NOT NULL DEFAULT '{}',
            displayed INTEGER NOT NULL DEFAULT 0
        """,
        indexes={
            "notifications_recipient": "(agent, person, sent)",
            "notifications_message": "(message)",
            "notifications_sent": "(sent)",
        },
    ),
    Table(
        name="recipients",
        columns="""
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            look_at BIGINT,
            claimed BIGINT NOT NULL DEFAULT 0,
            token TEXT {C},
            dropped INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (agent, person)
        """,
        indexes={"recipients_look": "(look_at)"},
    ),
    Table(
        name="notification_preferences",
        columns="""
            person TEXT {C} NOT NULL PRIMARY KEY,
            quiet TEXT {C},
            zone TEXT {C},
            utc_offset INTEGER,
            urgent INTEGER NOT NULL DEFAULT 0,
            sends_receipts INTEGER NOT NULL DEFAULT 0
        """,
        kept="the person's preferences for all agents",
    ),
)


CHANNEL: Final = "notifications"
"""Notified when a recipient is due."""

Priority: TypeAlias = Literal["low", "normal", "high"]
PRIORITIES: Final[tuple[Priority, ...]] = ("low", "normal", "high")

_CLAIM_MS: Final = 30_000
"""So long one instance alone may send to a recipient."""
_KEPT_MS: Final = 7 * 24 * 3_600_000
"""So long a notification that was sent is kept, and not recorded a second time."""
LATELY_MS: Final = 25 * 3_600_000
"""So long a notification that was sent is among those of a `Recipient`."""
_SAME_MS: Final = 1_000
"""Notifications of one recipient that are recorded within so many milliseconds keep their order."""
_MOST_DELETED: Final = 1_000
_COLUMNS: Final = (
    "id, priority, title, text, created, waits_online, on_time, message, sent, received, repeated,"
    " files, subject, displayed"
)
_encode = msgspec.json.Encoder().encode
_decode_files = msgspec.json.Decoder(tuple[FileSharing, ...]).decode
_WHO: Final = "agent = ? AND person = ?"
_HELD: Final = "sent IS NULL AND message IS NULL"


class Subject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The subject of a notification.

    Attributes:
        matter: what it belongs to, such as `schedule tide`; the same for all results of one source.
        task: the id of the task whose outcome it tells.
        about: what it is, in one sentence for a model; empty if no model needs to know it.
        taints: the possible authors of its text (`component.policy.taint`).
        turn: the turn whose answer it is.
    """

    matter: str = ""
    task: str = ""
    about: str = ""
    taints: tuple[str, ...] = ()
    turn: str = ""


_NO_SUBJECT: Final = Subject()
_decode_subject = msgspec.json.Decoder(Subject).decode


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification of one person by one agent.

    Attributes:
        title: what it is about: the name of what started the work.
        files: what is sent after the text.
        created: when it was recorded, in milliseconds since 1970, UTC.
        waits_online: it is held until the person is online.
        on_time: the person has set its time, so quiet hours do not delay it.
        message: the id of the message that says it; None until that is decided.
        sent: when the message was sent; None until then.
        received: a client has sent a receipt.
        displayed: a client has displayed its message.
    """

    id: str
    agent: JID
    person: JID
    priority: Priority = "normal"
    title: str
    text: str
    created: int = 0
    waits_online: bool = False
    on_time: bool = False
    message: str | None = None
    sent: int | None = None
    received: bool = False
    repeated: bool = False
    files: tuple[FileSharing, ...] = ()
    subject: Subject = _NO_SUBJECT
    displayed: bool = False


class Preferences(msgspec.Struct, frozen=True):
    """What a person wants, and what is known of their clients.

    Attributes:
        quiet: hours as `22:00-07:00`; empty for none; None for those of the settings.
        zone: the time zone of these, by its name in the IANA database; None for that of the client.
        utc_offset: seconds by which the clock of the client differs from UTC, as it last said.
        urgent: notifications of high priority are sent in quiet hours, too.
        sends_receipts: a client of the person has sent a receipt for a notification.
    """

    quiet: str | None = None
    zone: str | None = None
    utc_offset: int | None = None
    urgent: bool = False
    sends_receipts: bool = False

    @property
    def client_offset(self) -> timedelta | None:
        """`utc_offset` as a difference of time."""
        return None if self.utc_offset is None else timedelta(seconds=self.utc_offset)


class Recipient(msgspec.Struct, frozen=True):
    """All that is needed to decide what a person is sent now: the time in milliseconds since 1970,
    UTC (`now`; after a jump forward only when it has held for a minute) and in milliseconds that do
    not jump (`steady`); the notifications that are held, are being sent, or were sent lately, the
    oldest first; and how many were dropped because too many were held.
    """

    now: int
    steady: int
    preferences: Preferences
    notifications: tuple[Notification, ...]
    dropped: int = 0


class PlannedMessage(msgspec.Struct, frozen=True):
    """A message to send.

    `ids` are its notifications; `is_repeat` says that it was sent before and no receipt came.
    """

    id: str
    ids: tuple[str, ...]
    is_repeat: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What a recipient is sent now, and after how many milliseconds to look again; None if nothing
    will be due by time alone.
    """

    messages: tuple[PlannedMessage, ...] = ()
    look_in: int | None = None


class Batch(msgspec.Struct, frozen=True):
    """What one instance has taken on to send to a person; `key` has the two addresses as text, and
    `token` is that of its claim.
    """

    agent: JID
    person: JID
    key: tuple[str, str]
    token: str
    recipient: Recipient
    plan: Plan


class NotificationStore:
    """The notifications in the database. Methods raise StorageError."""

    def __init__(self, storage: Storage, home: str = "", *, models_read: bool = False) -> None:
        """Keep them in this storage. `home` names the data directory of this process among those
        that share a database; only a process that sends needs one. With `models_read`, what is sent
        is recorded for the conversations as well (`component.store.told`).
        """
        self._storage = storage
        self._home = home
        self._models_read = models_read

    async def release_earlier(self) -> None:
        """Release the recipients that an earlier process of this data directory has claimed."""
        await self._storage.change(
            "UPDATE recipients SET claimed = 0, token = NULL WHERE token LIKE ?",
            (f"{self._home}.%",),
        )

    async def add(
        self,
        notifications: Sequence[Notification],
        most_held: int,
        also: Callable[[Database], object] | None = None,
    ) -> None:
        """Record notifications, each once. Beyond `most_held` for one recipient the least urgent
        and oldest ones are dropped, and counted. `also` makes another change in the same
        transaction.
        """

        def op(database: Database) -> None:
            for one in notifications:
                record(database, one, most_held)
            if also is not None:
                also(database)

        await self._storage.write(op)

    async def due(self, limit: int) -> tuple[list[tuple[JID, JID]], int | None]:
        """The agents and persons of recipients to look at now, and after how many milliseconds the
        next one is; None if there is none.
        """

        def op(database: Database) -> tuple[list[tuple[str, str]], int | None]:
            found = database.execute(
                "SELECT agent, person FROM recipients WHERE look_at <= ? AND claimed <= ?"
                " ORDER BY look_at LIMIT ?",
                (database.steady, database.steady, limit),
            ).fetchall()
            (next_,) = database.execute(
                "SELECT min(CASE WHEN claimed > look_at THEN claimed ELSE look_at END)"
                " FROM recipients WHERE look_at IS NOT NULL"
            ).fetchone() or (None,)
            return found, None if next_ is None else max(0, int(next_) - database.steady)

        found, next_in = await self._storage.read(op)
        return [(JID.parse(agent), JID.parse(person)) for agent, person in found], next_in

    async def take(
        self, agent: JID, person: JID, decide: Callable[[Recipient], Plan]
    ) -> Batch | None:
        """Decide what a recipient is sent now, and claim it for a while if that is something.

        `decide` may be called more than once. Returns None if another instance has the recipient,
        or if there is nothing to send.
        """
        key, token = _key(agent, person), f"{self._home}.{system.token_hex(16)}"

        def op(database: Database) -> Batch | None:
            claimed = database.execute(
                f"UPDATE recipients SET claimed = ?, token = ? WHERE {_WHO} AND claimed <= ?",  # noqa: S608 - constants
                (database.steady + _CLAIM_MS, token, *key, database.steady),
            )
            if not claimed.rowcount:
                return None
            recipient = _recipient(database, key)
            plan = decide(recipient)
            if self._models_read:
                _tell_models(database, recipient, plan)
            for message in plan.messages:
                for id_ in message.ids:
                    database.execute(
                        "UPDATE notifications SET message = ? WHERE id = ?", (message.id, id_)
                    )
            batch = Batch(agent, person, key, token, recipient, plan)
            if plan.messages:
                return batch
            _release(database, batch, _look_at(database, plan))
            return None

        return await self._storage.write(op)

    async def sent(self, batch: Batch, decide: Callable[[Recipient], Plan]) -> None:
        """All messages of a batch were sent: decide when to look at the recipient again."""

        def op(database: Database) -> None:
            # First, because it locks the recipient: what another instance records is then read
            # below, or wakes the recipient after this transaction.
            _count_dropped(database, batch.key, -batch.recipient.dropped)
            for message in batch.plan.messages:
                what = "repeated = 1" if message.is_repeat else "sent = ?"
                at = () if message.is_repeat else (database.steady,)
                database.execute(
                    f"UPDATE notifications SET {what} WHERE message = ?",  # noqa: S608 - constants
                    (*at, message.id),
                )
            plan = decide(_recipient(database, batch.key))
            _release(database, batch, _look_at(database, plan))
            _forget_old(database)

        await self._storage.write(op, keep_trying=True)

    async def release(self, batch: Batch, look_in: int) -> None:
        """A batch could not be sent: look again in so many milliseconds."""
        await self._storage.write(lambda db: _release(db, batch, db.steady + look_in))

    async def waiting_online(self) -> set[tuple[JID, JID]]:
        """The agents and persons of notifications that are held until the person is online."""
        found = await self._storage.select(
            "SELECT DISTINCT agent, person FROM notifications"
            " WHERE waits_online = 1 AND message IS NULL"
        )
        return {(JID.parse(agent), JID.parse(person)) for agent, person in found}

    async def online(self, agent: JID, person: JID) -> None:
        """A person is online: nothing is held for that any more."""
        key = _key(agent, person)

        def op(database: Database) -> None:
            changed = database.execute(
                f"UPDATE notifications SET waits_online = 0 WHERE {_WHO}"  # noqa: S608 - constants
                " AND waits_online = 1 AND message IS NULL",
                key,
            )
            if changed.rowcount:
                _wake(database, *key)
                database.notify(CHANNEL)

        await self._storage.write(op)

    async def received(self, person: JID, message: str) -> None:
        """A client of a person has sent a receipt for a message."""
        who = str(person.bare)

        def op(database: Database) -> None:
            changed = database.execute(
                "UPDATE notifications SET received = 1"
                " WHERE message = ? AND person = ? AND received = 0",
                (message, who),
            )
            if changed.rowcount:
                _set(database, who, {"sends_receipts": 1})

        await self._storage.write(op)

    # For the people themselves.

    async def held(self, person: JID | None, agent: JID | None = None) -> list[Notification]:
        """The notifications that are held for a person, or for everybody; the oldest first. Those
        that are being sent this moment are not among them.
        """
        where, values = _held(agent, person=person)
        found = await self._storage.select(
            f"SELECT agent, person, {_COLUMNS} FROM notifications WHERE {where}"  # noqa: S608 - constants
            " ORDER BY created, id",
            values,
        )
        return [_notification((row[0], row[1]), row[2:]) for row in found]

    async def drop(self, person: JID | None, id_: str | None, agent: JID | None = None) -> int:
        """Delete one held notification, or with None all, of a person or of everybody.

        Returns how many there were. What is being sent this moment is not deleted.
        """
        where, values = _held(agent, person=person, id=id_)
        return await self._storage.change(f"DELETE FROM notifications WHERE {where}", values)  # noqa: S608 - constants

    async def forget(self, agent: JID, person: JID) -> None:
        """Delete all notifications of a person by an agent, those that were sent as well."""
        who = Forgotten(agent="", address=agent, person=person)
        await self._storage.write(lambda database: forget(database, who))

    async def preferences(self, person: JID) -> Preferences:
        """What a person wants."""
        who = str(person.bare)
        return await self._storage.read(lambda database: _preferences(database, who))

    async def set_quiet(
        self, person: JID, quiet: str | None, zone: str | None, *, urgent: bool
    ) -> None:
        """Store the quiet hours of a person; see `Preferences`."""
        who = str(person.bare)

        def op(database: Database) -> None:
            _set(database, who, {"quiet": quiet, "zone": zone, "urgent": int(urgent)})
            database.execute(
                "UPDATE recipients SET look_at = ? WHERE person = ?", (database.steady, who)
            )
            database.notify(CHANNEL)

        await self._storage.write(op)

    async def set_utc_offset(self, person: JID, seconds: int) -> None:
        """Store by how many seconds the clock of a person differs from UTC, if that is new."""
        who = str(person.bare)
        if (await self.preferences(person)).utc_offset != seconds:
            await self._storage.write(lambda database: _set(database, who, {"utc_offset": seconds}))


def forget(database: Database, who: Forgotten) -> None:
    """Delete all notifications of a person by an agent, those that were sent as well."""
    for address in both_addresses(who.address):
        for table in ("notifications", "recipients"):
            database.execute(f"DELETE FROM {table} WHERE {_WHO}", _key(address, who.person))  # noqa: S608 - constants


def of_person(database: Database, agent: JID, person: JID) -> list[Notification]:
    """Return what an agent holds for a person, and what it has sent lately, the oldest first."""
    found = database.execute(
        f"SELECT agent, person, {_COLUMNS} FROM notifications"  # noqa: S608 - constants
        " WHERE person = ? AND agent IN (?, ?) AND (sent IS NULL OR sent > ?) ORDER BY created, id",
        (str(person.bare), *map(str, both_addresses(agent)), database.steady - _KEPT_MS),
    ).fetchall()
    return [_notification((row[0], row[1]), row[2:]) for row in found]


def mark_displayed(database: Database, person: JID, message: str) -> int | None:
    """Record that a client of a person has displayed a message. Return when it was sent, in
    milliseconds of the steady clock; None if it has no notification.
    """
    found = database.execute(
        "UPDATE notifications SET displayed = 1 WHERE message = ? AND person = ? RETURNING sent",
        (message, str(person.bare)),
    ).fetchall()
    times = [database.steady if sent is None else int(sent) for (sent,) in found]
    return max(times, default=None)


def record(database: Database, one: Notification, most_held: int) -> None:
    """Record a notification, once, as `NotificationStore.add` does."""
    key = _key(one.agent, one.person)
    made = database.execute(
        "INSERT INTO notifications"
        " (id, agent, person, priority, title, text, created, waits_online, on_time, files,"
        " subject)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (
            one.id,
            *key,
            PRIORITIES.index(one.priority),
            one.title,
            one.text,
            _created(database, key),
            int(one.waits_online),
            int(one.on_time),
            _encode(one.files).decode(),
            _encode(one.subject).decode(),
        ),
    )
    if made.rowcount:
        _wake(database, *key)
        _drop_surplus(database, key, most_held)
    database.notify(CHANNEL)


def _tell_models(database: Database, recipient: Recipient, plan: Plan) -> None:
    """Record a message to a person for the conversation, once."""
    planned = {id_ for message in plan.messages for id_ in message.ids}
    for one in recipient.notifications:
        subject = one.subject
        if one.id in planned and one.message is None and subject.about:
            said = told.ToldMessage(
                id=one.id,
                text=one.text,
                about=subject.about,
                taints=subject.taints,
                turn=subject.turn,
                files=one.files,
            )
            told.add(database, one.agent, one.person, said)


def _held(agent: JID | None, **values: JID | str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition on held notifications with these values, as far as they are given."""
    given = {name: value for name, value in values.items() if value is not None}
    where = "".join(f" AND {name} = ?" for name in given)
    texts = [str(value.bare) if isinstance(value, JID) else value for value in given.values()]
    if agent is not None:
        where += " AND agent IN (?, ?)"
        texts += map(str, both_addresses(agent))
    return f"{_HELD}{where}", tuple(texts)


def _key(agent: JID, person: JID) -> tuple[str, str]:
    return str(agent.bare), str(person.bare)


def _wake(database: Database, agent: str, person: str) -> None:
    database.execute(
        "INSERT INTO recipients (agent, person, look_at) VALUES (?, ?, ?)"
        " ON CONFLICT (agent, person) DO UPDATE SET look_at = excluded.look_at",
        (agent, person, database.steady),
    )


def _created(database: Database, recipient: tuple[str, str]) -> int:
    """The time now, later by a millisecond than that of a notification of the same millisecond: so
    they keep their order.
    """
    (last,) = database.execute(
        f"SELECT max(created) FROM notifications WHERE {_WHO} AND created BETWEEN ? AND ?",  # noqa: S608 - constants
        (*recipient, database.now, database.now + _SAME_MS),
    ).fetchone() or (None,)
    return database.now if last is None else int(last) + 1


def _drop_surplus(database: Database, key: tuple[str, str], most: int) -> None:
    held = f"FROM notifications WHERE {_WHO} AND {_HELD}"
    (count,) = database.execute(f"SELECT count(*) {held}", key).fetchone() or (0,)
    if count > most:
        dropped = database.execute(
            f"DELETE FROM notifications WHERE id IN (SELECT id {held}"  # noqa: S608 - constants
            " ORDER BY priority, created, id LIMIT ?)",
            (*key, count - most),
        )
        _count_dropped(database, key, dropped.rowcount)


def _count_dropped(database: Database, key: tuple[str, str], more: int) -> None:
    database.execute(
        f"UPDATE recipients SET dropped = dropped + ? WHERE {_WHO}",  # noqa: S608 - constants
        (more, *key),
    )


def _release(database: Database, batch: Batch, look_at: int | None) -> None:
    database.execute(
        f"UPDATE recipients SET claimed = 0, token = NULL, look_at = ? WHERE {_WHO} AND token = ?",  # noqa: S608 - constants
        (look_at, *batch.key, batch.token),
    )


def _look_at(database: Database, plan: Plan) -> int | None:
    """Return when to look at a recipient again; now, if there is something to send."""
    if plan.messages:
        return database.steady
    return None if plan.look_in is None else database.steady + plan.look_in


def _forget_old(database: Database) -> None:
    database.execute(
        "DELETE FROM notifications WHERE id IN"
        " (SELECT id FROM notifications WHERE sent <= ? LIMIT ?)",
        (database.steady - _KEPT_MS, _MOST_DELETED),
    )


def _recipient(database: Database, key: tuple[str, str]) -> Recipient:
    rows = database.execute(
        f"SELECT {_COLUMNS} FROM notifications WHERE {_WHO}"  # noqa: S608 - constants
        " AND (sent IS NULL OR sent > ?) ORDER BY created, id",
        (*key, database.steady - LATELY_MS),
    ).fetchall()
    (dropped,) = database.execute(
        f"SELECT dropped FROM recipients WHERE {_WHO}",  # noqa: S608 - constants
        key,
    ).fetchone() or (0,)
    return Recipient(
        now=database.settled,
        steady=database.steady,
        preferences=_preferences(database, key[1]),
        notifications=tuple(_notification(key, row) for row in rows),
        dropped=dropped,
    )


def _notification(key: tuple[str, str], row: Sequence[Any]) -> Notification:
    agent, person = map(JID.parse, key)
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    flags = ("waits_online", "on_time", "received", "repeated", "displayed")
    values |= {name: bool(values[name]) for name in flags}
    values["priority"] = PRIORITIES[values["priority"]]
    values["files"] = _decode_files(values["files"])
    values["subject"] = _decode_subject(values["subject"])
    return Notification(agent=agent, person=person, **values)


def _preferences(database: Database, person: str) -> Preferences:
    row = database.execute(
        "SELECT quiet, zone, utc_offset, urgent, sends_receipts FROM notification_preferences"
        " WHERE person = ?",
        (person,),
    ).fetchone()
    if row is None:
        return Preferences()
    quiet, zone, utc_offset, urgent, sends_receipts = row
    return Preferences(quiet, zone, utc_offset, bool(urgent), bool(sends_receipts))


def _set(database: Database, person: str, values: dict[str, str | int | None]) -> None:
    """Change some columns of a person's preferences."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    changes = ", ".join(f"{name} = excluded.{name}" for name in values)
    database.execute(
        f"INSERT INTO notification_preferences (person, {names}) VALUES (?, {marks})"  # noqa: S608 - constants
        f" ON CONFLICT (person) DO UPDATE SET {changes}",
        (person, *values.values()),
    )
