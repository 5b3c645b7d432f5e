"""An agent in between that uses, changes or replays what it was granted: it speaks raw XMPP."""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from component import system
from component.grants import Grant, SigningKey, digest, write_grant
from component.grants.grant import Confirmation
from component.tasks.delegation import MOST_VIA
from tests.component.features.peers.test_calls import settings, sources
from tests.component.features.peers.test_grants import (
    AGENT_A,
    AGENT_C,
    BOT,
    BOT_KEY,
    first_grant,
    note,
    second_grant,
    with_bot,
)
from tests.component.features.peers.test_incoming import condition
from tests.kit import Kit, Peer, anyio_backend, service
from tests.kit.xmpp import parse
from xep import pubsub
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as FLUUX
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.errors import InvalidGrant
from xep.fluux_agent.execute import Execute, Param
from xep.fluux_agent.grant import SignedGrant
from xep.fluux_agent.keys import Key
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.stanza import IQ, Incoming
from xep.stream import StreamError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ROMEO = "romeo@a.example"
OTHER_BOT = "assistant@agent.d.example"


def asking(
    chain: Sequence[str],
    *via: str,
    skill: str = "sources",
    origin: str = ROMEO,
    within_s: float = 300,
    max_hops: int = MOST_VIA,
) -> str:
    """A request for a skill with a chain of grants."""
    delegation = Delegation(
        origin=JID.parse(origin),
        max_hops=max_hops,
        via=tuple(map(JID.parse, via or (AGENT_A, BOT))),
        grants=tuple(SignedGrant(jws=each) for each in chain),
    )
    name = "topic" if skill == "sources" else "text"
    return encode(
        Execute(
            skill=skill,
            params=(Param(name=name, text="rivers"),),
            deadline=system.now() + timedelta(seconds=within_s),
            delegation=delegation,
        )
    )


def reason(answer: Incoming) -> str:
    """The reason for which a grant is refused; the condition of another answer; empty if it is
    none.
    """
    if answer.type != "error":
        return ""
    error = answer.error((InvalidGrant,))
    return error.application[0].reason if error.application else condition(answer)  # type: ignore[attr-defined]


WIDER: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "more skills": ({"skills": ("sources",)}, {"skills": ("*",)}, "wider-skills"),
    "another skill": ({"skills": ("report",)}, {"skills": ("sources",)}, "wider-skills"),
    "a later end": ({}, {"exp": 2**40}, "later-expiry"),
    "as many hops": ({"depth": 1}, {"depth": 1}, "too-deep"),
    "a hop that was not granted": ({"depth": 0}, {"depth": 0}, "too-deep"),
    "another person": ({}, {"sub": "juliet@a.example"}, "wrong-origin"),
    "another parent": ({}, {"par": digest("x")}, "wrong-parent"),
    "no parent": ({}, {"par": None}, "wrong-parent"),
    "the grant of another agent": ({"aud": OTHER_BOT}, {}, "wrong-path"),
    "a grant for another agent": ({}, {"aud": OTHER_BOT}, "wrong-audience"),
    "a grant for another skill": ({}, {"skills": ("report",)}, "skill-not-granted"),
}


@pytest.mark.parametrize("what", WIDER)
async def test_an_agent_cannot_give_more_than_it_has(tmp_path: Path, what: str) -> None:
    of_first, of_second, expected = WIDER[what]
    async with with_bot(tmp_path) as (a, _, bot):
        grant, first = await first_grant(a, **of_first)
        chain = [first, second_grant(grant, first, **of_second)]
        origin = of_second.get("sub", ROMEO)
        assert reason(await bot.iq("set", asking(chain, origin=origin))) == expected


