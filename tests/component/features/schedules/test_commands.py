"""The command about schedules: in words, with named parameters, and for others by admins."""

import pytest

from component.commands import OPERATOR, Asking, Command, CommandError, read_words
from component.features.schedules.commands import SCHEDULE, ScheduleCommands, ScheduleParams
from component.features.schedules.schedules import Schedules
from component.features.schedules.settings import ScheduleLimits
from component.kernel.contacts import PersonZones
from component.store import Storage
from tests.component.features.schedules.year import JULIET, ROMEO
from xep.jid import JID

pytestmark = pytest.mark.anyio

AT = JID.parse("assistant@agent.example")


def asking(who: JID = JULIET, *, admin: bool = False) -> Asking:
    return Asking(principal=who, at=AT, agent="assistant", admin=admin)


PHONE = JID.parse(f"{JULIET}/phone")


class Zones(PersonZones):
    """The time zones of people, of which only their clients know."""

    default = "UTC"

    def __init__(self, zone: str = "UTC") -> None:
        self.zone = zone
        self.asked: list[tuple[JID, JID | None]] = []

    async def of(self, person: JID, at: JID | None = None) -> str:
        self.asked.append((person, at))
        return self.zone


class Client:
    """Somebody who gives the command."""

    def __init__(self, storage: Storage) -> None:
        self.schedules = Schedules(storage, ScheduleLimits())
        agents = {"assistant", "other"}
        (found,) = ScheduleCommands(self.schedules, Zones(), agents.__contains__).commands()
        self.command: Command[ScheduleParams] = found

    async def says(self, words: str, who: Asking | None = None) -> str:
        answer = await self.command.run(who or asking(), read_words(SCHEDULE, words))
        return answer.text


async def test_words_name_when_and_what(storage: Storage) -> None:
    client = Client(storage)
    await client.says("add every monday at 9: sum up my week")
    await client.says('add in 5 minutes: run report topic="two rivers" count=3')
    found = {
        one.definition.when: one.definition.work for one in await client.schedules.list(JULIET)
    }
    assert found["every monday at 9"].goal == "sum up my week"
    work = found["in 5 minutes"]
    assert (work.skill, bytes(work.params)) == ("report", b'{"topic":"two rivers","count":3}')
    assert work.agent == "assistant"


async def test_named_parameters(storage: Storage) -> None:
    client = Client(storage)
    texts = {
        "action": "add",
        "name": "r",
        "when": "@daily",
        "skill": "report",
        "zone": "Asia/Tokyo",
    }
    params = SCHEDULE.read([*texts.items(), ("params", '{"topic": "x"}'), ("missed", "all")])
    await client.command.run(asking(), params)
    (found,) = await client.schedules.list(JULIET)
    assert (found.name, found.definition.zone, found.definition.missed) == (
        "r",
        "Asia/Tokyo",
        "all",
    )
    assert bytes(found.definition.work.params) == b'{"topic":"x"}'
    assert "- r: @daily (Asia/Tokyo), next" in await client.says("")
    assert await client.says("pause r") == "Paused r."
    assert "paused" in await client.says("list")
    assert (await client.says("resume r")).startswith("Resumed:")
    assert await client.says("remove r") == "Removed r."
    assert await client.says("list") == "There are no schedules."


@pytest.mark.parametrize(
    ("words", "param"),
    [
        ("pause", "name"),
        ("list x", "name"),
        ("add", "when"),
        ("add soon: x", "text"),
        ("add every hour", "text"),
        ("add in 5 minutes: run report topic", "text"),
        ("add every second: x", "text"),
        ("remove r zone=UTC", "zone"),
        ("list for=romeo@example.org", "for"),
    ],
)
async def test_what_is_wrong_names_the_parameter(storage: Storage, words: str, param: str) -> None:
    with pytest.raises(CommandError) as refused:
        await Client(storage).says(words)
    assert refused.value.param == param


async def test_admins_and_the_operator_name_a_person(storage: Storage) -> None:
    client, admin = Client(storage), asking(ROMEO, admin=True)
    texts = {"action": "add", "name": "r", "when": "@daily", "goal": "Look.", "agent": "other"}
    with pytest.raises(CommandError, match="Say for whom"):
        await client.command.run(OPERATOR, SCHEDULE.read([*texts.items()]))
    await client.command.run(admin, SCHEDULE.read([*texts.items(), ("for", str(JULIET))]))
    (found,) = await client.schedules.list(JULIET)
    assert found.agent == "other"
    assert "- r:" in await client.says(f"list for={JULIET}", admin)
    assert await client.says("list", admin) == "There are no schedules."
    assert f"- r for {JULIET}:" in await client.says("list", OPERATOR), "the operator sees all"
    for bad in ("nobody", "romeo@example.org/phone", "@"):
        with pytest.raises(CommandError, match=r"address"):
            await client.says(f"list for={bad}", admin)
    given = {**texts, "agent": "missing", "for": str(JULIET)}
    with pytest.raises(CommandError, match="no agent called"):
        await client.command.run(admin, SCHEDULE.read([*given.items()]))
    assert await client.says(f"remove {found.id}", OPERATOR) == "Removed r."


async def test_a_time_is_in_the_zone_of_the_client_that_says_it_and_shows_it(
    storage: Storage,
) -> None:
    client, zones = Client(storage), Zones("UTC+09:00")
    client.schedules = Schedules(storage, ScheduleLimits(), zones=zones)
    (client.command,) = ScheduleCommands(client.schedules, zones).commands()
    who = Asking(principal=JULIET, client=PHONE, at=AT, agent="assistant")
    said = await client.says("add every monday at 9: sum up my week", who)
    assert set(zones.asked) == {(PHONE, AT)}
    assert ": every monday at 9, next " in said
    assert " at 9:00: sum up my week" in said
    assert "I know only how far your clock is from UTC (UTC+09:00)" in said
    (found,) = await client.schedules.list(JULIET)
    assert (found.definition.zone, found.due.hour, found.due.weekday()) == ("UTC+09:00", 0, 0)
    assert " at 9:00: sum up my week" in await client.says("", who)
    named = await client.says("add every day at 9 and 18 Europe/Paris: look", who)
    assert ": every day at 9 and 18 (Europe/Paris), next " in named
    assert "I know only" not in named


async def test_a_time_that_is_not_understood_whole_adds_no_schedule(storage: Storage) -> None:
    client = Client(storage)
    with pytest.raises(CommandError, match="Only 'every day at 9, 12' is understood, and 'and lun"):
        await client.says("add every day at 9, 12 and lunch: measure")
    assert await client.says("list") == "There are no schedules."


async def test_an_admin_adds_a_time_of_the_person_for_whom_it_is(storage: Storage) -> None:
    client, zones = Client(storage), Zones("Asia/Tokyo")
    client.schedules = Schedules(storage, ScheduleLimits(), zones=zones)
    (client.command,) = ScheduleCommands(client.schedules, zones).commands()
    admin = Asking(principal=ROMEO, client=JID.parse(f"{ROMEO}/x"), at=AT, admin=True)
    texts = {"action": "add", "when": "every day at 9", "goal": "Look.", "for": str(JULIET)}
    await client.command.run(admin, SCHEDULE.read([*texts.items()]))
    assert zones.asked[0] == (JULIET, AT)
