"""Two services on one PostgreSQL and a server that takes one at a time: the other stands by.

It has no stream, but it has the database: it runs what the first has no room for, and the first
tells of it. When the first dies it gets in, takes over, and tells of all that nobody has told.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import crashing
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient
from tests.servers.crash_skills import GATE, lines
from tests.servers.crashing import answer_of, failure_of
from tests.servers.talk import execute, login

pytestmark = [pytest.mark.servers]

TAKE_OVER_S = 30.0
# As they are by default: what is tried is that who stands by does not wait for so long.
SLOW_RECONNECTS = {"server__reconnect_min_s": 1, "server__reconnect_max_s": 60}


def begin(client: SlixClient, server: Server, skill: str, label: str, **params: object) -> str:
    payload = execute(skill, attributes=f"mode='async' request='{label}'", label=label, **params)
    task = answer_of(client.iq(f"assistant@{server.component_domain}", payload, "set")).task
    assert task is not None
    return task


def end(client: SlixClient, task: str, timeout: float = TAKE_OVER_S) -> Element:
    """The task as the message of its end tells it."""

    def tells(message: Element) -> bool:
        found = message.find("{*}task")
        return message.get("type") == "normal" and found is not None and found.get("id") == task

    found = client.messages.take(tells, timeout).find("{*}task")
    assert found is not None
    return found


def told(client: SlixClient) -> list[str | None]:
    """The tasks whose end has been told, and not taken."""
    finals = [one for one in client.messages.all() if one.get("type") == "normal"]
    return [found.get("id") for one in finals for found in one.findall("{*}task")]


@pytest.mark.thorough
def test_it_runs_and_tells_what_the_first_cannot(
    prosody_server: Server, tmp_path: Path, postgres_url: str
) -> None:
    one = crashing.agent(
        *(prosody_server, tmp_path / "one"), postgres=postgres_url, tasks__running_total=3
    )
    other = crashing.agent(
        prosody_server, tmp_path / "other", postgres=postgres_url, **SLOW_RECONNECTS
    )
    with ExitStack() as stack:
        juliet = stack.enter_context(login(prosody_server))
        stack.enter_context(one).connected()
        stack.enter_context(other).wait_log("not connected", code="conflict")
        with login(prosody_server, "romeo") as romeo:
            unknown = begin(juliet, prosody_server, "crash.gate", "unknown", may_repeat="false")
            repeated = begin(juliet, prosody_server, "crash.gate", "repeated", may_repeat="true")
            for_romeo = begin(romeo, prosody_server, "crash.gate", "romeo", may_repeat="true")
        # There is no room for more here: the other runs it, and this one tells of it.
        elsewhere = begin(juliet, prosody_server, "crash.steps", "elsewhere", count=2, pause_ms=1)
        assert end(juliet, elsewhere).get("state") == "completed"
        assert {label for label, *_ in lines(other.directory)} == {"elsewhere"}
        assert other.log("connected") == []
        at_the_gate = {label for label, step, *_ in lines(one.directory) if step == "gate"}
        assert at_the_gate == {"unknown", "repeated", "romeo"}

        (other.directory / GATE).touch()
        one.kill()
        killed = time.monotonic()
        other.connected()
        print(f"connected after {time.monotonic() - killed:.1f} s")
        assert failure_of(end(juliet, unknown)) == "outcome-unknown"
        assert end(juliet, repeated).get("state") == "completed"
        seconds = time.monotonic() - killed
        print(f"taken over and told after {seconds:.1f} s")
        assert seconds < TAKE_OVER_S
        with login(prosody_server, "romeo") as romeo:
            assert end(romeo, for_romeo).get("state") == "completed"
        (sentence,) = other.log("not connected")
        assert "this one waits and takes over when the other disconnects" in sentence["reason"]
        # The first was killed before it could note that it had told: that is told again.
        assert set(told(juliet)) <= {elsewhere}
