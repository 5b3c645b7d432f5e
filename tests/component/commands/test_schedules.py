"""The command about schedules: in words, with named parameters, and for others by admins."""

import pytest

from component.commands.definition import OPERATOR, Asking, Command, CommandError
from component.commands.schedules import SCHEDULE, ScheduleCommands, ScheduleParams
from component.commands.words import read_words
from component.proactive.schedules import ScheduleLimits, Schedules
from component.storage import Storage
from tests.component.proactive.year import JULIET, ROMEO
from xep.jid import JID

pytestmark = pytest.mark.anyio

AT = JID.parse("assistant@agent.example")


def asking(who: JID = JULIET, *, admin: bool = False) -> Asking:
    return Asking(principal=who, at=AT, agent="assistant", admin=admin)


class Client:
    """Somebody who gives the command."""

    def __init__(self, storage: Storage) -> None:
        self.schedules = Schedules(storage, ScheduleLimits())
        (found,) = ScheduleCommands(
            self.schedules, "assistant", {"assistant", "other"}.__contains__
        ).commands()
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
    assert "- r:" in await client.says("list", OPERATOR), "the operator sees all"
    for bad in ("nobody", "romeo@example.org/phone", "@"):
        with pytest.raises(CommandError, match=r"address"):
            await client.says(f"list for={bad}", admin)
    given = {**texts, "agent": "missing", "for": str(JULIET)}
    with pytest.raises(CommandError, match="no agent called"):
        await client.command.run(admin, SCHEDULE.read([*given.items()]))
    assert await client.says(f"remove {found.id}", OPERATOR) == "Removed r."
