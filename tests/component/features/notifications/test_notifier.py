"""Results on their way to people, with real databases and a stream of the test."""

import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from component.app.schema import SCHEMA
from component.config.work import Notifications
from component.features.notifications.notifier import Ended, Notifier
from component.features.notifications.plan import MESSAGE_PREFIX
from component.kernel.triggers import Trigger, Work
from component.link.messages.inbound import Account, InboundMessage, ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import conversation_with
from component.store import Storage
from component.store.database import Database
from component.store.notifications import (
    Notification,
    NotificationStore,
    Plan,
    PlannedMessage,
    Recipient,
    Subject,
)
from component.store.told import of_conversation
from tests.component.link.router.wire import ListOutput
from tests.waiting import eventually
from xep.jid import JID
from xep.stanza import Presence

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example.com")
JULIET = JID.parse("juliet@example.com")
ROMEO = JID.parse("romeo@example.com")
OPEN = Notifications(quiet="")
Open = Callable[..., AbstractAsyncContextManager[Storage]]


class Stream:
    """What a notifier is connected to."""

    def __init__(self) -> None:
        self.output = ListOutput()
        self.messenger = Messenger(self.output)
        self.is_connected = True
        self.unwilling: set[JID] = set()
        self.probed: list[tuple[JID, JID]] = []

    def notifier(self, storage: Storage, limits: Notifications = OPEN) -> Notifier:
        kernel: Any = SimpleNamespace(
            storage=storage,
            environment=SimpleNamespace(home=str(storage.directory)),
            agents=SimpleNamespace(),
            on_notifications=[],
            settings=SimpleNamespace(notifications=limits, agent=SimpleNamespace(zone="UTC")),
            stream=SimpleNamespace(
                addresses=SimpleNamespace(
                    address_of=lambda name: JID.parse(f"{name}@agent.example.com")
                ),
                messenger=self.messenger,
                is_connected=lambda: self.is_connected,
                send=self._probe,
                flush=lambda: None,
            ),
            contacts=SimpleNamespace(
                may_write=lambda _agent, person: person not in self.unwilling,
                address_of=lambda name, _person, at=None: at or JID(name, "agent.example.com"),
            ),
        )
        made = Notifier(kernel)
        self.messenger.listen(made.message_received)
        return made

    def _probe(self, presence: Presence) -> None:
        assert presence.type == "probe"
        assert presence.from_ is not None
        assert presence.to is not None
        self.probed.append((presence.from_, presence.to))

    async def sends(self, count: int) -> list[str]:
        """Wait until so many stanzas were sent in all."""
        await eventually(lambda: len(self.output.sent) >= count)
        return self.output.sent


@asynccontextmanager
async def running(*notifiers: Notifier) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        for one in notifiers:
            await group.start(one.run)
        yield
        group.cancel_scope.cancel()


def work(**options: Any) -> Work:
    return Work(**({"agent": "assistant", "principal": JULIET, "skill": "report"} | options))


def trigger(key: str = "1", name: str = "deployments") -> Trigger:
    return Trigger(source="webhook", name=name, key=key)


def receipt(of: str) -> InboundMessage:
    return InboundMessage(
        id="r",
        type="chat",
        sender=JID.parse(f"{JULIET}/phone"),
        principal=JULIET,
        actor=Account(JULIET),
        conversation=conversation_with(AGENT, JULIET),
        reply_to=ReplyAddress(str(JULIET), AGENT),
        received=of,
    )


def ids(stanzas: list[str]) -> list[str]:
    return [re.findall(r"<message[^>]* id=['\"]([^'\"]+)", stanza)[0] for stanza in stanzas]


SUBJECT = Subject(about="A webhook has run report.")


async def sent_rows(storage: Storage) -> list[Any]:
    def op(database: Any) -> list[Any]:
        found: list[Any] = database.execute(
            "SELECT message FROM notifications WHERE sent IS NOT NULL"
        ).fetchall()
        return found

    return await storage.read(op)


async def is_recorded(storage: Storage, count: int) -> None:
    async def so() -> bool:
        return len(await sent_rows(storage)) >= count

    await eventually(so)


