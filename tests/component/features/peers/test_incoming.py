"""Work that agents elsewhere delegate to this service: what they see, and what is asked of whom."""

import tomllib
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.config.peers import Peer as PeerSection
from component.skills import skill
from tests.kit import AGENT, Kit, Peer, anyio_backend, service
from tests.kit.xmpp import body
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as FLUUX
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.errors import CONDITIONS
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BOT = JID.parse("assistant@agent.montague.example/1")
ROMEO = JID.parse("romeo@montague.example")
ERASED: list[str] = []


@skill(read_only=True, open_world=False, inline=True, cost_usd=0.2)
def report(topic: str) -> str:
    """Write a report."""
    return f"About {topic}."


@skill(open_world=False)
def erase(file: str) -> str:
    """Erase a file."""
    ERASED.append(file)
    return f"{file} is gone."


SETTINGS: dict[str, Any] = {
    "agent": {"allowed_domains": ["capulet.example"]},
    "peer": [
        {"name": "verona", "jid": "agent.montague.example", "offers": ["report", "erase"]},
        {"name": "silent", "jid": "bot@agent.capulet.org"},
    ],
}


def path(*via: str, origin: str = str(ROMEO), hops: int = 4, **limits: Any) -> Delegation:
    named = tuple(map(JID.parse, via or (str(BOT.bare),)))
    return Delegation(origin=JID.parse(origin), max_hops=hops, via=named, **limits)


def execute(name: str, delegation: Delegation | None, **params: str) -> Execute:
    given = tuple(Param(name=key, text=text) for key, text in params.items())
    return Execute(skill=name, params=given, delegation=delegation)


async def ask(bot: Peer, request: Execute) -> Incoming:
    return await bot.iq("set", encode(request))


def condition(answer: Incoming) -> str:
    """Return the application condition of an error."""
    error = answer.error(CONDITIONS)
    return type(error.application[0]).xml.local if error.application else error.condition


def bot_of(kit: Kit, jid: JID = BOT) -> Peer:
    return kit.peer(str(jid), features=(FLUUX,))


async def names_seen_by(bot: Peer) -> list[str]:
    answer = await bot.iq("get", encode(SkillsQuery()))
    return [one.name for one in answer.require(SkillsQuery).skills]


async def test_a_peer_sees_and_uses_what_it_is_offered_and_nothing_else(tmp_path: Path) -> None:
    async with service(tmp_path, SETTINGS, skills=(report, erase)) as kit:
        bot = bot_of(kit)
        assert await names_seen_by(bot) == ["erase", "report"]
        answer = await ask(bot, execute("report", path(), topic="rivers"))
        result = answer.require(Result)
        assert result.outputs[0].text == "About rivers."
        assert result.usage is not None
        assert (result.usage.tokens_in, result.usage.cost_usd) == (0, 0), "nothing is left unsaid"
        assert (
            condition(await ask(bot, execute("memory_forget", path(), id="1"))) == "unknown-skill"
        )
        assert await names_seen_by(bot_of(kit, JID.parse("bot@agent.capulet.org/1"))) == []
        stranger = bot_of(kit, JID.parse("assistant@agent.stranger.example/1"))
        answer = await ask(stranger, execute("report", path(str(stranger.jid.bare)), topic="x"))
        assert condition(answer) == "service-unavailable"


@pytest.mark.parametrize(
    ("delegation", "expected"),
    [
        (path("other@agent.montague.example"), "malformed"),
        (path(str(BOT)), "malformed"),
        (path(origin=f"{ROMEO}/phone"), "malformed"),
        (path(hops=-1), "malformed"),
        (path(budget_tokens=-1), "malformed"),
        (path(trace="00-zz-00f067aa0ba902b7-01"), "malformed"),
        (path(trace="00-00000000000000000000000000000000-00f067aa0ba902b7-01"), "malformed"),
        (path(*(f"a{n}.example" for n in range(16)), str(BOT.bare), hops=99), "malformed"),
        (path(AGENT, str(BOT.bare)), "loop"),
        (path(f"assistant@{AGENT}", str(BOT.bare)), "loop"),
        (path("other@agent.example", str(BOT.bare), hops=1), "hops-exceeded"),
        (path(hops=0), "hops-exceeded"),
        (path(origin="juliet@capulet.org"), "unknown-skill"),
    ],
)  # fmt: skip
async def test_a_delegation_that_cannot_be_true_is_refused(
    tmp_path: Path, delegation: Delegation, expected: str
) -> None:
    async with service(tmp_path, SETTINGS, skills=(report, erase)) as kit:
        answer = await ask(bot_of(kit), execute("report", delegation, topic="x"))
        assert condition(answer) == expected


async def test_work_that_costs_more_than_its_budget_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path, SETTINGS, skills=(report, erase)) as kit:
        bot = bot_of(kit)
        poor = path(budget_usd=Decimal("0.1"))
        assert condition(await ask(bot, execute("report", poor, topic="x"))) == "budget-exhausted"
        rich = path(budget_usd=Decimal("0.2"))
        assert (await ask(bot, execute("report", rich, topic="x"))).require(Result)


