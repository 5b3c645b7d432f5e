"""Grants between services: made, passed on, verified, asked about and revoked."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component import system
from component.features.peers import grant_rows
from component.features.peers.trace import answered_at_once, find_work, tree
from component.grants import Grant, SigningKey, digest, read_grant, write_grant
from component.grants.grant import Confirmation
from component.grants.receipt import Receipt, read_receipt, write_receipt
from component.skills import Context, Skill, skill
from component.tasks.receipts import Ending
from tests.component.features.peers.test_calls import (
    ended,
    execute,
    settings,
    sources,
    states,
    text_of,
    used_by,
    using,
)
from tests.component.features.peers.test_incoming import condition, is_state
from tests.kit import Kit, Peer, anyio_backend, service
from tests.kit.xmpp import parse
from xep import pubsub
from xep.binding import encode, read
from xep.fluux_agent import NAMESPACE as FLUUX
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.errors import CONDITIONS, Denied, OutcomeUnknown
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.grant import GrantStatus, SignedGrant, SignedReceipt
from xep.fluux_agent.keys import NAMESPACE as KEYS
from xep.fluux_agent.keys import Key
from xep.fluux_agent.task import Cancel, Task
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ROMEO = "romeo@a.example/phone"
AGENT_A = "assistant@agent.a.example"
AGENT_C = "assistant@agent.c.example"
BOT = "assistant@agent.b.example"
STRANGER = "stranger@nowhere.example/1"
BOT_KEY = SigningKey.of(b"b" * 32)
RUNS: list[str] = []


@skill(open_world=False, destructive=False)
def note(text: str) -> str:
    """Write something down."""
    RUNS.append(text)
    return f"Noted: {text}"


@skill(read_only=True, open_world=False, inline=True)
def quick() -> str:
    """Answer at once."""
    return "Here."


@skill(read_only=True, open_world=False)
async def broken() -> str:
    """Fail."""
    raise RuntimeError("It does not work.")


@skill(read_only=True, open_world=False)
async def ask_first(context: Context, text: str) -> str:
    """Ask something, then have another agent write it down."""
    schema = {"type": "object", "properties": {"ok": {"type": "string"}}}
    await context.ask("Go on?", schema)
    (result,) = await context.wait([await context.start("c.note", {"text": text})])
    return result.text or result.reason


@skill(read_only=True, open_world=False, durable=True)
async def hold(context: Context) -> str:
    """Wait for a day."""
    await context.sleep(86_400)
    return "A day has passed."


@skill(read_only=True, open_world=False, durable=True)
async def hold_on(context: Context) -> str:
    """Have another agent wait."""
    (result,) = await context.wait([await context.start("c.hold", {})])
    return result.text or result.reason


async def until_running(kit: Kit, name: str) -> None:
    """Wait until a task of a skill is there."""
    while not await kit.kernel.storage.select("SELECT 1 FROM tasks WHERE skill = ?", (name,)):
        await kit.advance(1)


ADMIN: dict[str, Any] = {"agent": {"allowed_domains": ["a.example"], "admins": ["romeo@a.example"]}}


@asynccontextmanager
async def three(
    tmp_path: Path,
    *,
    of_b: dict[str, Any] | None = None,
    of_c: dict[str, Any] | None = None,
    **of_a: Any,
) -> AsyncIterator[tuple[Kit, Kit, Kit, Peer]]:
    """Services A, B and C; a skill of B uses one of C, and both demand grants."""
    demands = {"requires": "grant", "origins": ["a.example"]}
    c_settings = settings("c", used_by("b", **demands | (of_c or {})))
    b_settings = settings(
        "b",
        used_by("a", delegates=["c.*"], **demands),
        using("c", read_only=["note", "sources", "hold"], **(of_b or {})),
    )
    a_settings = settings("a", using("b", read_only=["ask_first", "hold_on"], **of_a)) | ADMIN
    async with (
        service(tmp_path / "c", c_settings, skills=(note, sources, hold)) as c,
        service(tmp_path / "b", b_settings, skills=(ask_first, hold_on), beside=c) as b,
        service(tmp_path / "a", a_settings, beside=b) as a,
    ):
        await a.advance(30)
        yield a, b, c, a.peer(ROMEO)


def chains(kit: Kit, to: str) -> list[list[Grant]]:
    """The chains of grants in the requests that were sent to an address, in order."""
    found = []
    for direction, xml in kit.stanzas:
        if direction == "sent" and "urn:fluux:agent:0#grant" in xml:
            stanza = parse(xml)
            asked = stanza.payload(Execute) if stanza.kind == "iq" else None
            if stanza.to == to and asked is not None and asked.delegation is not None:
                found.append([read_grant(each.jws) for each in asked.delegation.grants])
    return found


async def test_each_agent_adds_a_grant_that_gives_no_more_than_it_has(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, _, _, romeo):
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "Noted: rivers"
        (one,), (first, second) = (
            *chains(a, "agent.b.example"),
            *chains(a, "agent.c.example"),
        )
        assert first == one
        assert (first.iss, first.aud, second.iss, second.aud) == (
            *(AGENT_A, "agent.b.example", BOT, "agent.c.example"),
        )
        assert first.sub == second.sub == "romeo@a.example"
        assert second.exp <= first.exp
        assert second.depth < first.depth
        assert "note" in second.skills


async def test_work_must_not_be_passed_on_beyond_what_was_granted(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, b, _, romeo):
        peer = using("b", read_only=["ask_first"], onward=["sources"])
        await a.reload(settings("a", peer) | ADMIN)
        await a.advance(10)
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        assert "does not include note" in text_of((await ended(romeo)).result)
        assert chains(b, "agent.c.example") == []


async def test_a_call_of_a_peer_that_is_known_is_signed_when_it_is_stored(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, b, _, romeo):
        for text in ("rivers", "lakes"):
            await romeo.say(f"/run b.ask_first text={text}")
            await romeo.hear("Go on?")
            await romeo.say("yes")
            assert text_of((await ended(romeo)).result) == f"Noted: {text}"
        assert len(chains(a, "agent.b.example")) == len(chains(a, "agent.c.example")) == 2
        for kit, key_of in ((a, "agent.b.example"), (b, "agent.c.example")):
            asked = [
                xml
                for how, xml in a.stanzas
                if how == "received" and KEYS in xml and f"<iq from='assistant@{kit.agent}'" in xml
            ]
            assert len([xml for xml in asked if f" to='{key_of}'" in xml]) == 1


async def test_a_revoked_grant_ends_what_would_begin_elsewhere(tmp_path: Path) -> None:
    RUNS.clear()
    async with three(tmp_path, of_c={"asks_back": "always"}) as (_, _, _, romeo):
        await romeo.say("/run b.ask_first text=secret")
        await romeo.hear("Go on?")
        listed = await romeo.ask("/grants list", "agent.b.example may use")
        grant, state = listed.split()[:2]
        assert state == "active:"
        await romeo.ask(f"/grants revoke {grant} keep", "What has begun continues")
        await romeo.say("yes")
        assert "the grant is revoked" in text_of((await ended(romeo)).result)
        assert RUNS == []


async def test_a_revocation_cancels_the_call_at_all_agents(tmp_path: Path) -> None:
    RUNS.clear()
    async with three(tmp_path) as (a, b, c, romeo):
        await romeo.say("/run b.hold_on")
        await until_running(c, "hold")
        grant = (await romeo.ask("/grants list", "agent.b.example may use")).split()[0]
        await romeo.ask(f"/grants revoke {grant}", "is cancelled at all agents")
        task = await ended(romeo)
        assert task.failure is not None
        assert task.failure.conditions == (Denied(),)
        assert "An admin has revoked the grant" in task.failure.texts[0].text
        assert [await states(kit) for kit in (b, c)] == [["cancelled"] * 2, ["cancelled"]]
        assert not await a.kernel.storage.select("SELECT 1 FROM peer_calls WHERE state <> 'ended'")


async def test_a_grant_that_was_revoked_while_the_service_was_down_cancels_its_call(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (a, _, c, romeo):
        await romeo.say("/run b.hold_on")
        await until_running(c, "hold")
        ((grant,),) = await a.kernel.storage.select("SELECT id FROM peer_grants")
        # As the command does it while no service runs.
        await a.kernel.storage.write(lambda db: grant_rows.revoke(db, grant))
        await a.restart(kill=True)
        assert (await ended(romeo)).state == "failed"
        assert await states(c) == ["cancelled"]


async def test_an_agent_asks_back_before_it_begins(tmp_path: Path) -> None:
    async with three(tmp_path, of_c={"asks_back": "always"}) as (a, _, _, romeo):
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "Noted: rivers"
        asked = [xml for how, xml in a.stanzas if how == "received" and "0#grant' digest" in xml]
        assert asked


# One service with a peer that speaks raw XMPP; the first agent is another service.


@asynccontextmanager
async def with_bot(
    tmp_path: Path, *skills: Skill, **of_bot: Any
) -> AsyncIterator[tuple[Kit, Kit, Peer]]:
    """Services A and C, and an agent between them whose every word a test chooses."""
    bot = {"name": "b", "jid": BOT, "offers": ["*"], "origins": ["a.example"], **of_bot}
    other = {"name": "other", "jid": "agent.other.example", "skills": ["x"]}
    async with (
        service(tmp_path / "a", settings("a", other) | ADMIN) as a,
        service(tmp_path / "c", settings("c", bot), skills=skills or (sources,), beside=a) as c,
    ):
        yield a, c, c.peer(f"{BOT}/1", features=(FLUUX,))


async def first_grant(a: Kit, **claims: Any) -> tuple[Grant, str]:
    """A grant of A for the bot, in both forms."""
    key = await a.kernel.storage.write(lambda db: grant_rows.current_key(db, AGENT_A))
    now = int(system.now().timestamp())
    grant = Grant(
        iss=AGENT_A,
        sub="romeo@a.example",
        aud=BOT,
        skills=("*",),
        depth=2,
        exp=now + 600,
        iat=now,
        jti="g1",
        cnf=Confirmation(jwk=BOT_KEY.public),
    )
    grant = msgspec.structs.replace(grant, **claims)
    return grant, write_grant(grant, key.key)


def second_grant(first: Grant, compact: str, **claims: Any) -> str:
    """A grant of the bot for C that follows from one of A."""
    grant = msgspec.structs.replace(
        first, iss=BOT, aud=AGENT_C, depth=1, jti="g2", par=digest(compact), cnf=None
    )
    return write_grant(msgspec.structs.replace(grant, **claims), BOT_KEY)


def request(
    chain: Sequence[str], name: str = "sources", *, repeated: str | None = None, **more: Any
) -> str:
    more = {"via": (JID.parse(AGENT_A), JID.parse(BOT)), "origin": "romeo@a.example"} | more
    delegation = Delegation(
        origin=JID.parse(more["origin"]),
        max_hops=4,
        via=more["via"],
        grants=tuple(SignedGrant(jws=each) for each in chain),
    )
    deadline = (system.now() + timedelta(seconds=300)).replace(microsecond=0)
    given = (
        (Param(name="topic", text="x"),) if name == "sources" else (Param(name="text", text="x"),)
    )
    return encode(
        Execute(
            skill=name, params=given, deadline=deadline, delegation=delegation, request=repeated
        )
    )


async def test_a_valid_chain_is_accepted(tmp_path: Path) -> None:
    async with with_bot(tmp_path, requires="grant") as (a, _, bot):
        grant, first = await first_grant(a)
        answer = await bot.iq("set", request([first, second_grant(grant, first)]))
        assert answer.payload(Result) is not None


async def test_a_wrong_chain_is_refused_even_where_none_is_demanded(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        assert (await bot.iq("set", request([]))).payload(Result) is not None
        grant, first = await first_grant(a, skills=("report",))
        answer = await bot.iq("set", request([first, second_grant(grant, first, skills=("*",))]))
        assert (condition(answer), answer.error().condition) == ("invalid-grant", "forbidden")


async def test_a_peer_that_needs_grants_gets_nothing_without(tmp_path: Path) -> None:
    async with with_bot(tmp_path, sources, quick, requires="grant") as (_, _, bot):
        assert condition(await bot.iq("set", encode(Execute(skill="quick")))) == "grant-required"
        answer = await bot.iq("set", request([]))
        assert (condition(answer), answer.error().condition) == ("grant-required", "not-authorized")
        plain = Execute(skill="sources", params=(Param(name="topic", text="x"),))
        assert condition(await bot.iq("set", encode(plain))) == "grant-required"
        named = msgspec.structs.replace(plain, request="r1", mode="async")
        assert condition(await bot.iq("set", encode(named))) == "grant-required"


async def test_grants_give_no_skill_that_is_not_offered(tmp_path: Path) -> None:
    async with with_bot(tmp_path, sources, note, offers=["sources"]) as (a, _, bot):
        grant, first = await first_grant(a)
        answer = await bot.iq("set", request([first, second_grant(grant, first)], "note"))
        assert condition(answer) == "unknown-skill"


async def test_an_agent_speaks_for_people_of_its_own_domain_only(tmp_path: Path) -> None:
    async with with_bot(tmp_path, origins=["*"]) as (a, _, bot):
        grant, first = await first_grant(a, sub="juliet@capulet.example")
        chain = [first, second_grant(grant, first)]
        answer = await bot.iq("set", request(chain, origin="juliet@capulet.example"))
        assert condition(answer) == "invalid-grant"
        assert "does not speak for juliet@capulet.example" in answer.error().text


@pytest.mark.parametrize(
    ("issuer", "why"),
    [
        ("juliet@a.example", "does not speak for romeo@a.example"),
        ("helper@agent.a.example", "does not speak for romeo@a.example"),
        ("assistant@a.example", "has not published the key"),  # the domain has not
    ],
)
async def test_an_account_that_publishes_keys_speaks_for_nobody(
    tmp_path: Path, issuer: str, why: str
) -> None:
    async with with_bot(tmp_path, origins=["*"]) as (a, c, bot):
        grant = (await first_grant(a, iss=issuer))[0]
        first = write_grant(grant, BOT_KEY)
        via = (JID.parse(issuer), JID.parse(BOT))
        answer = await bot.iq("set", request([first, second_grant(grant, first)], via=via))
        assert condition(answer) == "invalid-grant"
        assert why in answer.error().text
        sent = [parse(xml) for how, xml in c.stanzas if how == "received" and KEYS in xml]
        assert {each.to for each in sent} <= {"a.example"}


async def test_the_same_request_with_other_grants_is_a_conflict(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        grant, first = await first_grant(a)
        chain = [first, second_grant(grant, first)]
        assert (await bot.iq("set", request(chain, repeated="r1"))).payload(Result) is not None
        other = [first, second_grant(grant, first, jti="g3")]
        assert condition(await bot.iq("set", request(other, repeated="r1"))) == "conflict"


async def test_keys_are_those_at_the_address_of_the_first_agent(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, c, bot):
        grant, _first = await first_grant(a)
        forged = write_grant(grant, BOT_KEY)
        answer = await bot.iq("set", request([forged, second_grant(grant, forged)]))
        assert condition(answer) == "invalid-grant"
        assert "has not published the key" in answer.error().text
        sent = [parse(xml) for how, xml in c.stanzas if how == "received" and KEYS in xml]
        asked = [(each.sender, each.to) for each in sent if each.type == "get"]
        assert asked == [("agent.c.example", "agent.a.example")]


async def test_new_keys_take_the_place_of_old_ones_without_a_gap(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, c, bot):
        grant, first = await first_grant(a)
        assert (await bot.iq("set", request([first, second_grant(grant, first)]))).payload(Result)
        romeo = a.peer(ROMEO)
        await romeo.ask("/grants new-keys", "new keys")
        await c.advance(90)
        newer, after = await first_grant(a, jti="g9")
        assert (await bot.iq("set", request([after, second_grant(newer, after)]))).payload(Result)
        # The old one still counts.
        assert (await bot.iq("set", request([first, second_grant(grant, first)]))).payload(Result)


async def test_an_agent_whose_keys_cannot_be_fetched_may_be_there_later(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        grant, first = await first_grant(a)
        await a.kill()
        answer = await bot.iq("set", request([first, second_grant(grant, first)]))
        assert condition(answer) == "retry"
        await a.start()
        answer = await bot.iq("set", request([first, second_grant(grant, first)]))
        assert answer.payload(Result) is not None


async def test_an_agent_that_cannot_ask_back_may_do_so_later(tmp_path: Path) -> None:
    async with with_bot(tmp_path, asks_back="always") as (a, _c, bot):
        grant, first = await first_grant(a)
        chain = [first, second_grant(grant, first)]
        # A knows nothing of this grant, because it has not stored it.
        assert condition(await bot.iq("set", request(chain))) == "invalid-grant"
        await a.kill()
        assert condition(await bot.iq("set", request(chain))) == "retry"


async def keys_seen_by(reader: Peer, address: str) -> dict[str | None, Key]:
    asked = Pubsub(items=pubsub.Items(node=KEYS))
    answer = await reader.iq("get", encode(asked), address)
    items = answer.require(Pubsub).items
    assert items is not None
    return {each.id: read(each.payloads[0].text, Key) for each in items.items}


async def test_everybody_reads_the_keys_and_nothing_else(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, _):
        stranger = a.peer(STRANGER)
        keys = await keys_seen_by(stranger, "agent.a.example")
        assert keys == await keys_seen_by(stranger, AGENT_A)
        ((kid, key),) = keys.items()
        stored = await a.kernel.storage.write(lambda db: grant_rows.current_key(db, AGENT_A))
        assert (kid, key.x, key.retired) == (stored.kid, stored.x, None)
        for payload in (
            encode(Pubsub(items=pubsub.Items(node=f"{FLUUX}#skills"))),
            encode(Pubsub(subscriptions=pubsub.Subscriptions(node=KEYS))),
            f"<pubsub xmlns='{pubsub.NAMESPACE}'><items node='{KEYS}' max_items='x'/></pubsub>",
        ):
            answer = await stranger.iq("get", payload, AGENT_A)
            assert answer.error().condition == "service-unavailable"
        publish = Pubsub(publish=pubsub.Publish(node=KEYS, items=(pubsub.Item(id="x"),)))
        answer = await stranger.iq("set", encode(publish), AGENT_A)
        assert answer.error().condition == "service-unavailable"


async def status(asker: Peer, of: str) -> Incoming:
    return await asker.iq("get", encode(GrantStatus(digest=of)), AGENT_A)


async def test_whoever_knows_a_grant_may_ask_about_it(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, _, _, romeo):
        stranger = a.peer(STRANGER)
        assert (await status(stranger, "x" * 43)).error().condition == "item-not-found"
        accepted = (await execute(romeo, "b.ask_first", text="rivers")).require(Accepted)
        await a.advance(10)
        ((made, grant),) = await a.kernel.storage.select("SELECT digest, id FROM peer_grants")
        assert (await status(stranger, made)).require(GrantStatus).state == "active"
        await romeo.iq("set", encode(Cancel(id=accepted.task)))
        await a.advance(10)
        assert (await status(stranger, made)).require(GrantStatus).state == "ended"
        await romeo.ask(f"/grants revoke {grant}", "Revoked")
        assert (await status(stranger, made)).require(GrantStatus).state == "revoked"
        await a.restart(kill=True)
        assert (await status(stranger, made)).require(GrantStatus).state == "revoked"


async def test_a_key_is_kept_until_its_last_grant_has_ended(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, _):
        stranger = a.peer(STRANGER)
        (old,) = await keys_seen_by(stranger, AGENT_A)
        await a.jump(31 * 86_400, stride_s=86_400)
        keys = await keys_seen_by(stranger, AGENT_A)
        assert next(iter(keys)) == old
        assert keys[old].retired is not None
        (new,) = [kid for kid in keys if kid != old]
        await a.jump(9 * 86_400, stride_s=86_400)
        assert list(await keys_seen_by(stranger, AGENT_A)) == [new]


# Receipts.


def receipts_in(kit: Kit) -> list[Receipt]:
    """The receipts that were sent, in order and without repetitions."""
    found = []
    for xml in [xml for how, xml in kit.stanzas if how == "received" and "<receipt" in xml]:
        text = xml.partition("<receipt xmlns='urn:fluux:agent:0#grant'>")[2].partition("<")[0]
        receipt = read_receipt(text)
        if receipt not in found:
            found.append(receipt)
    return found


async def stored_receipts(kit: Kit) -> list[Receipt]:
    found = await kit.kernel.storage.select("SELECT receipt FROM peer_calls")
    return [read_receipt(row[0]) for row in found if row[0] is not None]


async def test_each_agent_signs_what_it_has_done_and_what_others_have_done_for_it(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (a, b, _, romeo):
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        await ended(romeo)
        (of_c,) = await stored_receipts(b)
        (of_b,) = await stored_receipts(a)
        assert (of_c.iss, of_c.aud, of_c.sub) == (AGENT_C, BOT, "romeo@a.example")
        assert (of_c.skill, of_c.state) == ("note", "completed")
        assert (of_b.iss, of_b.aud, of_b.skill) == (BOT, AGENT_A, "ask_first")
        assert [read_receipt(each) for each in of_b.receipts] == [of_c]
        assert of_b.trace == of_c.trace
        assert of_b.usage.duration_ms is not None


def of_bot() -> Delegation:
    """What a request of the bot for a person says about her."""
    return Delegation(origin=JID.parse("romeo@a.example"), max_hops=4, via=(JID.parse(BOT),))


def has_failed(stanza: Incoming) -> bool:
    task = stanza.payload(Task)
    return task is not None and task.failure is not None


async def test_a_failure_has_a_receipt_too(tmp_path: Path) -> None:
    async with with_bot(tmp_path, broken) as (_, c, bot):
        asked = Execute(skill="broken", mode="async", delegation=of_bot(), request="r1")
        await bot.iq("set", encode(asked))
        await bot.receive(
            lambda stanza: (task := stanza.payload(Task)) is not None and task.failure is not None
        )
        (receipt,) = receipts_in(c)
        assert (receipt.state, receipt.request, receipt.aud) == ("failed", "r1", BOT)


@skill(read_only=True, open_world=False, inline=True)
def broken_at_once() -> str:
    """Fail at once."""
    raise RuntimeError("It does not work.")


@pytest.mark.parametrize("name", ["broken", "broken_at_once"])
async def test_an_error_has_a_receipt_too_and_a_repetition_the_same(
    tmp_path: Path, name: str
) -> None:
    async with with_bot(tmp_path, broken, broken_at_once) as (_, c, bot):
        asked = encode(Execute(skill=name, delegation=of_bot(), request="r1", mode="inline"))
        errors = [(await bot.iq("set", asked)).error((*CONDITIONS, SignedReceipt)) for _ in "12"]
        receipts = [one.application[1] for one in errors]
        assert receipts[0] == receipts[1]
        assert isinstance(receipts[0], SignedReceipt)
        receipt = read_receipt(receipts[0].jws)
        assert (receipt.state, receipt.request, receipt.skill) == ("failed", "r1", name)
        assert receipt.usage.cost_usd == 0
        assert receipt == receipts_in(c)[0]


async def test_cancelled_work_has_a_receipt_without_a_condition(tmp_path: Path) -> None:
    async with with_bot(tmp_path, hold) as (_, _, bot):
        asked = Execute(skill="hold", mode="async", delegation=of_bot(), request="r1")
        accepted = (await bot.iq("set", encode(asked))).require(Accepted)
        await bot.iq("set", encode(Cancel(id=accepted.task)))
        told = await bot.receive(lambda stanza: is_state(stanza, "cancelled"))
        failure = told.require(Task).failure
        assert failure is not None
        assert failure.conditions == ()
        assert failure.receipt is not None
        receipt = read_receipt(failure.receipt.jws)
        assert (receipt.state, receipt.task) == ("cancelled", accepted.task)
        found = await bot.iq("get", encode(Task(id=accepted.task)))
        assert found.require(Task).failure == failure


@skill(open_world=False)
def erase(file: str) -> str:
    """Erase a file."""
    return f"{file} is gone."


async def test_rejected_work_has_a_receipt(tmp_path: Path) -> None:
    async with with_bot(tmp_path, erase, sources) as (_, c, bot):
        asked = Execute(skill="erase", params=(Param(name="file", text="a"),), delegation=of_bot())
        await bot.iq("set", encode(asked))
        confirm = (await bot.receive(lambda stanza: stanza.payload(Confirm) is not None)).require(
            Confirm
        )
        peer = {"name": "b", "jid": BOT, "offers": ["sources"], "origins": ["a.example"]}
        await c.reload(settings("c", peer))
        decision = Decision(id=confirm.id, value="approve", hash=confirm.hash)
        await bot.iq("set", encode(decision))
        told = await bot.receive(lambda stanza: is_state(stanza, "rejected"))
        failure = told.require(Task).failure
        assert failure is not None
        assert failure.receipt is not None
        assert read_receipt(failure.receipt.jws).state == "rejected"


async def test_work_past_its_deadline_has_a_receipt(tmp_path: Path) -> None:
    async with with_bot(tmp_path, hold) as (_, c, bot):
        deadline = (system.now() + timedelta(seconds=60)).replace(microsecond=0)
        asked = Execute(skill="hold", mode="async", delegation=of_bot(), deadline=deadline)
        await bot.iq("set", encode(asked))
        await bot.receive(has_failed, within_s=200)
        (receipt,) = receipts_in(c)
        assert receipt.state == "failed"


@skill(open_world=False, destructive=False, durable=True)
async def never(context: Context) -> str:
    """Begin something that does not end."""

    async def begin(_key: str) -> str:
        await anyio.sleep_forever()
        return ""

    return await context.step("begin", begin, str)


async def test_work_whose_outcome_is_unknown_has_no_receipt(tmp_path: Path) -> None:
    async with with_bot(tmp_path, never) as (_, c, bot):
        asked = Execute(skill="never", mode="async", delegation=of_bot(), request="r1")
        accepted = (await bot.iq("set", encode(asked))).require(Accepted)
        await bot.receive(lambda stanza: is_state(stanza, "running"))
        await bot.iq("set", encode(Cancel(id=accepted.task)))
        told = await bot.receive(has_failed)
        failure = told.require(Task).failure
        assert failure is not None
        assert failure.conditions == (OutcomeUnknown(),)
        assert receipts_in(c) == []


async def test_work_of_people_has_no_receipt(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (_, c, _):
        juliet = c.peer("juliet@c.example/1")
        assert (await execute(juliet, "sources", topic="x")).payload(Result) is not None
        assert receipts_in(c) == []


async def test_a_receipt_that_is_not_the_peers_does_not_count_and_its_result_does(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (a, b, _, romeo):

        def forged(ending: Ending) -> SignedReceipt:
            """A receipt that is right, but for its key, which B does not publish."""
            claims = Receipt(
                iss=BOT,
                aud=AGENT_A,
                sub="romeo@a.example",
                iat=1,
                jti="x",
                skill="ask_first",
                state="completed",
                request=ending.request.name,
            )
            return SignedReceipt(jws=write_receipt(claims, SigningKey.of(b"x" * 32)))

        b.kernel.tasks.service.sign_receipts(forged)
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "Noted: rivers"
        assert await stored_receipts(a) == []


# What became of it.


async def test_a_trace_shows_what_all_agents_of_a_path_have_done(tmp_path: Path) -> None:
    async with three(tmp_path) as (a, b, c, romeo):
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        task = (await ended(romeo)).id
        (work,) = await a.kernel.storage.read(lambda db: find_work(db, task))
        lines = [re.sub(r"[0-9][0-9.e-]* s", "1 s", line) for line in tree(work)]
        found = re.sub(r" \(task [^)]*\)", "", "\n".join(lines))
        assert found == (
            f"{AGENT_A} b.ask_first for romeo@a.example: completed, 1 s\n"
            f"└─ {BOT} ask_first for romeo@a.example: completed, 1 s, with its receipt\n"
            f"   └─ {AGENT_C} note for romeo@a.example: completed, 1 s, as {BOT} says"
        )
        trace = work.parts[0].trace
        assert await a.kernel.storage.read(lambda db: find_work(db, trace)) == [work]
        (of_b,) = await b.kernel.storage.read(lambda db: find_work(db, trace))
        assert (of_b.skill, of_b.person) == ("ask_first", "romeo@a.example")
        for kit, skills in ((b, ["ask_first", "c.note"]), (c, ["note"])):
            audited = {line.subject for line in await kit.audited() if line.trace == trace}
            assert audited.issuperset(skills)
        (line,) = [line for line in await a.audited() if line.trace == trace]
        assert (line.outcome, line.subject, line.task) == ("delegated", "b.ask_first", task)
        assert line.detail == "agent.b.example has completed it, with a receipt"


async def test_a_trace_shows_what_was_answered_at_once(tmp_path: Path) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with with_bot(tmp_path, quick, broken_at_once) as (_, c, bot):
        delegation = msgspec.structs.replace(of_bot(), trace=f"00-{trace}-00f067aa0ba902b7-01")
        for name in ("quick", "broken_at_once"):
            await bot.iq("set", encode(Execute(skill=name, delegation=delegation)))
        await bot.iq("set", encode(Execute(skill="quick")))
        lines = [line for line in await c.audited() if line.trace == trace]
        assert await c.kernel.storage.read(lambda db: find_work(db, trace)) == []
        found = answered_at_once(lines, [], lambda name: f"{name}@agent.c.example")
        assert [line for work in found for line in tree(work)] == [
            f"{AGENT_C} quick for romeo@a.example: completed",
            f"{AGENT_C} broken_at_once for romeo@a.example: failed",
        ]


async def test_a_trace_shows_calls_that_a_peer_answered_at_once(tmp_path: Path) -> None:
    async with three(tmp_path) as (_, b, _, romeo):
        await romeo.say("/run b.ask_first text=rivers")
        await romeo.hear("Go on?")
        await romeo.say("yes")
        await ended(romeo)
        lines = await b.audited()
        (delegated,) = [line for line in lines if line.outcome == "delegated"]
        (known,) = await b.kernel.storage.read(lambda db: find_work(db, delegated.trace))
        assert answered_at_once(lines, [known], str) == []
        (work,) = answered_at_once([delegated], [], str)
        assert (work.agent, work.skill, work.state) == ("agent.c.example", "c.note", "completed")
        assert work.person == "romeo@a.example"


async def test_a_trace_of_nothing_is_empty(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, _):
        for wanted in ("x", "%", "0" * 32):
            found = await a.kernel.storage.read(lambda db, wanted=wanted: find_work(db, wanted))
            assert found == []


# Peers that do not keep to it.


async def test_keys_are_not_fetched_for_each_request_with_an_unknown_one(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, c, bot):
        grant, _ = await first_grant(a)
        for number in range(10):
            forged = write_grant(grant, SigningKey.of(bytes([number]) * 32))
            answer = await bot.iq("set", request([forged, second_grant(grant, forged)]))
            assert condition(answer) == "invalid-grant"
        sent = [parse(xml) for how, xml in c.stanzas if how == "received" and KEYS in xml]
        assert len([each for each in sent if each.type == "get"]) == 1


@pytest.mark.parametrize("chain", [["x"], ["a.b.c"] * 40, ["a" * 20_000], ["a.b.c", "x"]])
async def test_what_is_no_chain_is_refused_without_a_request_to_anybody(
    tmp_path: Path, chain: list[str]
) -> None:
    async with with_bot(tmp_path) as (_, c, bot):
        answer = await bot.iq("set", request(chain))
        assert condition(answer) == "invalid-grant"
        assert not [xml for how, xml in c.stanzas if how == "received" and KEYS in xml]


async def test_a_reload_demands_grants_from_now_on(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (_, c, bot):
        assert (await bot.iq("set", request([]))).payload(Result) is not None
        bot_section = {"name": "b", "jid": BOT, "offers": ["*"], "origins": ["a.example"]}
        await c.reload(settings("c", bot_section | {"requires": "grant"}))
        assert condition(await bot.iq("set", request([]))) == "grant-required"
