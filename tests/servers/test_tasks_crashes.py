"""Durable work on a real server when the service is killed, or the database does not let it in."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import PING, application, error, execute, login, output, result
from tests.servers.tasking import (
    TASK,
    Desk,
    accepted,
    begin,
    completed,
    ended,
    event,
    events,
    failed,
    get,
    in_state,
    open_desk,
    refusal,
)

pytestmark = [pytest.mark.servers]

DRAIN_S = 0.2
DELAY = "{urn:xmpp:delay}delay"


@pytest.fixture(scope="module")
def desk(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A service that does not wait long for its work when it is stopped."""
    directory = tmp_path_factory.mktemp("desk")
    with open_desk(xmpp_server, directory, server__drain_s=DRAIN_S) as agent:
        agent.connected()
        yield Desk(xmpp_server, agent)


def again(desk: Desk) -> None:
    """Kill the service at once, and start it anew."""
    desk.agent.kill()
    desk.agent.start().connected()


def halfway(client: SlixClient, task: str) -> None:
    """Wait for the news that a skill has come to its gate."""
    client.messages.take(
        lambda m: event(task)(m) and m.find(f"{{{TASK}}}task/{{{TASK}}}progress") is not None
    )


def told(desk: Desk, task: str) -> bool:
    """Whether the end of a task has been told, as the service has written it down."""
    with closing(sqlite3.connect(desk.agent.directory / "data" / "agent.db")) as database:
        (found,) = database.execute(
            "SELECT unsent_revision IS NULL AND state = 'completed' FROM tasks WHERE id = ?",
            (task,),
        ).fetchone()
        return bool(found)


@pytest.mark.thorough
def test_no_completed_step_is_repeated(desk: Desk, caller: SlixClient) -> None:
    asked = execute("steps", attributes="mode='async' request='crash'", run="crash")
    task = accepted(caller.iq(desk.assistant, asked, "set"))
    halfway(caller, task)
    again(desk)
    # Who sends the same again, because it heard nothing, gets the same task.
    assert accepted(caller.iq(desk.assistant, asked, "set")) == task
    again(desk)
    desk.open_gate("crash")
    key, second = completed(caller, task).split(" ")
    assert second == "2"
    first, then = desk.effects("crash")
    assert first == f"crash first {key}"
    assert then.startswith("crash second ")
    found = result(caller.iq(desk.assistant, events(task, 0))).findall(f"{{{TASK}}}task")
    assert [t.get("revision") for t in found] == [str(n) for n in range(1, len(found) + 1)]


@pytest.mark.thorough
def test_nobody_knows_what_a_begun_step_did(desk: Desk, caller: SlixClient) -> None:
    asked = execute("stuck", attributes="request='stuck-1'", run="stuck")
    task = accepted(caller.iq(desk.assistant, asked, "set"))
    halfway(caller, task)
    again(desk)
    desk.open_gate("stuck")
    assert failed(caller, task)[0] == "outcome-unknown"
    assert desk.effects("stuck") == ["stuck only"]
    # Asking the same again does not do it again either.
    assert accepted(caller.iq(desk.assistant, asked, "set")) == task
    assert desk.effects("stuck") == ["stuck only"]


def test_an_inline_call_that_was_cut_off(desk: Desk, caller: SlixClient) -> None:
    asked = execute("counted", attributes="request='cut'", key="cut")
    assert output(caller.iq(desk.assistant, asked, "set")) == "counted cut"
    again(desk)
    assert output(caller.iq(desk.assistant, asked, "set")) == "counted cut"
    assert desk.effects("cut") == ["counted cut"]


def test_the_end_of_a_task_is_told_to_a_caller_who_was_away(desk: Desk, other: SlixClient) -> None:
    task = begin(other, desk.assistant, "slow", "mode='async'", run="away")
    other.send_raw("<presence type='unavailable'/>")  # it can still ask, and is not there
    again(desk)
    desk.open_gate("away")
    while result(other.iq(desk.assistant, get(task))).get("state") != "completed":
        pass
    # The state can be read a moment before the message about it leaves: wait until that is told,
    # and let one more stanza go the same way behind it.
    while not told(desk, task):
        other.iq(desk.assistant, PING)
    other.iq(desk.assistant, PING)
    other.send_raw("<presence/>")
    message, found = ended(other, task)
    assert found.get("state") == "completed"
    assert message.find(DELAY) is not None, "the server has kept it"