async def test_an_agent_decides_about_delegated_work_by_iq_with_the_digest_only(
    tmp_path: Path,
) -> None:
    ERASED.clear()
    async with service(tmp_path, SETTINGS, skills=(report, erase)) as kit:
        bot = bot_of(kit)
        accepted = (await ask(bot, execute("erase", path(), file="a.txt"))).require(Accepted)
        asked = await bot.receive(lambda stanza: stanza.payload(Confirm) is not None)
        confirm = asked.require(Confirm)
        await bot.say("yes")
        await bot.say(f"/approve {confirm.id}")
        without = Decision(id=confirm.id, value="approve")
        assert condition(await bot.iq("set", encode(without))) == "malformed"
        task = Task(id=accepted.task)
        state = (await bot.iq("get", encode(task))).require(Task).state
        assert (state, ERASED) == ("input-required", [])
        decided = await bot.iq(
            "set", encode(Decision(id=confirm.id, value="approve", hash=confirm.hash))
        )
        assert decided.type == "result"
        ended = await bot.receive(lambda stanza: is_state(stanza, "completed"))
        assert (ended.require(Task).id, ERASED) == (accepted.task, ["a.txt"])


def is_state(stanza: Incoming, state: str) -> bool:
    task = stanza.payload(Task)
    return task is not None and task.state == state and not body(stanza).startswith("?")


def peer_in(message: str) -> PeerSection:
    """The section that a message to admins has."""
    (section,) = tomllib.loads(message.partition("\n\n")[2].partition("\n\n`")[0])["peer"]
    return PeerSection(**section)


async def test_the_section_that_admins_get_fits_the_others(tmp_path: Path) -> None:
    agent = {"unknown_agents": "ask", "admins": ["ann@capulet.example"]}
    settings = SETTINGS | {"agent": SETTINGS["agent"] | agent}
    async with service(tmp_path, settings, skills=(report,)) as kit:
        ann = kit.peer("ann@capulet.example/1")
        for domain, name, origins in (
            ("9lives.example", "peer-9lives", "9lives.example"),
            ("agent.verona.example", "verona-2", "verona.example"),
        ):
            await bot_of(kit, JID.parse(f"assistant@{domain}/1")).iq("get", encode(SkillsQuery()))
            found = peer_in(await ann.hear("which I don't know"))
            assert (found.name, found.believed_domains) == (name, (origins,))
            assert found.offers == ("echo",)


async def test_admins_are_asked_once_about_an_agent_that_nobody_knows(tmp_path: Path) -> None:
    agent = {"unknown_agents": "ask", "admins": ["ann@capulet.example"]}
    settings = SETTINGS | {"agent": SETTINGS["agent"] | agent}
    async with service(tmp_path, settings, skills=(report,)) as kit:
        ann = kit.peer("ann@capulet.example/1")
        for jid in ("romeo@elsewhere.example/1", "assistant@agent.elsewhere.example/1"):
            stranger = bot_of(kit, JID.parse(jid))
            for _ in range(2):
                answer = await stranger.iq("get", encode(SkillsQuery()))
                assert condition(answer) == "service-unavailable"
        told = await ann.hear("which I don't know")
        found = peer_in(told)
        assert (found.name, found.jid) == ("elsewhere", "assistant@agent.elsewhere.example")
        assert found.believed_domains == ("elsewhere.example",)
        await kit.settled()
        assert ann.take() == []


@skill(read_only=True, open_world=False)
async def wait(number: int) -> str:
    """Wait for a long time."""
    await anyio.sleep(3600)
    return str(number)


async def test_a_peer_cannot_fill_the_service_in_the_names_of_many_people(tmp_path: Path) -> None:
    peer = {"name": "verona", "jid": "agent.montague.example", "offers": ["wait"], "open_tasks": 20}
    settings = SETTINGS | {"peer": [peer]}
    async with service(tmp_path, settings, skills=(wait,)) as kit:
        bot = bot_of(kit)
        answers = []
        for number in range(100):
            request = execute("wait", path(origin=f"p{number}@montague.example"), number="1")
            answers.append(await ask(bot, msgspec.structs.replace(request, mode="async")))
        assert [one.type for one in answers] == ["result"] * 20 + ["error"] * 80
        assert {condition(one) for one in answers[20:]} == {"retry"}
        assert await kit.kernel.storage.select("SELECT count(*) FROM tasks") == [(20,)]
        assert await kit.kernel.storage.select("SELECT count(*) FROM replay") == [(20,)]
        # Everybody else is served.
        juliet = kit.peer("juliet@capulet.example/1")
        answer = await ask(juliet, Execute(skill="wait", mode="async", params=NUMBER))
        assert answer.require(Accepted)


NUMBER = (Param(name="number", text="1"),)


async def running_of(kit: Kit) -> Counter[str]:
    found = await kit.kernel.storage.select("SELECT share FROM tasks WHERE owner IS NOT NULL")
    return Counter(share.partition(" ")[2] for (share,) in found)


async def test_one_person_behind_a_peer_does_not_shut_out_the_others(tmp_path: Path) -> None:
    limits = {"running_total": 20, "running_per_principal": 3, "per_principal": 6}
    peer = {"name": "verona", "jid": "agent.montague.example", "offers": ["wait"], "concurrency": 5}
    settings = SETTINGS | {"peer": [peer], "tasks": limits}
    async with service(tmp_path, settings, skills=(wait,)) as kit:
        bot = bot_of(kit)
        greedy, modest, third = (f"{name}@montague.example" for name in ("g", "m", "t"))

        async def begin(origin: str, count: int) -> list[str]:
            answers = []
            for number in range(count):
                request = execute("wait", path(origin=origin), number=str(number))
                answers.append(await ask(bot, msgspec.structs.replace(request, mode="async")))
            return ["accepted" if one.type == "result" else condition(one) for one in answers]

        assert await begin(greedy, 7) == ["accepted"] * 6 + ["retry"]
        assert await begin(modest, 2) == ["accepted"] * 2
        await kit.settled()
        assert await running_of(kit) == {greedy: 3, modest: 2}
        # All of them together have what the peer has.
        assert await begin(third, 1) == ["accepted"]
        await kit.settled()
        assert (await running_of(kit)).total() == 5
