"""Notifications whatever happens: a state machine with jumping clocks, kills and instances."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from component.config.work import Notifications
from component.features.notifications.plan import MOST_IN_DIGEST, effective, plan
from component.store.notifications import (
    Batch,
    Notification,
    NotificationStore,
    Plan,
    Priority,
    Recipient,
)
from tests.direct_database import DirectDatabase, done
from tests.profiles import examples
from xep.jid import JID

AGENT = JID.parse("assistant@agent.example")
PEOPLE = tuple(JID.parse(f"{name}@example.com") for name in ("juliet", "romeo"))
MINUTE = 60_000
HOUR = 60 * MINUTE
# The evening before the clocks in Europe are put back; in Adelaide and New York it is DST.
START = int(datetime(2026, 10, 24, 19, tzinfo=UTC).timestamp() * 1000)
SETTINGS = Notifications(per_window=3)
ZONE = "Europe/Paris"


def decide(recipient: Recipient) -> Plan:
    return plan(recipient, SETTINGS, ZONE)


MOST_HELD = 20
ZONES = ("Europe/Paris", "Australia/Adelaide", "America/New_York")
people = st.sampled_from(PEOPLE)


class Notifications(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.database = DirectDatabase(START)
        self.store = NotificationStore(self.database)
        self.added: dict[str, Notification] = {}
        self.said: Counter[str] = Counter()  # message ids on the wire
        self.messages: dict[str, str] = {}  # the message of each notification
        self.recorded: dict[str, int] = {}  # messages marked as sent, and when (steady)
        self.online_since: set[str] = set()  # notifications whose person came online after them
        self.dropped_by_person: set[str] = set()
        self.number = 0
        self.surplus = 0  # dropped because too many were held
        self.repeated: set[str] = set()

    def teardown(self) -> None:
        for person in PEOPLE:
            done(self.store.set_quiet(person, "", None, urgent=False))
            self.comes_online(person)
        for _ in range(60):
            self.database.passes(11 * MINUTE)
            self.looks(False)
            self.looks(False)
        left = [row[0] for row in self.rows("SELECT id FROM notifications WHERE sent IS NULL")]
        assert not left
        lost = set(self.added) - set(self.messages) - self.dropped_by_person
        assert len(lost) == self.surplus

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        found: list[Any] = self.database.execute(sql, parameters).fetchall()
        return found

    @rule(
        person=people,
        priority=st.sampled_from(["low", "normal", "high"]),
        online=st.booleans(),
        count=st.integers(1, 12),
    )
    def is_recorded(self, person: JID, priority: Priority, online: bool, count: int) -> None:
        for _ in range(count):
            self.number += 1
            one = Notification(
                id=f"n{self.number}",
                agent=AGENT,
                person=person,
                priority=priority,
                title="watch",
                text=f"text {self.number}",
                waits_online=online,
            )
            before = self.held(person)
            self.added[one.id] = one
            done(self.store.add([one, one], MOST_HELD))
            self.surplus += before + 1 - self.held(person)

    def held(self, person: JID) -> int:
        return len(done(self.store.held(person)))

    @rule(minutes=st.integers(0, 900))
    def time_passes(self, minutes: int) -> None:
        self.database.passes(minutes * MINUTE)

    @rule(minutes=st.integers(-600, 600))
    def the_clock_jumps(self, minutes: int) -> None:
        self.database.jumps(minutes * MINUTE)

    @rule(person=people)
    def comes_online(self, person: JID) -> None:
        done(self.store.online(AGENT, person))
        self.online_since |= {id_ for id_, one in self.added.items() if one.person == person}

    @rule(
        person=people,
        hours=st.sampled_from([None, "", "22:00-07:00", "02:30-02:45", "09:00-17:00"]),
        zone=st.sampled_from(ZONES),
        urgent=st.booleans(),
    )
    def sets_quiet_hours(self, person: JID, hours: str | None, zone: str, urgent: bool) -> None:
        done(self.store.set_quiet(person, hours, zone, urgent=urgent))

    @rule(person=people)
    def drops_all(self, person: JID) -> None:
        before = {one.id for one in done(self.store.held(person))}
        done(self.store.drop(person, None))
        self.dropped_by_person |= before - {one.id for one in done(self.store.held(person))}

    @rule(data=st.data())
    def sends_a_receipt(self, data: st.DataObject) -> None:
        if self.messages:
            id_ = data.draw(st.sampled_from(sorted(self.messages)))
            done(self.store.received(self.added[id_].person, self.messages[id_]))

    @rule(killed=st.booleans())
    def looks(self, killed: bool) -> None:
        """An instance looks; if it is killed, it has sent and not recorded."""
        due, _ = done(self.store.due(50))
        for agent, person in due:
            batch = done(self.store.take(agent, person, decide))
            # Another instance finds it claimed.
            other = done(self.store.take(agent, person, decide))
            assert batch is None or other is None
            if batch is not None:
                self.goes_out(batch, person)
                if not killed:
                    done(self.store.sent(batch, decide))
                    for message in batch.plan.messages:
                        self.recorded.setdefault(message.id, self.database.steady)

    def goes_out(self, batch: Batch, person: JID) -> None:
        new = 0
        for message in batch.plan.messages:
            again = self.said[message.id] > 0
            self.said[message.id] += 1
            assert 1 <= len(message.ids) <= MOST_IN_DIGEST
            assert message.id not in self.recorded or message.is_repeat
            if message.is_repeat:
                assert message.id in self.recorded
                if message.id in self.repeated:
                    continue  # the process was killed before it recorded the first repetition
                self.repeated.add(message.id)
            for id_ in message.ids:
                one = self.added[id_]
                assert one.person == person
                assert self.messages.setdefault(id_, message.id) == message.id
                assert id_ not in self.dropped_by_person
                assert not one.waits_online or id_ in self.online_since
            self.is_allowed_now(person, message.ids)
            if not again:
                since = self.database.steady - 600_000
                mine = {
                    self.messages[id_]
                    for id_, each in self.added.items()
                    if each.person == person and id_ in self.messages
                }
                lately = [id_ for id_ in mine if self.recorded.get(id_, -1) > since]
                assert len(lately) + new < SETTINGS.per_window
                new += 1

    def is_allowed_now(self, person: JID, ids: tuple[str, ...]) -> None:
        preferences = done(self.store.preferences(person))
        now = datetime.fromtimestamp(self.database.settled / 1000, UTC)
        hours = effective(preferences, SETTINGS, ZONE, now)
        urgent = preferences.urgent and all(self.added[id_].priority == "high" for id_ in ids)
        assert hours is None or not hours.covers(now) or urgent

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Who could be notified by time alone is looked at again."""
        waiting = self.rows(
            "SELECT DISTINCT person FROM notifications WHERE sent IS NULL AND waits_online = 0"
        )
        looked_at = self.rows("SELECT person FROM recipients WHERE look_at IS NOT NULL")
        assert set(waiting) <= set(looked_at)


TestNotifications = Notifications.TestCase  # type: ignore[attr-defined]
TestNotifications.settings = settings(examples(10), stateful_step_count=40)