async def test_grants_for_one_person_are_of_no_use_for_another(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        grant, first = await first_grant(a)
        chain = [first, second_grant(grant, first)]
        answer = await bot.iq("set", asking(chain, origin="juliet@a.example"))
        assert reason(answer) == "wrong-origin"


async def test_an_agent_cannot_use_what_was_granted_to_another_one(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, c, bot):
        peers = [
            {"name": name, "jid": jid, "offers": ["*"], "origins": ["a.example"]}
            for name, jid in (("b", BOT), ("d", OTHER_BOT))
        ]
        await c.reload(settings("c", *peers))
        thief = c.peer(f"{OTHER_BOT}/1", features=(FLUUX,))
        grant, first = await first_grant(a)
        chain = [first, second_grant(grant, first)]
        assert reason(await bot.iq("set", asking(chain))) == ""
        assert reason(await thief.iq("set", asking(chain))) == "malformed"  # a forged path
        assert reason(await thief.iq("set", asking(chain, AGENT_A, OTHER_BOT))) == "wrong-path"
        # It signs a grant of its own after that of another agent's.
        own = second_grant(grant, first, iss=OTHER_BOT)
        assert reason(await thief.iq("set", asking([first, own], AGENT_A, OTHER_BOT))) == (
            "wrong-path"
        )


async def test_a_grant_outlives_no_change_of_what_is_offered(tmp_path: Path) -> None:
    async with with_bot(tmp_path, sources, note) as (a, c, bot):
        grant, first = await first_grant(a)
        chain = [first, second_grant(grant, first)]
        assert reason(await bot.iq("set", asking(chain))) == ""
        peer = {"name": "b", "jid": BOT, "offers": ["note"], "origins": ["a.example"]}
        await c.reload(settings("c", peer))
        assert reason(await bot.iq("set", asking(chain))) == "unknown-skill"


@pytest.mark.parametrize(
    ("of_first", "of_second", "expected"),
    [
        ({"exp": -20}, {"exp": -20}, "deadline-expired"),  # of the request, which ends with it
        ({"exp": -40}, {"exp": -40}, "expired"),
        ({"exp": -40}, {"exp": 300}, "later-expiry"),
        ({"iat": 20}, {}, ""),
        ({"iat": 40}, {}, "not-yet-valid"),
        ({}, {"iat": 20}, ""),
        ({}, {"iat": 40}, "not-yet-valid"),
    ],
)
async def test_clocks_may_differ_by_thirty_seconds(
    tmp_path: Path, of_first: dict[str, int], of_second: dict[str, int], expected: str
) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        now = int(system.now().timestamp())

        def at(offsets: dict[str, int]) -> dict[str, int]:
            return {"iat": now} | {name: now + offset for name, offset in offsets.items()}

        grant, first = await first_grant(a, **at(of_first))
        chain = [first, second_grant(grant, first, **at(of_second))]
        within_s = min(of_first.get("exp", 300), of_second.get("exp", 300))
        assert reason(await bot.iq("set", asking(chain, within_s=within_s))) == expected


async def test_the_longest_path_is_verified_and_a_longer_one_refused(tmp_path: Path) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        grant, first = await first_grant(a, depth=20, aud="agent-1@far.example")
        grant = msgspec.structs.replace(grant, cnf=Confirmation(jwk=BOT_KEY.public))
        for most, expected in ((MOST_VIA, ""), (MOST_VIA + 1, "malformed")):
            names = [f"agent-{number}@far.example" for number in range(1, most - 1)] + [BOT]
            chain, last = [first], grant
            for issuer, audience in zip(names, [*names[1:], AGENT_C], strict=True):
                last = msgspec.structs.replace(
                    last, iss=issuer, aud=audience, depth=last.depth - 1, par=digest(chain[-1])
                )
                chain.append(write_grant(last, BOT_KEY))
            answer = await bot.iq("set", asking(chain, AGENT_A, *names, max_hops=20))
            assert reason(answer) == expected


def with_header(compact: str, **header: str) -> str:
    """A grant with another header, under the signature that it had."""
    given = json.loads(base64.urlsafe_b64decode(compact.partition(".")[0] + "=="))
    text = base64.urlsafe_b64encode(json.dumps(given | header).encode()).rstrip(b"=").decode()
    return f"{text}.{compact.partition('.')[2]}"


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "ES256"},
        {"alg": "EdDSA"},
        {"typ": "JWT"},
        {"typ": "fluux-receipt+jwt"},
        {"jku": "https://evil.example/keys"},
        {"crit": "b64"},
    ],
)
async def test_a_grant_is_signed_in_one_way_only(tmp_path: Path, header: dict[str, str]) -> None:
    async with with_bot(tmp_path) as (a, _, bot):
        grant, first = await first_grant(a)
        changed = with_header(first, **header)
        answer = await bot.iq("set", asking([changed, second_grant(grant, changed)]))
        assert reason(answer) == "malformed"
        second = with_header(second_grant(grant, first), **header)
        assert reason(await bot.iq("set", asking([first, second]))) == "malformed"


# Keys.


