"""/forget deletes all that a person has started, or allowed, by rows of their own."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from component.app.schema import SCHEMA
from component.features.inbox import rows as inbox_rows
from component.features.objects import rows as object_rows
from component.features.objects.rows import ObjectRow, Space
from component.features.objects.stored import Author, Content, StoredObject
from component.features.rooms import rows as room_rows
from component.features.rooms.rows import RoomRow
from component.features.schedules import rows as schedule_rows
from component.features.schedules.rows import Definition, Origin, Schedule
from component.features.schedules.timing import Once
from component.features.shared_files import rows as file_rows
from component.features.shared_files.rows import SharedFile
from component.features.watches import rows as watch_rows
from component.features.watches.events import OfferedEvent, accept
from component.features.watches.watch import Observed, Watch
from component.features.webhooks import rows as reply_rows
from component.features.webhooks.rows import Reply
from component.kernel import started_work
from component.kernel.started_work import Started
from component.kernel.triggers import Trigger, Work
from component.store import Storage, notifications, told
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.notifications import Notification, NotificationStore
from component.tasks import standing_rows
from xep.jid import JID

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
JULIET = JID.parse("juliet@example.com")
ROMEO = JID.parse("romeo@example.com")
AT = datetime(2030, 1, 1, tzinfo=UTC)


FORGOTTEN = frozenset(table.name for table in SCHEMA.tables if not table.kept)


def test_the_tables_whose_rows_are_forgotten_are_known() -> None:
    assert {
        *(
            "agent_rooms",
            "archived_entries",
            "displayed_messages",
            "equal_approvals",
            "notifications",
            "object_types",
            "objects",
            "recipients",
            "schedules",
            "shared_files",
            "skill_memories",
            "standing_approvals",
            "started_work",
            "told_messages",
        ),
        *("watch_events", "watches", "webhook_replies"),
    } == FORGOTTEN


def work(person: JID, agent: str = "assistant") -> Work:
    return Work(agent=agent, principal=person, goal=f"secret of {person.local}")


def schedule(person: JID, name: str, origin: Origin, agent: str = "assistant") -> Schedule:
    definition = Definition(
        when="2030-01-01 00:00", zone="UTC", timing=Once(AT), work=work(person, agent)
    )
    id_ = f"{origin} {name} of {person.local}"
    return Schedule(id=id_, owner=person, name=name, origin=origin, definition=definition, due=AT)


def fill(database: Database, person: JID) -> None:
    for each in (
        schedule(person, "own", "person"),
        schedule(person, "proposed", "agent"),
        schedule(person, "declared", "settings"),
        schedule(person, "other", "person", "other"),
    ):
        assert schedule_rows.insert(database, each)
    watch = Watch(
        name="news",
        owner=str(person),
        agent="assistant",
        principal=person,
        service=JID.parse("pubsub.example"),
        node="news",
        goal=f"secret of {person.local}",
    )
    watch_rows.put(database, watch)
    room = f"{person.local}@rooms.example"
    room_rows.put(database, RoomRow(agent="assistant", room=room, inviter=str(person)))
    database.execute(
        "INSERT INTO skill_memories (skill, principal, name, value) VALUES ('s', ?, 'n', ?)",
        (str(person), f"secret of {person.local}"),
    )
    database.execute(
        "INSERT INTO equal_approvals (kind, basis, person, agent, approvals, latest)"
        " VALUES (?, '', ?, ?, 3, 0)",
        (f"kind of {person.local}", str(person), str(AGENT)),
    )
    database.execute(
        "INSERT INTO standing_approvals (id, kind, basis, person, agent, address, question, uses,"
        " until, granted) VALUES (?, ?, '', ?, ?, ?, ?, 1, ?, 0)",
        (
            *(f"approval of {person.local}", f"kind of {person.local}", str(person)),
            *(str(AGENT), str(AGENT), f"secret of {person.local}", 2**60),
        ),
    )
    file = SharedFile(
        *(f"file of {person.local}", "assistant", str(person)),
        *(f"secret of {person.local}", "text/plain", 1, "00" * 32, 2**60),
    )
    assert file_rows.insert(database, file, 100)
    space, by = Space("assistant", str(person)), Author(str(person))
    data = {"text": f"secret of {person.local}"}
    stored = Content(data=data, created=0, updated=0, creator=by, author=by)
    object_rows.lock(database, space, "note", "generation")
    object_rows.put(
        database, space, ObjectRow(StoredObject("note", "n", 1, 1, stored), 1, None, ())
    )
    reply = Reply(
        webhook="w",
        delivery=person.local or "",
        agent="assistant",
        principal=person,
        skill="s",
        params=msgspec.Raw(b"{}"),
        text="text",
        failed=f"secret of {person.local}",
    )
    reply_rows.add_reply(reply, database)
    event = OfferedEvent(Observed(item=f"{person.local}", version="1"), (watch.id,), b'{"a":1}')
    source = watch_rows.SourceRows(database, f"source of {person}")
    assert accept(source, [event], {watch.id: watch}, 5).starts == 1
    for state in ("told", "unsent_revision"):
        trigger = Trigger(source="schedule", name="s", key=f"{state} {person.local}")
        started_work.record(database, Started(trigger=trigger, work=work(person), task="t"))
        if state == "told":
            started_work.mark_passed_on(database, trigger, f"failure, secret of {person.local}")

    message = told.ToldMessage(id="n", text=f"secret of {person.local}", about="")
    told.add(database, AGENT, person, message)
    inbox_rows.archive(database, AGENT, person, ["n"], 1)
    shown = Notification(id=f"shown {person.local}", agent=AGENT, person=person, title="", text="")
    notifications.record(database, shown, 10)
    database.execute("UPDATE notifications SET message = 'm' WHERE id = ?", (shown.id,))
    assert inbox_rows.note_displayed(database, AGENT, person, "m", None)


def forget_juliet(database: Database) -> list[Schedule]:
    juliet = Forgotten(agent="assistant", address=AGENT, person=JULIET)
    notifications.forget(database, juliet)
    told.forget(database, juliet)
    inbox_rows.forget(database, juliet)
    started_work.forget(database, juliet)
    room_rows.forget(database, juliet)
    watch_rows.forget(database, juliet)
    standing_rows.forget_person(database, JULIET, AGENT)
    object_rows.forget(database, Space("assistant", str(JULIET)))
    reply_rows.forget(database, juliet)
    assert file_rows.forget(database, juliet) in (["file of juliet"], [])
    return schedule_rows.forget(database, JULIET, "assistant")


def content(database: Database, table: str) -> list[Any]:
    return database.execute(f"SELECT * FROM {table}").fetchall()


@pytest.mark.ports
async def test_what_is_held_for_a_person_is_deleted_and_that_of_others_is_not(
    storage: Storage,
) -> None:
    for person in (JULIET, ROMEO):
        await storage.write(lambda db, person=person: fill(db, person))
        held = Notification(
            id=f"{person.local}",
            agent=AGENT,
            person=person,
            title="t",
            text=f"secret of {person.local}",
        )
        await NotificationStore(storage).add([held], 10)
    before = {
        table: await storage.read(lambda db, table=table: content(db, table)) for table in FORGOTTEN
    }
    assert all(before.values()), "each table has rows of both"
    removed = await storage.write(forget_juliet)
    assert sorted(each.name for each in removed) == ["own", "proposed"]
    kept: list[Any] = []
    for table in FORGOTTEN:
        rows = await storage.read(lambda db, table=table: content(db, table))
        assert [row for row in rows if "romeo" in str(row)] == [
            row for row in before[table] if "romeo" in str(row)
        ]
        kept += [row for row in rows if "secret of juliet" in str(row)]
    # What the settings declare, another agent's, and what is still to be told.
    assert len(kept) == 3
    assert all(
        any(what in str(row) for what in ("declared", "other", "unsent_revision")) for row in kept
    )
    again = Trigger(source="schedule", name="s", key="told juliet")
    assert await storage.read(lambda db: started_work.is_recorded(db, again))
    assert await storage.write(started_work.ended)  # the others can still be read


async def test_a_person_of_whom_nothing_is_held(storage: Storage) -> None:
    assert not await storage.write(forget_juliet)
