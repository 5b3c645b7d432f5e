"""What `xmpp-agent doctor` says about peers."""

import pytest

from component.config.peers import Peer
from component.features.peers.checks import check_peers
from tests.kit import anyio_backend
from xep.fluux_agent.skills import SkillDescription, SkillsQuery
from xep.jid import JID
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
    async def ask(peer: JID, _query: SkillsQuery) -> SkillsQuery:
        assert str(peer) == "agent.example.net"
        if isinstance(answer, StanzaError):
            raise answer
        return SkillsQuery(skills=tuple(SkillDescription(name=name) for name in answer))

    silent = Peer(name="press", jid="agent.example.com", offers=("report",))
    (check,) = await check_peers((PEER, silent), ask)
    assert (check.name, check.verdict) == ("peer research", verdict)
    assert words in check.text
