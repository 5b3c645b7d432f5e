"""PubSub services of the real servers, slixmpp as their publishers, a skill that takes notes."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient

PUBSUB = "http://jabber.org/protocol/pubsub"
FORM = "jabber:x:data"
TIMEOUT = 90.0  # seconds; a bound for a busy machine, not an expectation
KEPT_BY_SERVER = 250
"""Items that a node keeps: Prosody allows 256."""

SKILL = '''
import os
import sqlite3
from component.skills import Context, skill

@skill(idempotent=True, destructive=False, open_world=False)
def note(ctx: Context, item: str, text: str = "") -> str:
    """Write down what has happened, once for each task."""
    with sqlite3.connect(os.environ["NOTES"], timeout=30) as notes:
        notes.execute("INSERT OR IGNORE INTO notes (key, item, text) VALUES (?, ?, ?)",
                      (ctx.key, item, text))
    return "noted"
'''


class Notes:
    """What the skill has written down, in the order of its tasks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as notes:
            notes.execute("PRAGMA journal_mode = WAL")
            notes.execute(
                "CREATE TABLE IF NOT EXISTS notes"
                " (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, item TEXT, text TEXT)"
            )
            notes.commit()

    def items(self) -> list[str]:
        """The items in the order in which they were handled."""
        return [item for item, _ in self.rows()]

    def rows(self) -> list[tuple[str, str]]:
        """The items and their texts, in the order in which they were handled."""
        with closing(sqlite3.connect(self.path, timeout=30)) as notes:
            return notes.execute("SELECT item, text FROM notes ORDER BY number").fetchall()

    def count(self) -> int:
        """How many items were handled."""
        with closing(sqlite3.connect(self.path, timeout=30)) as notes:
            return int(notes.execute("SELECT count(*) FROM notes").fetchone()[0])

    def wait(self, count: int, timeout: float = TIMEOUT) -> list[str]:
        """Wait until so many are written down, and return them."""
        wait_for(self.count, lambda found: found >= count, timeout)
        return self.items()


def recorded_events(agent: AgentProcess) -> int:
    """How many events the watches of a service have received, as its database says."""
    path = agent.directory / "data" / "agent.db"
    with closing(sqlite3.connect(path, timeout=30)) as database:
        return int(database.execute("SELECT sum(received) FROM watches").fetchone()[0])


def wait_for(
    read: Callable[[], Any], reached: Callable[[Any], bool], timeout: float = TIMEOUT
) -> Any:
    """Read something that another process writes, until it is as expected."""
    give_up = time.monotonic() + timeout
    while True:
        value = read()
        if reached(value):
            return value
        if time.monotonic() > give_up:
            raise TimeoutError(f"still {value!r} after {timeout} s")
        time.sleep(0.05)


def with_pubsub(server: Server) -> str:
    """Have a server that is not started yet offer a PubSub component; return its address."""
    address = f"pubsub.{server.host}"
    if server.name == "prosody":  # Debian's ejabberd has one, Debian's Prosody brings the module
        directory = server.directory / "conf.d"
        directory.mkdir(parents=True, exist_ok=True)
        admins = f"admins = {{ {json.dumps(server.jid('juliet'))} }}"
        (directory / "pubsub.cfg.lua").write_text(
            f'Component {json.dumps(address)} "pubsub"\n\t{admins}\n'
        )
    return address


def with_rooms(server: Server) -> str:
    """Have a server that is not started yet offer rooms; return the address of one."""
    service = f"conference.{server.host}"
    if server.name == "prosody":  # Debian's ejabberd offers rooms, Debian's Prosody has the module
        directory = server.directory / "conf.d"
        directory.mkdir(parents=True, exist_ok=True)
        # The archive gives each message an id, as docs/how-to/rooms.md recommends.
        archive = 'modules_enabled = { "muc_mam" }'
        (directory / "rooms.cfg.lua").write_text(
            f'Component {json.dumps(service)} "muc"\n\t{archive}\n'
        )
    return f"lab@{service}"


