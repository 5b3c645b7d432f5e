"""A connection among which the server balances stanzas."""

import anyio
import pytest

from component.link.connection.probe import Probes
from tests.component.link.connection.acceptor import DOMAIN, Acceptor, Link
from tests.component.link.connection.running import TIMEOUT_S, running
from xep.stanza import Incoming

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


@pytest.fixture(autouse=True)
def _probes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "loops_back", False)


def returned(probe: Incoming) -> str:
    return f"<iq type='get' id='{probe.id}' from='{probe.sender}' to='{DOMAIN}'/>"


def test_probes_have_different_senders_because_the_server_balances_by_sender() -> None:
    probes = Probes(DOMAIN, "00000001.", connections=3)
    made = [probes.make() for _ in range(probes.at_once)]
    senders = {each.partition(" from='")[2].partition("'")[0] for each in made}
    assert len(senders) == probes.at_once == 12
    assert {sender.partition("@")[2] for sender in senders} == {DOMAIN}
    assert all(" id='00000001.probe-" in each for each in made)


async def test_a_new_connection_is_probed_at_once_and_kept_when_a_probe_returns() -> None:
    with Acceptor() as server, anyio.fail_after(TIMEOUT_S):
        changes = {"component_number": 2, "read_timeout_s": 3600, "probe_timeout_s": 60}
        async with running(server, **changes) as it:
            link = await server.component()
            probes = await link.stanzas(8)
            assert {probe.to for probe in probes} == {DOMAIN}
            await link.send(returned(probes[3]))
            await link.send("<message from='romeo@example.com' to='agent.test' id='after'/>")
            await it.recorder.until(lambda: it.recorder.ids() == ["after"])
            assert it.recorder.ups == 1


async def test_a_connection_to_which_nothing_is_balanced_is_opened_again() -> None:
    with Acceptor() as server, anyio.fail_after(TIMEOUT_S):
        changes = {"component_number": 2, "read_timeout_s": 3600, "probe_timeout_s": 0.02}
        async with running(server, **changes) as it:
            await server.component()
            await it.recorder.until(lambda: bool(it.recorder.downs))
            assert "component_number in [server]" in it.recorder.downs[0]
            await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 2)