async def record(
    notifier: Notifier, work: Work, trigger: Trigger, *ended: Any
) -> Sequence[Notification]:
    notifications = notifier.notifications_of(work, trigger, Ended(*ended), SUBJECT)
    await notifier.record(notifications)
    return notifications


@pytest.mark.ports
async def test_a_result_goes_to_each_who_is_told_once(storage: Storage) -> None:
    stream = Stream()
    notifier = stream.notifier(storage)
    async with running(notifier):
        what = work(tell=(JULIET, ROMEO, JULIET))
        await record(notifier, what, trigger(), "completed", "**All** is well.")
        await record(notifier, what, trigger(), "completed", "**All** is well.")
        sent = await stream.sends(2)
        await is_recorded(storage, 2)
        await record(notifier, what, trigger(), "completed", "**All** is well.")
        await record(notifier, work(), trigger("2"), "completed", "Again.")
        await stream.sends(3)
    assert sorted(re.findall(r" to=['\"]([^'\"]+)", stanza)[0] for stanza in sent[:2]) == [
        str(JULIET),
        str(ROMEO),
    ]
    assert "*All* is well." in sent[0]
    assert "urn:xmpp:receipts" in sent[0]  # a receipt is asked for
    assert len(stream.output.sent) == 3


async def test_templates_and_silence(storage: Storage) -> None:
    stream = Stream()
    notifier = stream.notifier(storage)
    async with running(notifier):
        await record(notifier, work(silent=True), trigger("0"), "completed", "no")
        await record(notifier, work(), trigger("1"), "completed", "  ")
        template = "$name ($source, $agent): $first_line costs $$5"
        done = work(template=template)
        await record(notifier, done, trigger("2"), "completed", "one\ntwo")
        (stanza,) = await stream.sends(1)
    assert "<body>deployments (webhook, assistant): one costs $5</body>" in stanza


async def test_a_person_who_stopped_messages_gets_no_notification(storage: Storage) -> None:
    stream = Stream()
    stream.is_connected = False
    notifier = stream.notifier(storage)
    async with running(notifier):
        await record(notifier, work(), trigger("before"), "completed", "held")
        stream.unwilling.add(JULIET)
        await record(notifier, work(), trigger("after"), "completed", "withheld")
        await record(notifier, work(tell=(ROMEO,)), trigger("other"), "completed", "hello")
        stream.is_connected = True
        notifier.connected()
        (stanza,) = await stream.sends(1)

        async def so() -> bool:
            return not await notifier.store.held(JULIET)

        await eventually(so)
    assert str(ROMEO) in stanza


@pytest.mark.ports
async def test_too_many_become_a_digest(storage: Storage) -> None:
    stream = Stream()
    stream.is_connected = False
    notifier = stream.notifier(storage, Notifications(quiet="", per_window=3))
    async with running(notifier):
        for number in range(10):
            priority = "high" if number == 7 else "normal"
            one = work(priority=priority)
            await record(notifier, one, trigger(f"{number}"), "completed", f"text {number}")
        stream.is_connected = True
        notifier.connected()
        sent = await stream.sends(3)
        await is_recorded(storage, 10)
    assert "<body>text 7</body>" in sent[0]  # the urgent one comes first
    assert "8 notifications:" in sent[2]
    assert all(f"text {number}" in sent[2] for number in (1, 2, 9))


@pytest.mark.ports
async def test_what_is_held_for_quiet_hours_survives_a_restart(open_storage: Open) -> None:
    begin = datetime.now(UTC) - timedelta(hours=1)
    night = Notifications(quiet=f"{begin:%H:%M}-{begin + timedelta(hours=3):%H:%M}")
    stream = Stream()
    async with open_storage() as storage:
        notifier = stream.notifier(storage, night)
        async with running(notifier):
            await record(notifier, work(), trigger("1"), "completed", "good night")
            await record(notifier, work(priority="high"), trigger("2"), "completed", "wake up")
            await record(
                notifier, work(tell=(ROMEO,), priority="high"), trigger("3"), "completed", "x"
            )
            await notifier.store.set_quiet(ROMEO, None, None, urgent=True)
            await stream.sends(1)
            await is_recorded(storage, 1)
    assert str(ROMEO) in stream.output.sent[0]
    async with open_storage() as storage:
        notifier = stream.notifier(storage, night)
        async with running(notifier):
            assert len(await notifier.store.held(JULIET)) == 2
            # Where she is it is another time of the day, says her client.
            notifier.zone_learned(JULIET, timezone(timedelta(hours=11)))

            async def so() -> bool:
                return (await notifier.store.preferences(JULIET)).utc_offset is not None

            await eventually(so)
            await notifier.store.set_quiet(JULIET, None, None, urgent=False)
            notifier.wake()
            await stream.sends(3)
    assert len(stream.output.sent) == 3


