"""What is left of a grant: asked before work begins, set aside for it, and given back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from component import system
from component.features.peers import grant_rows
from component.grants import Budget, Grant, SigningKey, digest, write_grant
from component.grants.grant import Confirmation
from component.models.protocol import Completion
from component.models.protocol import Usage as ModelUsage
from component.skills import Context, Skill, skill
from component.store import Storage
from tests.component.features.peers.scripted import ScriptedAgent
from tests.component.features.peers.test_calls import ended, settings, text_of, used_by, using
from tests.component.features.peers.test_grant_rows import issue
from tests.component.features.peers.test_grants import (
    AGENT_A,
    AGENT_C,
    BOT,
    BOT_KEY,
    first_grant,
    hold,
    three,
    with_bot,
)
from tests.component.features.peers.test_incoming import condition
from tests.component.features.task_commands.stored import insert
from tests.kit import Kit, Peer, anyio_backend, service
from tests.kit.model import Script
from xep.binding import Payload, encode
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.grant import GrantStatus, SignedGrant
from xep.fluux_agent.task import Cancel
from xep.jid import JID
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


@skill(read_only=True, open_world=False)
async def budget_of(context: Context) -> str:
    """Say what the work may cost."""
    assert context.delegation is not None
    return str(context.delegation.budget_usd)


@skill(read_only=True, open_world=False, cost_usd=0.3)
async def dear(context: Context) -> str:
    """Cost 30 cents."""
    return "paid"


def executing(
    name: str, chain: Sequence[str], via: Sequence[str], usd: str, **more: Any
) -> Execute:
    """A request for a skill with a chain of grants and a budget."""
    delegation = Delegation(
        origin=JID.parse("romeo@a.example"),
        max_hops=4,
        budget_usd=Decimal(usd),
        via=tuple(map(JID.parse, via)),
        grants=tuple(SignedGrant(jws=each) for each in chain),
    )
    deadline = (system.now() + timedelta(seconds=300)).replace(microsecond=0)
    return Execute(skill=name, deadline=deadline, delegation=delegation, **more)


class Middle:
    """An agent that has a grant of A, and passes its budget on as often as it likes."""

    def __init__(self, bot: Peer, root: Grant, written: str) -> None:
        self._bot = bot
        self._root = root
        self.written = written
        self._made = 0

    def child(self, parent: str, issuer: str, audience: str, usd: str) -> Grant:
        """A grant that follows from another one, which has a budget."""
        return msgspec.structs.replace(
            self._root,
            iss=issuer,
            aud=audience,
            depth=1,
            jti=f"child-{self._made}",
            par=digest(parent),
            cnf=None,
            budget=Budget(usd=Decimal(usd)),
        )

    async def ask(self, name: str, usd: str, mode: Any = "auto", **more: Any) -> Incoming:
        """Execute a skill of C with a new grant that has a budget; `again` with the last one."""
        self._made += not more.pop("again", False)
        child = write_grant(self.child(self.written, BOT, AGENT_C, usd), BOT_KEY)
        asked = executing(name, (self.written, child), (AGENT_A, BOT), usd, mode=mode, **more)
        return await self._bot.iq("set", encode(asked))


@asynccontextmanager
async def middle(
    tmp_path: Path, *skills: Skill, **claims: Any
) -> AsyncIterator[tuple[Kit, Kit, Peer, Middle]]:
    """Services A and C, and an agent between them with a grant of A for 50 cents."""
    async with with_bot(tmp_path, *skills, asks_back="always") as (a, c, bot):
        root, _ = await first_grant(a, budget=Budget(usd=Decimal("0.50")), **claims)

        def store(database: Any) -> str:
            insert(database, "t-1")
            database.execute("UPDATE tasks SET state = 'input-required'")  # nobody runs it
            key = grant_rows.current_key(database, AGENT_A)
            return grant_rows.issue(database, root, key, AGENT_A, "c-1", "t-1")

        yield a, c, bot, Middle(bot, root, await a.kernel.storage.write(store))


async def left_of(a: Kit, grant: str) -> Decimal | None:
    """What the agent of A says is left of a grant."""
    asker = a.peer("stranger@nowhere.example/1")
    asked = GrantStatus(digest=digest(grant))
    answer = await asker.iq("get", encode(asked), AGENT_A)
    await asker.leave()
    return answer.require(GrantStatus).budget_usd


async def test_a_budget_that_was_granted_twice_is_spent_once(tmp_path: Path) -> None:
    async with middle(tmp_path, hold) as (a, c, bot, agent):
        first = await agent.ask("hold", "0.50", "async")
        assert await left_of(a, agent.written) == 0
        second = await agent.ask("hold", "0.50", "async")
        assert condition(second) == "budget-exhausted"
        # What the first one has not spent is there for others after its end.
        await bot.iq("set", encode(Cancel(id=first.require(Accepted).task)))
        await c.advance(2)
        assert await left_of(a, agent.written) == Decimal("0.50")
        assert (await agent.ask("hold", "0.50", "async")).payload(Accepted) is not None


class Granting(ScriptedAgent):
    """An agent that has made a grant, of which five cents are left."""

    def __init__(self, kit: Kit, domain: str) -> None:
        super().__init__(kit, domain, ())
        self.asked: list[tuple[str, GrantStatus]] = []

    def _answer(self, stanza: Incoming) -> Payload | None:
        asked = stanza.payload(GrantStatus)
        if asked is None:
            return super()._answer(stanza)
        self.asked.append((stanza.type or "", asked))
        return msgspec.structs.replace(asked, state="active", budget_usd=Decimal("0.05"))


async def test_the_agent_before_the_last_one_keeps_account_of_its_grant(tmp_path: Path) -> None:
    key = SigningKey.of(b"e" * 32)
    claims = {"aud": "assistant@agent.e.example", "cnf": Confirmation(jwk=key.public)}
    async with middle(tmp_path, budget_of, **claims) as (a, c, bot, agent):
        e = Granting(c, "agent.e.example")
        of_e = agent.child(agent.written, claims["aud"], BOT, "0.40")
        of_e = msgspec.structs.replace(of_e, depth=1, cnf=Confirmation(jwk=BOT_KEY.public))
        second = write_grant(of_e, key)
        of_bot = msgspec.structs.replace(agent.child(second, BOT, AGENT_C, "0.30"), depth=0)
        third = write_grant(of_bot, BOT_KEY)
        via = (AGENT_A, claims["aud"], BOT)
        asked = executing("budget_of", (agent.written, second, third), via, "0.30")
        answer = await bot.iq("set", encode(asked))
        assert text_of(answer.require(Result)) == "0.05"
        while len(e.asked) < 2:
            await c.advance(1)
        wanted, given_back = e.asked
        assert wanted == (
            "set",
            GrantStatus(digest=digest(second), child=digest(third), budget_usd=Decimal("0.30")),
        )
        assert given_back[1].budget_usd == 0
        assert await left_of(a, agent.written) == Decimal("0.50"), "it was asked, and keeps all"


async def test_a_grant_pays_for_one_request(tmp_path: Path) -> None:
    async with middle(tmp_path, hold, budget_of) as (a, c, _, agent):
        first = await agent.ask("budget_of", "0.10", request="r1")
        assert text_of(first.require(Result)) == "0.10"
        await c.advance(2)
        await c.restart(kill=True)
        assert condition(await agent.ask("budget_of", "0.10", request="r2", again=True)) == (
            "invalid-grant"
        )
        assert await left_of(a, agent.written) == Decimal("0.50")


async def test_a_request_that_was_refused_for_now_is_repeated_with_its_grant(
    tmp_path: Path,
) -> None:
    async with middle(tmp_path, budget_of) as (a, _, _, agent):
        assert (await agent.ask("budget_of", "0.10")).payload(Result), "C has the keys of A"
        await a.kill()
        refused = await agent.ask("budget_of", "0.10", request="r1")
        assert condition(refused) == "retry"
        await a.start()
        again = await agent.ask("budget_of", "0.10", request="r1", again=True)
        assert text_of(again.require(Result)) == "0.10"


async def test_admins_see_what_is_left_of_a_grant(tmp_path: Path) -> None:
    async with middle(tmp_path, hold) as (a, _, _, agent):
        await agent.ask("hold", "0.30", "async")
        listed = await a.peer("romeo@a.example/phone").ask("/grants list", "g1")
        assert ", 0.2 of 0.5 USD left" in listed


async def test_work_gets_no_more_than_what_is_left(tmp_path: Path) -> None:
    async with middle(tmp_path, hold, budget_of) as (_, _, _, agent):
        await agent.ask("hold", "0.30", "async")
        assert text_of((await agent.ask("budget_of", "0.10")).require(Result)) == "0.10"
        assert text_of((await agent.ask("budget_of", "0.50")).require(Result)) == "0.20"


async def test_work_that_costs_more_than_what_is_left_is_refused(tmp_path: Path) -> None:
    async with middle(tmp_path, hold, dear) as (a, c, _, agent):
        await agent.ask("hold", "0.30", "async")
        assert condition(await agent.ask("dear", "0.50")) == "budget-exhausted"
        await c.advance(2)
        assert await left_of(a, agent.written) == Decimal("0.20")


def amounts_asked_of(a: Kit) -> list[Decimal]:
    """The different amounts that A was asked to set aside, in order."""
    asked = [xml for how, xml in a.stanzas if how == "received" and "0#grant' digest" in xml]
    amounts = [xml.partition("budget-usd='")[2].partition("'")[0] for xml in asked]
    return list(dict.fromkeys(Decimal(each) for each in amounts if each))


async def test_what_is_set_aside_is_given_back_when_the_work_has_ended(tmp_path: Path) -> None:
    of_c = {"asks_back": "always"}
    async with three(tmp_path, of_c=of_c, call_usd=0.5) as (a, _, _, romeo):
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "Noted: rivers"
        while amounts_asked_of(a) != [Decimal("0.5"), 0]:
            await a.advance(1)


async def test_what_was_set_aside_before_a_kill_is_given_back_when_the_work_ends(
    tmp_path: Path,
) -> None:
    async with middle(tmp_path, hold) as (a, c, bot, agent):
        accepted = (await agent.ask("hold", "0.30", "async")).require(Accepted)
        assert await left_of(a, agent.written) == Decimal("0.20")
        await c.advance(2)
        await c.restart(kill=True)
        await bot.iq("set", encode(Cancel(id=accepted.task)))
        await c.advance(2)
        assert await left_of(a, agent.written) == Decimal("0.50")


async def test_only_an_agent_that_names_a_grant_and_an_amount_gets_a_share(tmp_path: Path) -> None:
    async with middle(tmp_path, hold) as (a, _, _, agent):
        asker = a.peer("stranger@nowhere.example/2")
        root = digest(agent.written)
        for asked, expected in (
            (GrantStatus(digest="x" * 43, child="y" * 43), "item-not-found"),
            (GrantStatus(digest=root, budget_usd=Decimal(1)), "bad-request"),
            (GrantStatus(digest=root, child="y" * 43, budget_usd=Decimal(-1)), "bad-request"),
        ):
            answer = await asker.iq("set", encode(asked), AGENT_A)
            assert answer.error().condition == expected
        assert await left_of(a, agent.written) == Decimal("0.50")


@pytest.mark.ports
async def test_shares_of_a_grant_are_never_more_than_its_budget(storage: Storage) -> None:
    made = await storage.write(issue)  # 50 cents and 100 tokens

    async def put(child: str, usd: str | None, tokens: int | None) -> tuple[Any, Any]:
        wanted = Budget(usd=None if usd is None else Decimal(usd), tokens=tokens)

        def op(database: Any) -> Budget:
            found = grant_rows.state_of(database, made)
            assert found is not None
            return grant_rows.set_aside(database, found[0], child, wanted)

        part = await storage.write(op)
        return part.usd, part.tokens

    assert await put("one", "0.30", 80) == (Decimal("0.30"), 80)
    assert await put("two", "0.30", 80) == (Decimal("0.20"), 20)
    assert await put("three", None, None) == (0, 0)
    assert await put("one", "0.10", 5) == (Decimal("0.10"), 5)
    assert await put("three", None, None) == (Decimal("0.20"), 75)


@skill(read_only=True, open_world=False, durable=True, capabilities=("llm",))
async def read_books(context: Context, books: int) -> str:
    """Ask a model about books, one after the other."""
    schema = {"type": "object", "properties": {"said": {"type": "string"}}}
    for number in range(1, books + 1):
        await context.llm(f"Sum up book {number}.", schema, max_tokens=50)
        await context.progress(number / books, f"read {number} of {books} books")
    return "All are read."


@skill(read_only=True, open_world=False, durable=True)
async def have_read(context: Context, books: int) -> str:
    """Have another agent read books."""
    (result,) = await context.wait([await context.start("c.read_books", {"books": books})])
    return result.text or result.reason


async def test_a_budget_that_is_spent_half_way_ends_the_work_and_is_settled(
    tmp_path: Path,
) -> None:
    said = Completion.of('{"said": "It is long."}', usage=ModelUsage(20, 30, cost_usd=0.05))
    model = Script(otherwise=said, usd_per_token=0.001)
    demands = {"requires": "grant", "asks_back": "always", "origins": ["a.example"]}
    c_settings = settings("c", used_by("b", **demands))
    b_settings = settings(
        "b", used_by("a", delegates=["c.*"], **demands), using("c", read_only=["*"])
    )
    a_settings = settings("a", using("b", read_only=["*"], call_usd=0.5))
    async with (
        service(tmp_path / "c", c_settings, skills=(read_books,), model=model) as c,
        service(tmp_path / "b", b_settings, skills=(have_read,), beside=c) as b,
        service(tmp_path / "a", a_settings, beside=b) as a,
    ):
        await a.advance(30)
        romeo = a.peer("romeo@a.example/phone")
        await romeo.say("/run b.have_read books=50")
        done = text_of((await ended(romeo)).result)
        assert done.endswith("It is possible with a larger budget."), done
        read = len(model.requests)
        assert 0 < read < 50
        assert f"Until then: read {read} of 50 books." in done
        assert c.kernel.agents is not None
        ((of_c,),) = await b.kernel.storage.select("SELECT usd FROM peer_calls")
        ((of_b,),) = await a.kernel.storage.select("SELECT usd FROM peer_calls")
        assert 0.3 < of_c == of_b < 0.5
