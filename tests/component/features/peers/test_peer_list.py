"""The command that lists peers."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from component.commands import OPERATOR
from component.features.peers.peer_list import PeerCommands
from tests.component.features.peers.scripted import AGAIN_S, ScriptedAgent, described
from tests.component.features.peers.test_calls import ROMEO, run, settings, using
from tests.kit import anyio_backend, service
from xep.fluux_agent.execute import Accepted, Result, Usage
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ADMIN = {
    "agent": {"allowed_domains": ["a.example"], "admins": ["romeo@a.example"]},
    "policy": {"confirm": "never"},
}


async def test_admins_see_what_is_known_of_each_peer(tmp_path: Path) -> None:
    limited = using("b", day_usd=5, unreachable_s=600)
    silent = {"name": "d", "jid": "agent.d.example", "offers": ["echo"], "origins": ["*"]}
    async with service(tmp_path, settings("a", limited, silent) | ADMIN) as a:
        romeo = a.peer(ROMEO)
        b = ScriptedAgent(a, "agent.b.example", [described("x"), described("y")])
        before = await romeo.ask("/peers", "agent.b.example")
        assert "b (agent.b.example): not heard of lately; used: *; offered to it: nothing" in before
        await a.advance(AGAIN_S)
        text = await romeo.ask("/peers", "agent.b.example")
        assert "b (agent.b.example): answers; used: * (2 skills, known until " in text
        b.results["x"] = Result(
            skill="x", usage=Usage(cost_usd=Decimal("0.25"), tokens_in=40, tokens_out=2)
        )
        await run(romeo, "b.x")
        b.results["y"] = Accepted(task="t1")
        await romeo.say("/run b.y")
        await a.advance(2)
        text = await romeo.ask("/peers", "agent.b.example")
        assert "open calls: 1; today: 5 of 5 USD; today: 42 tokens" in text
        assert "d (agent.d.example): not heard of lately; used: nothing; offered to it: echo" in (
            text
        )
        b.results["x"] = StanzaError("remote-server-not-found")
        await romeo.say("/run b.x")
        await a.advance(40)
        assert "does not answer" in await romeo.ask("/peers", "agent.b.example")


async def test_the_list_needs_no_service(tmp_path: Path) -> None:
    async with service(tmp_path, settings("a", using("b")) | ADMIN) as a:
        (command,) = PeerCommands(a.kernel.storage, a.kernel.settings.peer).commands()
        found = (await command.run(OPERATOR, command.read())).value
        (line,) = msgspec.to_builtins(found)
        assert (line["name"], line["answers"], line["skills"]) == ("b", "unknown", None)


async def test_only_admins_see_the_list(tmp_path: Path) -> None:
    async with service(tmp_path, settings("a", using("b"))) as a:
        answer = await a.peer(ROMEO).ask("/peers")
        assert "agent.b.example" not in answer
