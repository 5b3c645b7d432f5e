"""What `xmpp-agent doctor` says about peers."""

import dataclasses
from datetime import UTC, timedelta
from typing import Any

import pytest

from component import system
from component.config.peers import Peer
from component.features.peers.checks import check_offers, check_peers
from component.skills import Registry, skill
from tests.kit import anyio_backend
from xep import pubsub
from xep.binding import Payload
from xep.entity_time import Time, TimeQuery
from xep.fluux_agent.skills import SkillDescription, SkillsQuery
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

PEER = Peer(name="research", jid="agent.example.net", skills=("report", "sources.*"))


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (("report", "sources.web"), "ok", "answers; skills that it offers to this service: 2"),
        (("report",), "warning", "does not offer sources.*"),
        ((), "warning", "offers nothing to this service"),
        (StanzaError("remote-server-not-found"), "warning", "cannot be reached"),
        (StanzaError("remote-server-timeout"), "warning", "cannot be reached"),
        (StanzaError("service-unavailable"), "warning", "in a [[peer]]"),
    ],
)
async def test_each_peer_is_asked_what_it_offers(
    answer: tuple[str, ...] | StanzaError, verdict: str, words: str
) -> None:
    async def ask(peer: JID, query: Payload, _expected: type[Any]) -> Any:
        assert str(peer) == "agent.example.net"
        if isinstance(query, TimeQuery):
            raise StanzaError("service-unavailable")
        if isinstance(answer, StanzaError):
            raise answer
        return SkillsQuery(skills=tuple(SkillDescription(name=name) for name in answer))

    silent = Peer(name="press", jid="agent.example.com", offers=("report",))
    (check,) = await check_peers((PEER, silent), ask)
    assert (check.name, check.verdict) == ("peer research", verdict)
    assert words in check.text


def answering(time_off_s: float, keys: int) -> Any:
    """What asks a peer that has a clock, and publishes keys."""

    async def ask(_peer: JID, query: Payload, _expected: type[Any]) -> Any:
        if isinstance(query, TimeQuery):
            return Time(tzo=UTC, utc=system.now() + timedelta(seconds=time_off_s))
        if isinstance(query, Pubsub):
            items = tuple(pubsub.Item(id=str(number)) for number in range(keys))
            return Pubsub(items=pubsub.Items(node="k", items=items))
        return SkillsQuery(skills=(SkillDescription(name="report"),))

    return ask


@pytest.mark.parametrize(
    ("off_s", "words"),
    [(0, ""), (29, ""), (-29, ""), (90, "seconds fast"), (-90, "seconds slow")],
)
async def test_a_clock_that_is_wrong_is_seen(off_s: float, words: str) -> None:
    peer = Peer(name="research", jid="agent.example.net", skills=("report",))
    first, *more = await check_peers((peer,), answering(off_s, 1))
    assert first.verdict == "ok"
    assert [check.name for check in more] == (["clock of research"] if words else [])
    assert all(words in check.text for check in more)


async def test_a_peer_that_needs_grants_and_has_no_keys_is_seen() -> None:
    peer = Peer(name="press", jid="agent.example.com", offers=("x",), requires="grant")
    assert await check_peers((peer,), answering(0, 1)) == []
    (check,) = await check_peers((peer,), answering(0, 0))
    assert (check.name, check.verdict) == ("keys of press", "warning")
    assert "cannot sign grants" in check.text


def nothing() -> str:
    """Do nothing."""
    return ""


def test_patterns_that_offer_what_changes_this_agent_are_named() -> None:
    registry = Registry()
    for name, source, read_only in (
        ("memory_forget", "component.memory.skills.memory_forget", False),
        ("echo", "component.skills.builtin.echo", True),
        ("report", "reports.report", False),
    ):
        made = skill(name=name, read_only=read_only)(nothing)
        registry.add(dataclasses.replace(made, source=source))
    peers = [
        Peer(name="open", jid="a.example.net", offers=("*",)),
        Peer(name="named", jid="b.example.net", offers=("memory_forget", "r*")),
    ]
    (check,) = check_offers(peers, registry)
    assert (check.name, check.verdict) == ("offers to open", "warning")
    assert "let a.example.net change this agent, by memory_forget:" in check.text
