"""People ask for watches in chat; agents that trigger each other are cut."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.component.models.endpoint import Calls, Text
from tests.servers import command_line
from tests.servers.base import Server
from tests.servers.chatting import asks, chatting, heard, say
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import login
from tests.servers.watching import (
    create,
    event,
    note_watch,
    noting_agent,
    publish,
    wait_for,
    with_pubsub,
)

pytestmark = [pytest.mark.servers]

MOOD = "http://jabber.org/protocol/mood"
HAPPY = f"<mood xmlns='{MOOD}'><happy/></mood>"
SAD = f"<mood xmlns='{MOOD}'><sad/><text>it rains</text></mood>"


def test_tell_me_whenever(xmpp_server: Server, tmp_path: Path) -> None:
    wish = {
        "name": "mood",
        "goal": "Cheer the person up.",
        "node": MOOD,
        "where": [{"element": "mood/sad", "exists": True}],
    }
    with (
        login(xmpp_server, "juliet") as juliet,
        login(xmpp_server, "romeo") as romeo,
        chatting(xmpp_server, tmp_path / "chat", watches__check_s=1) as chat,
    ):
        at = chat.assistant
        publish(juliet, None, MOOD, "current", HAPPY)
        juliet.send_raw(f"<presence to='{at}' type='subscribe'/>")
        chat.model.answers(Calls(("watch_create", wish)), Text("I will cheer you up."))
        say(juliet, at, "Cheer me up whenever I am sad.")
        heard(juliet, "I will cheer you up.")
        wait_for(
            juliet.presences.all,
            lambda all_: any(each.get("type") == "subscribe" for each in all_),
        )
        juliet.send_raw(f"<presence to='{at}' type='subscribed'/>")
        asks(juliet, at, "/watch", "- mood (")
        asks(romeo, at, "/watch list", "- mood (")  # romeo is an admin
        wait_for(lambda: chat.agent.log("source changed", node=MOOD, state="live"), bool)

        chat.model.answers(Text("The sun will shine again."))
        publish(juliet, None, MOOD, "current", SAD)
        heard(juliet, "The sun will shine again.")
        prompt = chat.model.requests[-1].messages[-1]["content"]
        assert "Cheer the person up." in str(prompt)
        assert "it rains" in str(prompt)

        asks(juliet, at, "/watch pause mood", "mood is paused")
        publish(juliet, None, MOOD, "current", HAPPY)
        publish(juliet, None, MOOD, "current", SAD)
        listed = _cli(chat.agent.directory, "watches", "list", "--json")
        assert [(one["name"], one["state"]) for one in listed] == [("mood", "paused")]
        shown = _cli(chat.agent.directory, "watches", "resume", listed[0]["id"], "--json")
        assert shown["state"] == "active"
        chat.again()
        wait_for(
            lambda: chat.agent.log("source changed", node=MOOD, state="live"),
            lambda found: len(found) > 1,
        )
        asks(juliet, at, "/watch remove mood", "mood is removed")
        asks(juliet, at, "/watch", "I watch nothing")
        assert chat.model.left == 0


def _cli(directory: Path, *words: str) -> Any:
    done = command_line.run(directory, *words, "--config", "agent.toml", secret="x")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
def test_two_agents_that_trigger_each_other_are_cut(
    make_server: ServerFactory, tmp_path: Path
) -> None:
    """Each publishes at the node that the other one watches, as soon as something comes there."""
    server = make_server(start=False)
    service = with_pubsub(server)
    server.start()
    nodes = ("ping", "pong")
    watches = [
        note_watch(
            server,
            f"answer-{node}",
            service,
            node,
            agent=agent,
            skill="pubsub_publish",
            params={"service": service, "node": other, "text": "{text}"},
        )
        for agent, node, other in (("one", *nodes), ("two", *reversed(nodes)))
    ]
    watches += [note_watch(server, f"note-{node}", service, node) for node in nodes]
    settings = {
        "agents": [{"name": "one"}, {"name": "two"}],
        "watches__services": [service],
        "watches__max_hops": 4,
        # The operator lets what strangers have written reach this one skill.
        "policy__flows": [{"of": ["web"], "to": ["pubsub"], "then": "allow"}],
        "policy__confirm": "never",
    }
    with (
        noting_agent(server, tmp_path / "agent", watches, **settings) as (agent, notes),
        login(server) as juliet,
    ):
        for node in nodes:
            create(juliet, service, node, publish_model="open")
        agent.start()
        for watch in watches:
            wait_for(
                lambda watch=watch: agent.log("source changed", node=watch["node"], state="live"),
                lambda found: len(found) >= 2,
            )
        publish(juliet, service, "ping", "first", event("hello"))
        # What juliet has published, then one, two, one; what two publishes last is cut.
        notes.wait(4)
        agent.wait_log("events were ignored: too many agents' work has led to them")
        publish(juliet, service, "pong", "second", event("hello again"))
        notes.wait(8)
        wait_for(
            lambda: agent.log("events were ignored: too many agents' work has led to them"),
            lambda found: len(found) == 4,
        )
        assert [text for _, text in notes.rows()] == ["hello"] * 4 + ["hello again"] * 4
