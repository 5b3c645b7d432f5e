"""The command about standing approvals, by words and as the operator gives it; `/forget`."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from component.commands import OPERATOR, Asking, CommandError, CommandResult, read_words
from component.features.standing_approvals.commands import ApprovalCommands
from component.features.standing_approvals.feature import forget
from component.kernel.contacts import PersonZones
from component.store import Storage
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.notifications import NotificationStore
from component.tasks import standing_rows
from tests.component.audit.book import Book
from xep.binding import encode
from xep.fluux_agent.confirm import Action, Confirm, Standing, StandingText
from xep.jid import JID

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
OTHER = JID.parse("researcher@agent.example")
JULIET = JID.parse("juliet@example.com")
ROMEO = JID.parse("romeo@example.com")
ASKING = Asking(principal=JULIET, at=AGENT)
ADMIN = Asking(principal=ROMEO, at=AGENT, admin=True)


class World:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.book = Book()
        zones = PersonZones(NotificationStore(storage), "UTC")
        (self.command,) = ApprovalCommands(storage, zones, self.book).commands()

    async def says(self, words: str = "", asking: Asking = ASKING) -> CommandResult:
        return await self.command.run(asking, read_words(self.command, words))

    async def refused(self, words: str, asking: Asking = ASKING) -> str:
        with pytest.raises(CommandError) as caught:
            await self.says(words, asking)
        return str(caught.value)

    async def grant(
        self, id_: str, *, person: JID = JULIET, agent: JID = AGENT, uses: int = 5, days: int = 30
    ) -> None:
        text = StandingText(text=f"I may do this without asking: {id_}.")
        offer = Standing(until=datetime.now(UTC) + timedelta(days), uses=5, text=text)
        question = Confirm(id=id_, action=Action(type="send"), standing=offer)

        def op(database: Database) -> None:
            until = database.steady + days * 86_400_000
            database.execute(
                "INSERT INTO standing_approvals (id, kind, basis, person, agent, address, question,"
                " uses, until, granted) VALUES (?, ?, '', ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(id_, f"kind {id_}", str(person), str(agent), str(agent)),
                    *(encode(question), uses, until, database.now),
                ),
            )
            database.execute(
                "INSERT INTO equal_approvals (kind, basis, person, agent, approvals, latest)"
                " VALUES (?, '', ?, ?, 4, 0)",
                (f"kind {id_}", str(person), str(agent)),
            )

        await self.storage.write(op)

    async def left(self) -> list[str]:
        """The ids of all that there are, and of the kinds of which approvals are counted."""
        found = await self.storage.select("SELECT id FROM standing_approvals ORDER BY id")
        counted = await self.storage.select("SELECT kind FROM equal_approvals ORDER BY kind")
        return [id_ for (id_,) in (*found, *counted)]


@pytest.fixture
def world(storage: Storage) -> World:
    return World(storage)


@pytest.mark.ports
async def test_they_are_listed_and_revoked(world: World) -> None:
    assert (await world.says()).text == "There are no standing approvals."
    await world.grant("abcd1")
    await world.grant("abcd2")
    for id_, how in (("used", {"uses": 0}), ("old", {"days": 0})):
        await world.grant(id_, **how)
    await world.grant("hers", person=ROMEO)
    await world.grant("elsewhere", agent=OTHER)
    listed = (await world.says()).text.splitlines()
    assert sorted(listed) == [
        f"- {id_}: I may do this without asking: {id_}. (5 left, not used yet)"
        for id_ in ("abcd1", "abcd2")
    ]
    await world.storage.write(partial(standing_rows.use, approval="abcd1"))
    assert "(4 left, last used today at" in (await world.says()).text
    said = await world.says("revoke abcd1")
    assert said.text == "Revoked, I will ask each time: I may do this without asking: abcd1."
    assert "abcd1" not in (await world.says()).text
    (event,) = world.book.events
    assert (event.kind, event.outcome, event.subject) == ("confirmation", "revoked", "send")
    assert event.detail == f"standing approval abcd1 of {JULIET}"
    assert (await world.says("revoke all")).text.startswith("Revoked")
    assert "kind abcd1" not in await world.left(), "approvals are counted anew"
    assert {"hers", "elsewhere"} <= {*await world.left()}


@pytest.mark.parametrize(
    "words",
    ["revoke", "revoke none", "list abcd", "revoke abcd", f"list person={ROMEO}", "list person=@"],
)
async def test_what_is_wrong_is_said(world: World, words: str) -> None:
    await world.grant("abcd1")
    await world.grant("abcd2")
    await world.grant("hers", person=ROMEO)
    assert await world.refused(words)
    assert len(await world.left()) == 6


async def test_admins_and_operators_see_those_of_others(world: World) -> None:
    await world.grant("one")
    await world.grant("two", agent=OTHER)
    assert (await world.says("", ADMIN)).value == []
    of_juliet = await world.says(f"list person={JULIET}", ADMIN)
    assert sorted(line.id for line in of_juliet.value) == ["one", "two"]  # type: ignore[union-attr]
    everybody = await world.says("", OPERATOR)
    assert f"- one: {JULIET}, {AGENT}: I may do" in everybody.text
    assert "give person" in await world.refused("revoke all", OPERATOR)
    assert (await world.says("revoke two", OPERATOR)).text.startswith("Revoked")
    assert world.book.events[-1].principal == "operator"


async def test_the_form_lists_those_that_can_be_revoked(world: World) -> None:
    choices = world.command.choices["approval"]
    assert await choices(ASKING) == {}
    await world.grant("abcd1")
    assert await choices(ASKING) == {
        "abcd1": "I may do this without asking: abcd1.",
        "all": "All of them",
    }


@pytest.mark.ports
async def test_forgetting_a_person_deletes_them(world: World) -> None:
    await world.grant("one")
    await world.grant("hers", person=ROMEO)
    await world.grant("elsewhere", agent=OTHER)
    who = Forgotten(agent="assistant", address=AGENT, person=JULIET)
    await world.storage.write(lambda database: forget(database, who))
    assert await world.left() == ["elsewhere", "hers", "kind elsewhere", "kind hers"]
