"""The commands about notifications, by words and as the operator gives them."""

from datetime import UTC, datetime

import pytest

from component.commands import OPERATOR, Asking, CommandError, CommandResult, read_words
from component.config.work import Notifications
from component.features.notifications.commands import NotificationCommands
from component.kernel.contacts import PersonZones
from component.store import Storage
from component.store.notifications import Notification, NotificationStore
from xep.jid import JID

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
JULIET = JID.parse("juliet@example.com")
ROMEO = JID.parse("romeo@example.com")
ASKING = Asking(principal=JULIET, at=AGENT)
ADMIN = Asking(principal=ROMEO, at=AGENT, admin=True)

OPEN = Notifications(quiet="")


class World:
    def __init__(self, storage: Storage) -> None:
        self.store = NotificationStore(storage)
        self.changes = 0
        zones = PersonZones(self.store, "Europe/Paris")
        made = NotificationCommands(self.store, Notifications(), zones, self.changed)
        self.commands = {command.name: command for command in made.commands()}

    def changed(self) -> None:
        self.changes += 1

    async def says(self, line: str, asking: Asking = ASKING) -> CommandResult:
        name, _, words = line.removeprefix("/").partition(" ")
        command = self.commands[name]
        return await command.run(asking, read_words(command, words))

    async def refused(self, line: str, asking: Asking = ASKING) -> str:
        with pytest.raises(CommandError) as caught:
            await self.says(line, asking)
        return str(caught.value)

    async def holds(self, id_: str, person: JID = JULIET, *, online: bool = False) -> None:
        one = Notification(
            id=id_, agent=AGENT, person=person, title="news", text=f"t {id_}", waits_online=online
        )
        await self.store.add([one], 100)


@pytest.fixture
def world(storage: Storage) -> World:
    return World(storage)


@pytest.mark.ports
async def test_quiet_hours_are_shown_and_set(world: World) -> None:
    assert "22:00-07:00 (Europe/Paris)" in (await world.says("/quiet")).text
    assert world.changes == 0
    assert "21:00-06:30 (Europe/Paris)" in (await world.says("/quiet 21:00-06:30")).text
    assert world.changes == 1
    await world.store.set_utc_offset(JULIET, 3 * 3600)
    assert "21:00-06:30 (UTC+03:00)" in (await world.says("/quiet")).text
    text = (await world.says("/quiet 9:00\u201317:00 America/New_York urgent=true")).text
    assert "09:00-17:00 (America/New_York)" in text
    assert "except urgent ones" in text
    assert "at any time" in (await world.says("/quiet off")).text
    assert "22:00-07:00" in (await world.says("/quiet default zone=default")).text


@pytest.mark.parametrize(
    "line",
    ["/quiet 22:00", "/quiet 25:00-07:00", "/quiet 7:00-7:00", "/quiet 22:00-07:00 Verona",
     "/drop-notification x", "/drop-notification all person=romeo@example.com",
     "/notifications person=romeo@example.com", "/quiet person=@"],
)  # fmt: skip
async def test_what_is_wrong_is_said(world: World, line: str) -> None:
    assert (await world.refused(line)).endswith(".")


@pytest.mark.ports
async def test_held_notifications_are_listed_and_dropped(world: World) -> None:
    assert (await world.says("/notifications")).text == "There are no held notifications."
    await world.holds("a1")
    await world.holds("a2", online=True)
    await world.holds("b1", ROMEO)
    answer = await world.says("/notifications")
    first, second = answer.text.splitlines()
    assert first.startswith("- news, ")
    assert first.endswith("(id a1)")
    assert "held until you are online: t a2 (id a2)" in second
    assert "Several begin with a" in await world.refused("/drop-notification a")
    assert "does not exist" in await world.refused("/drop-notification b1")
    assert (await world.says("/drop-notification a1")).text == "1 notification dropped."
    assert (await world.says("/drop-notification all")).text == "1 notification dropped."
    assert [one.id for one in await world.store.held(None)] == ["b1"]


async def test_operators_see_and_drop_those_of_everybody(world: World) -> None:
    await world.holds("a1")
    await world.holds("b1", ROMEO)
    assert "news for juliet@example.com" in (await world.says("/notifications", OPERATOR)).text
    assert "person" in await world.refused("/drop-notification all", OPERATOR)
    await world.says("/drop-notification all person=juliet@example.com", ADMIN)
    assert (await world.says("/drop-notification b", OPERATOR)).text.startswith("1 ")
    assert "person" in await world.refused("/quiet", OPERATOR)
    line = "/quiet off person=juliet@example.com"
    assert "no quiet hours" in (await world.says(line, OPERATOR)).text


@pytest.mark.ports
async def test_what_is_being_sent_is_not_dropped(world: World) -> None:
    from component.features.notifications.plan import plan

    await world.holds("a1")
    batch = await world.store.take(AGENT, JULIET, lambda one: plan(one, OPEN, "UTC"))
    assert batch is not None
    assert (await world.says("/drop-notification all")).text == "0 notifications dropped."
    assert datetime.fromtimestamp(batch.recipient.now / 1000, UTC).year > 2000
