"""The simulation is like the real thing: a service that is killed has the same history in both."""

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.kit import anyio_backend, service
from tests.servers.agent_process import AgentProcess
from tests.servers.alike import SETTINGS, play, write_skills
from tests.servers.alike_sides import RealSide, SimulatedSide, sections
from tests.servers.base import Server
from tests.servers.talk import login
from tests.servers.tasking import Desk

__all__ = ["anyio_backend"]
pytestmark = [pytest.mark.anyio, pytest.mark.servers, pytest.mark.both_servers]


async def test_a_killed_service_has_the_same_history_in_the_simulation(
    xmpp_server: Server, tmp_path: Path
) -> None:
    home = tmp_path / "real"
    write_skills(home)
    process = AgentProcess(xmpp_server, home, skills__modules=["./own.py"], **SETTINGS)
    with process as agent, login(xmpp_server) as juliet:
        real = await play(RealSide(Desk(xmpp_server, agent.connected()), juliet))

    home = tmp_path / "simulated"
    write_skills(home)
    async with service(tmp_path, sections(xmpp_server, home)) as kit:
        side = SimulatedSide(kit, home, f"{xmpp_server.jid('juliet')}/balcony")
        simulated = await play(side)
    difference = "\n".join(unified_diff(real, simulated, "real", "simulated", lineterm=""))
    assert not difference, difference
