"""Watches of two services on one PostgreSQL: each event is handled once, also across kills."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.servers import guides
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.fixtures import PAIR, ServerFactory
from tests.servers.talk import login
from tests.servers.test_watches_rooms import enter, leave, noted, room_watch
from tests.servers.watching import (
    Notes,
    Publisher,
    create,
    event,
    note_watch,
    noting_agents,
    publish,
    wait_for,
    with_pubsub,
)

pytestmark = [pytest.mark.servers]

UNLIMITED = "items are published as fast as the server takes them"
PART = 40
ELSEWHERE = {"event": "source changed", "state": "elsewhere"}
LIVE = {"event": "source changed", "state": "live"}


def recorded(postgres: str) -> int:
    """How many events the watches have received."""
    with psycopg.connect(postgres) as database:
        row = database.execute("SELECT sum(received) FROM watches").fetchone()
    return int(row[0] or 0) if row else 0


@contextmanager
def pair(
    server: Server, directory: Path, service: str, postgres: str, component_number: int = 1
) -> Iterator[tuple[Sequence[AgentProcess], Notes]]:
    """Two services that share a database, not started yet, with a watch of the node `events`."""
    directories = [directory / name for name in ("first", "second")]
    watch = note_watch(server, "events", service, "events")
    settings = {"storage__postgres": postgres, "server__component_number": component_number}
    with noting_agents(server, directories, [watch], **settings) as found:
        yield found


@pytest.mark.thorough
def test_on_prosody_the_one_that_stands_by_takes_over(
    make_prosody: ServerFactory, tmp_path: Path, postgres_url: str
) -> None:
    server = make_prosody(start=False, unlimited=UNLIMITED)
    service = with_pubsub(server)
    server.start()
    publisher = Publisher(service, "events")
    items = publisher.items
    with (
        pair(server, tmp_path, service, postgres_url) as ((first, second), notes),
        login(server) as juliet,
    ):
        create(juliet, service, "events")
        publish(juliet, service, "events", "before", event("is no news"))
        first.start().wait_log("source changed", state="live")
        second.start().wait_log("not connected", code="conflict")
        publisher.publish(juliet, PART)
        wait_for(lambda: recorded(postgres_url), lambda count: count >= PART // 2)
        first.kill()
        publisher.publish(juliet, PART)
        second.wait_log("source changed", state="live")
        publisher.publish(juliet, PART)
        # Both start work now: that of the other one, too, which has no stream.
        first.start().wait_log("not connected", code="conflict")
        publisher.publish(juliet, PART)
        second.kill()
        first.wait_log("source changed", state="live")
        assert notes.wait(len(items)) == items
        publish(juliet, service, "events", "last", event("shows that no other is to come"))
        assert notes.wait(len(items) + 1) == [*items, "last"]


@pytest.mark.thorough
def test_on_ejabberd_both_are_connected(
    make_ejabberd: ServerFactory, tmp_path: Path, postgres_url: str
) -> None:
    text = (guides.DOCS / "how-to" / "ejabberd.md").read_text()
    component = guides.block(guides.DOCS / "how-to" / "ejabberd.md", "component")
    balancing = guides.block(guides.DOCS / "how-to" / "ejabberd.md", "balancing")
    guide = tmp_path / "ejabberd.md"
    guide.write_text(text.replace(component, component + balancing))
    server = make_ejabberd(guide=guide, unlimited=UNLIMITED)
    service = with_pubsub(server)
    publisher = Publisher(service, "events")
    items = publisher.items
    with (
        pair(server, tmp_path, service, postgres_url, component_number=2) as (agents, notes),
        login(server) as juliet,
    ):
        create(juliet, service, "events")
        publish(juliet, service, "events", "before", event("is no news"))
        # Each gets the answers to its requests, and one of them gets the events.
        for agent in agents:
            agent.start().wait_log(**LIVE)
        for agent in agents:
            publisher.publish(juliet, PART)
            agent.kill()
            publisher.publish(juliet, PART)
            agent.start().wait_log(**LIVE)
        publisher.publish(juliet, PART)
        assert notes.wait(len(items)) == items
        publish(juliet, service, "events", "last", event("shows that no other is to come"))
        assert notes.wait(len(items) + 1) == [*items, "last"]


@pytest.mark.thorough
def test_one_of_two_instances_is_in_a_room_and_the_other_takes_over(
    ejabberd_server: Server, tmp_path: Path, postgres_url: str
) -> None:
    server = ejabberd_server.on(PAIR)
    room = f"pair@conference.{server.host}"
    settings = {
        "storage__postgres": postgres_url,
        "server__component_number": 2,
        "watches__check_s": 1,
    }
    directories = [tmp_path / name for name in ("first", "second")]
    with (
        noting_agents(server, directories, [room_watch(server, room)], **settings) as found,
        login(server) as juliet,
        login(server, "romeo") as romeo,
    ):
        agents, notes = found
        enter(juliet, room, "Juliet")
        first, second = agents
        first.start().wait_log("joined a room")
        second.start().connected()
        # ejabberd sends the room to one of them: the second one gets an answer, or sees that the
        # first one is there.
        wait_for(
            lambda: [*second.log("joined a room"), *second.log(**ELSEWHERE)],
            lambda found: len(found) > 0,
        )
        inside, waiting = (first, second) if second.log(**ELSEWHERE) else (second, first)
        enter(romeo, room, "Romeo")
        noted(notes, ("joined", "Romeo"))
        before = len(waiting.log("joined a room"))
        inside.kill()
        wait_for(lambda: len(waiting.log("joined a room")), lambda count: count > before)
        leave(romeo, room, "Romeo")
        noted(notes, ("joined", "Romeo"), ("left", "Romeo"))