class KeysAgent:
    """The agent of a domain that publishes what a test says: items, as (id, payload)."""

    def __init__(self, kit: Kit, domain: str, items: Sequence[tuple[str, str]]) -> None:
        self._items = items
        kit.xmpp.add_service(domain, "s")
        self._home = kit.xmpp.connect_link(domain, self)

    def send(self, xml: str) -> None:
        """Take a stanza from the server."""
        stanza = parse(xml)
        asked = stanza.payload(Pubsub) if stanza.kind == "iq" else None
        if asked is None:
            return
        items = "".join(f"<item id='{id_}'>{payload}</item>" for id_, payload in self._items)
        answer = IQ(
            type="result",
            id=stanza.id or "",
            to=JID.parse(stanza.sender or ""),
            from_=JID.parse(stanza.to or ""),
        ).encode()
        node = f"{FLUUX}#keys"
        payload = (
            f"<pubsub xmlns='{pubsub.NAMESPACE}'><items node='{node}'>{items}</items></pubsub>"
        )
        self._say(answer.replace("/>", f">{payload}</iq>"))

    def _say(self, xml: str) -> None:
        stanza = parse(xml)
        self._home.from_component(JID.parse(stanza.sender or ""), stanza, self)

    def close(self, error: StreamError) -> None:
        raise AssertionError(f"the stream has ended: {error}")


FIRST_KEY, SECOND_KEY = SigningKey.of(b"1" * 32), SigningKey.of(b"2" * 32)


def item(id_: str, key: SigningKey, **attributes: str) -> tuple[str, str]:
    payload = encode(Key(created=system.now(), x=key.x))
    for name, value in attributes.items():
        payload = payload.replace(f"{name}='Ed25519'", f"{name}='{value}'")
    return id_, payload


@pytest.mark.parametrize(
    ("items", "signer", "expected"),
    [
        ([("one", FIRST_KEY), ("one", SECOND_KEY)], FIRST_KEY, ""),
        ([("one", FIRST_KEY), ("one", SECOND_KEY)], SECOND_KEY, ""),
        # An item that has the name of the key of somebody else does not take its place.
        ([(FIRST_KEY.public.kid, SECOND_KEY)], FIRST_KEY, "wrong-key"),
        ([], FIRST_KEY, "wrong-key"),
    ],
)
async def test_a_key_is_known_by_its_content_not_by_the_name_of_its_item(
    tmp_path: Path, items: list[tuple[str, SigningKey]], signer: SigningKey, expected: str
) -> None:
    async with published(tmp_path, [item(*each) for each in items]) as (grant, bot):
        first = write_grant(grant, signer)
        chain = [first, second_grant(grant, first)]
        assert reason(await bot.iq("set", asking(chain, grant.iss, BOT, origin=grant.sub))) == (
            expected
        )


@pytest.mark.parametrize("curve", ["X25519", "Ed448", "P-256", ""])
async def test_a_key_of_another_algorithm_is_ignored_and_the_others_count(
    tmp_path: Path, curve: str
) -> None:
    items = [item("one", FIRST_KEY, crv=curve), item("two", SECOND_KEY)]
    items += [("three", "<key xmlns='urn:fluux:agent:0#keys'/>"), ("four", "<x xmlns='y'/>")]
    async with published(tmp_path, items) as (grant, bot):
        for signer, expected in ((FIRST_KEY, "wrong-key"), (SECOND_KEY, "")):
            first = write_grant(grant, signer)
            chain = [first, second_grant(grant, first)]
            answer = await bot.iq("set", asking(chain, grant.iss, BOT, origin=grant.sub))
            assert reason(answer) == expected


@asynccontextmanager
async def published(
    tmp_path: Path, items: Sequence[tuple[str, str]]
) -> AsyncIterator[tuple[Grant, Peer]]:
    """A grant of an agent that publishes these keys, and the agent between it and service C."""
    bot = {"name": "b", "jid": BOT, "offers": ["*"], "origins": ["e.example"]}
    async with service(tmp_path / "c", settings("c", bot), skills=(sources,)) as c:
        KeysAgent(c, "agent.e.example", items)
        now = int(system.now().timestamp())
        grant = Grant(
            iss="assistant@agent.e.example",
            sub="romeo@e.example",
            aud=BOT,
            skills=("*",),
            depth=2,
            exp=now + 600,
            iat=now,
            jti="g1",
            cnf=Confirmation(jwk=BOT_KEY.public),
        )
        yield grant, c.peer(f"{BOT}/1", features=(FLUUX,))