@pytest.mark.ports
async def test_a_result_waits_until_its_person_is_online(open_storage: Open) -> None:
    stream = Stream()
    async with open_storage() as storage:
        notifier = stream.notifier(storage)
        async with running(notifier):
            await record(notifier, work(deliver="online"), trigger(), "completed", "welcome")
            await record(notifier, work(tell=(ROMEO,)), trigger("2"), "completed", "now")
            await stream.sends(1)
            await is_recorded(storage, 1)
        assert stream.probed == [(AGENT, JULIET)]
    async with open_storage() as storage:
        notifier = stream.notifier(storage)
        async with running(notifier):
            notifier.connected()
            assert stream.probed[1:] == [(AGENT, JULIET)]
            notifier.online(AGENT, JID.parse(f"{JULIET}/phone"))
            sent = await stream.sends(2)
    assert "welcome" in sent[1]


async def test_who_was_heard_just_now_is_online(storage: Storage) -> None:
    stream = Stream()
    notifier = stream.notifier(storage)
    async with running(notifier):
        stream.messenger.receive(receipt("anything"))
        await record(notifier, work(deliver="online"), trigger(), "completed", "at once")
        await stream.sends(1)


@pytest.mark.ports
async def test_a_notification_is_sent_again_after_a_kill_under_the_same_id(
    open_storage: Open,
) -> None:
    """It is sent again at once when the instance is back, under the same id."""
    stream = Stream()
    stream.output.holds = True  # the server never takes it
    async with open_storage() as storage:
        notifier = stream.notifier(storage)
        async with running(notifier):
            await record(notifier, work(), trigger(), "completed", "hello")
            await stream.sends(1)
    stream.output.holds = False
    stream.is_connected = False
    async with open_storage() as storage:
        assert await claims(storage) == 1
        async with running(notifier := stream.notifier(storage)):
            assert await claims(storage) == 0
            stream.is_connected = True
            notifier.connected()
            sent = await stream.sends(2)
            await is_recorded(storage, 1)
    assert len(set(ids(sent))) == 1


@pytest.mark.ports
async def test_a_recipient_that_another_instance_has_claimed_is_left_to_it(
    tmp_path: Path, migrated_url: str
) -> None:
    stream = Stream()
    stream.output.holds = True
    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "two", postgres=migrated_url) as two,
    ):
        first = stream.notifier(one)
        async with running(first):
            await record(first, work(), trigger(), "completed", "hello")
            await stream.sends(1)
            async with running(stream.notifier(two)):
                assert await claims(two) == 1


async def claims(storage: Storage) -> int:
    """How many recipients are claimed."""

    def op(database: Any) -> int:
        found = database.execute(
            "SELECT count(*) FROM recipients WHERE claimed > ?", (database.steady,)
        )
        return int(found.fetchone()[0])

    return await storage.read(op)


@pytest.mark.ports
async def test_a_receipt_is_recorded_and_an_urgent_one_without_it_comes_again(
    storage: Storage,
) -> None:
    stream = Stream()
    notifier = stream.notifier(storage, Notifications(quiet="", repeat_high_s=0.05, repeat_s=0.05))
    async with running(notifier):
        urgent = work(priority="high")
        await record(notifier, urgent, trigger("1"), "completed", "fire")
        sent = await stream.sends(2)
        assert len(set(ids(sent[:2]))) == 1
        # Of normal priority only to people whose clients send receipts.
        await record(notifier, work(), trigger("2"), "completed", "tea")
        await stream.sends(3)
        stream.messenger.receive(receipt(ids(sent)[0]))

        async def so() -> bool:
            return bool((await notifier.store.preferences(JULIET)).sends_receipts)

        await eventually(so)
        await record(notifier, work(), trigger("3"), "completed", "coffee")
        sent = await stream.sends(6)
    counts = {id_: ids(sent).count(id_) for id_ in ids(sent)}
    assert sorted(counts.values()) == [2, 2, 2]
    assert all(id_.startswith(MESSAGE_PREFIX) for id_ in counts)