@contextmanager
def noting_agent(
    server: Server, directory: Path, watches: Sequence[dict[str, Any]], **settings: Any
) -> Iterator[tuple[AgentProcess, Notes]]:
    """A service with these watches and the skill `note`, not started yet."""
    with noting_agents(server, [directory], watches, **settings) as ((agent,), notes):
        yield agent, notes


@contextmanager
def noting_agents(
    server: Server,
    directories: Sequence[Path],
    watches: Sequence[dict[str, Any]],
    **settings: Any,
) -> Iterator[tuple[Sequence[AgentProcess], Notes]]:
    """Services with these watches and the skill `note`, which write into the same notes."""
    agents = []
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "noting.py").write_text(SKILL)
        agents.append(
            AgentProcess(
                server, directory, skills__modules=["./noting.py"], watch=list(watches), **settings
            )
        )
    notes = Notes(directories[0] / "notes.db")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("NOTES", str(notes.path))
        for agent in agents:
            stack.callback(agent.close)
        yield agents, notes


def note_watch(server: Server, name: str, service: str, node: str, **more: Any) -> dict[str, Any]:
    """A watch that has every item noted."""
    return {
        "name": name,
        "service": service,
        "node": node,
        "principal": server.jid("juliet"),
        "skill": "note",
        "params": {"item": "{item}", "text": "{text}"},
        "silent": True,
        "rate": "100000/s",
        "starts_per_hour": 1_000_000,
        **more,
    }


def node_config(**options: object) -> str:
    """The form that configures a node."""
    fields = {"FORM_TYPE": f"{PUBSUB}#node_config"} | {
        f"pubsub#{name}": str(value) for name, value in options.items()
    }
    inside = "".join(
        f"<field var={quoteattr(var)}><value>{escape(value)}</value></field>"
        for var, value in fields.items()
    )
    return f"<x xmlns='{FORM}' type='submit'>{inside}</x>"


def create(client: SlixClient, service: str, node: str, **options: object) -> None:
    """Create a node that keeps its items."""
    config = node_config(max_items=KEPT_BY_SERVER, persist_items=1, access_model="open", **options)
    inside = f"<create node={quoteattr(node)}/><configure>{config}</configure>"
    assert_result(client.iq(service, f"<pubsub xmlns='{PUBSUB}'>{inside}</pubsub>", "set"))


def delete(client: SlixClient, service: str, node: str) -> None:
    """Delete a node."""
    inside = f"<delete node={quoteattr(node)}/>"
    assert_result(client.iq(service, f"<pubsub xmlns='{PUBSUB}#owner'>{inside}</pubsub>", "set"))


def publish(client: SlixClient, service: str | None, node: str, item: str, payload: str) -> Element:
    """Publish an item, and wait for the result."""
    inside = (
        f"<publish node={quoteattr(node)}><item id={quoteattr(item)}>{payload}</item></publish>"
    )
    return assert_result(client.iq(service, f"<pubsub xmlns='{PUBSUB}'>{inside}</pubsub>", "set"))


def event(text: object) -> str:
    """A payload."""
    return f"<event xmlns='urn:example:event'>{escape(str(text))}</event>"


class Publisher:
    """Publishes numbered items."""

    def __init__(self, service: str, node: str) -> None:
        self.items: list[str] = []
        self._service = service
        self._node = node

    def publish(self, client: SlixClient, count: int) -> None:
        """Publish so many items, each after the service has accepted the one before."""
        for _ in range(count):
            item = f"item-{len(self.items)}"
            publish(client, self._service, self._node, item, event(item))
            self.items.append(item)


def assert_result(stanza: Element) -> Element:
    """The stanza, which is not an error."""
    assert stanza.get("type") == "result", ET.tostring(stanza, "unicode")
    return stanza