def test_the_end_comes_while_the_server_is_away(
    make_prosody: ServerFactory, tmp_path: Path
) -> None:
    server = make_prosody()
    with open_desk(server, tmp_path) as agent:
        alone = Desk(server, agent.connected())
        with login(server) as requester:
            task = begin(requester, alone.assistant, "slow", "mode='async'", run="outage")
            requester.messages.take(event(task, "running"))
            server.kill()
            requester.wait_closed()
        alone.open_gate("outage")
        agent.wait_log("not connected")
        server.start()
        with login(server) as later:
            assert completed(later, task) == "outage is done"


@pytest.mark.thorough
def test_a_task_cancelled_just_before_a_crash_stays_cancelled(
    desk: Desk, caller: SlixClient
) -> None:
    task = begin(caller, desk.assistant, "conformance.sleep", "mode='async'", seconds=3000)
    caller.messages.take(event(task, "running"))
    cancelling = f"<cancel xmlns='{TASK}' id='{task}'/>"
    result(caller.iq(desk.assistant, cancelling, "set"))
    again(desk)
    ended_as = result(caller.iq(desk.assistant, cancelling, "set"))
    assert ended_as.get("state") == "cancelled"


@pytest.mark.thorough
def test_a_task_goes_on_after_the_service_is_stopped_and_started(
    desk: Desk, caller: SlixClient
) -> None:
    task = begin(caller, desk.assistant, "steps", "mode='async'", run="stop")
    halfway(caller, task)
    assert desk.agent.stop() == 0
    desk.agent.start().connected()
    in_state(caller, desk.assistant, task, "running")
    desk.open_gate("stop")
    completed(caller, task)
    assert len(desk.effects("stop ")) == 2


@contextmanager
def locked(desk: Desk) -> Iterator[None]:
    """Somebody else has the database for itself."""
    with closing(sqlite3.connect(desk.agent.directory / "data" / "agent.db")) as database:
        database.isolation_level = None
        database.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")


def test_requests_without_a_record_are_served_while_the_database_is_locked(
    desk: Desk, caller: SlixClient
) -> None:
    running = begin(caller, desk.assistant, "steps", "mode='async'", run="lock")
    halfway(caller, running)
    durable = execute("slow", attributes="mode='async' request='locked'", run="locked")
    once = execute("counted", attributes="request='locked-1'", key="locked-1")
    echo = execute("conformance.echo", text="still here")
    with locked(desk):
        refused = caller.start_iq(desk.assistant, durable, "set")
        # What needs no record is served meanwhile, and what is there can be read.
        assert output(caller.iq(desk.assistant, echo, "set")) == "still here"
        in_state(caller, desk.assistant, running, "running")
        # A skill that runs goes on until it has something to write, and waits with that.
        desk.open_gate("lock")
        waiting = caller.start_iq(desk.assistant, once, "set")
        reply = refused.result(120)
        assert refusal(reply) == ("resource-constraint", "retry")
        assert error(reply).get("type") == "wait"
        retry = application(reply)
        assert retry is not None
        assert int(retry.attrib["after"]) > 0
        assert desk.effects("lock second") == desk.effects("locked") == []
    # What was refused left nothing behind: the same may be asked again. Whether the one that still
    # waited was refused too, nobody can say; asked again, it has run once.
    waiting.result(120)
    assert output(caller.iq(desk.assistant, once, "set")) == "counted locked-1"
    assert desk.effects("locked-1") == ["counted locked-1"]
    # And what had begun is not lost.
    completed(caller, running)
    assert len(desk.effects("lock first")) == 1
    assert len(desk.effects("lock second")) == 1
    task = accepted(caller.iq(desk.assistant, durable, "set"))
    desk.open_gate("locked")
    assert completed(caller, task) == "locked is done"