@pytest.mark.ports
async def test_only_one_of_several_instances_sends_a_notification(
    tmp_path: Path, migrated_url: str
) -> None:
    stream = Stream()
    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "two", postgres=migrated_url) as two,
        Storage.open(SCHEMA, tmp_path / "three", postgres=migrated_url) as three,
    ):
        notifiers = [
            stream.notifier(each, Notifications(quiet="", per_window=100))
            for each in (one, two, three)
        ]
        async with running(*notifiers):
            for number in range(30):
                notifier = notifiers[number % 3]
                await record(notifier, work(), trigger(f"{number}"), "completed", f"text {number}")
            await is_recorded(one, 30)
        told = await two.read(partial(of_conversation, agent=AGENT, peer=JULIET))
    assert len(told) == 30, "each is recorded for the conversation once"
    bodies = [
        stanza
        for stanza in stream.output.sent
        for number in range(30)
        if f">text {number}<" in stanza
    ]
    assert len(bodies) == len(set(ids(stream.output.sent))) == 30


@pytest.mark.ports
async def test_what_another_instance_records_while_one_ends_its_batch_is_due(
    tmp_path: Path, migrated_url: str
) -> None:
    def some(recipient: Recipient) -> Plan:
        held = [each.id for each in recipient.notifications if each.message is None]
        return Plan(messages=(PlannedMessage("m1", tuple(held)),)) if held else Plan()

    inserted, commit = threading.Event(), threading.Event()

    def slowly(_database: Database) -> None:
        inserted.set()
        assert commit.wait(60)

    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "two", postgres=migrated_url) as two,
    ):
        mine, theirs = NotificationStore(one, "one"), NotificationStore(two, "two")
        first, second = (
            Notification(id=text, agent=AGENT, person=JULIET, title="t", text=text)
            for text in ("first", "second")
        )
        await mine.add([first], 10)
        batch = await mine.take(AGENT, JULIET, some)
        assert batch is not None

        async def waits_for_a_lock() -> bool:
            found = await two.select(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            return bool(found)

        async with anyio.create_task_group() as group:
            group.start_soon(theirs.add, [second], 10, slowly)
            assert await anyio.to_thread.run_sync(inserted.wait, 60)
            group.start_soon(mine.sent, batch, some)
            await eventually(waits_for_a_lock)
            commit.set()
        due, _ = await mine.due(10)
        assert due == [(AGENT, JULIET)]


@pytest.mark.ports
async def test_more_than_is_held_drops_the_least_urgent(storage: Storage) -> None:
    stream = Stream()
    stream.is_connected = False
    notifier = stream.notifier(storage, Notifications(quiet="", held_per_person=3))
    async with running(notifier):
        for number, priority in enumerate(["high", "low", "normal", "normal", "normal"]):
            one = work(priority=priority)
            await record(notifier, one, trigger(f"{number}"), "completed", f"text {number}")
        held = await NotificationStore(storage).held(JULIET)
        assert [one.text for one in held] == ["text 0", "text 3", "text 4"]
        stream.is_connected = True
        notifier.connected()
        sent = await stream.sends(3)
    assert "2 older notifications were dropped" in sent[0]


async def test_each_notification_that_is_recorded_is_returned(
    storage: Storage,
) -> None:
    stream = Stream()
    stream.unwilling.add(ROMEO)
    notifier = stream.notifier(storage)
    told = await record(
        notifier, work(tell=(JULIET, ROMEO)), trigger(), "completed", "All is well."
    )
    assert [(one.person, one.text) for one in told] == [(JULIET, "All is well.")]
    assert not await record(notifier, work(silent=True), trigger("2"), "completed", "All is well.")
    assert not await record(notifier, work(), trigger("3"), "completed", "")
