"""Watches on the PubSub services of real servers: each item is handled once, in order."""

import os
from pathlib import Path

import pytest

from tests.profiles import THOROUGH
from tests.servers.base import Server
from tests.servers.fixtures import OTHER, ServerFactory
from tests.servers.talk import login
from tests.servers.watching import (
    Publisher,
    create,
    delete,
    event,
    note_watch,
    noting_agent,
    publish,
    recorded_events,
    wait_for,
    with_pubsub,
)

pytestmark = [pytest.mark.servers]

UNLIMITED = "thousands of items are published as fast as the server takes them"
EVENTS = int(os.environ.get("WATCH_EVENTS", "10000" if THOROUGH else "40"))
"""Items that are published in all; `make thorough` publishes 10,000."""
UNOBSERVED = min(EVENTS // 6, 150)
"""Items that are published while the service or its connection is down: the node has to keep them,
beside those that were published last before that."""
PART = (EVENTS - 3 * UNOBSERVED) // 4
"""Items that are published at a time while it is up."""
UNRECORDED = min(PART, 60)
"""Items that the service need not have recorded when it is killed: the node still has them."""
TIMEOUT_S = max(90.0, EVENTS * 0.2)


def test_each_item_is_handled_once_and_in_order_across_restarts(
    make_server: ServerFactory, tmp_path: Path
) -> None:
    server = make_server(start=False, unlimited=UNLIMITED)
    service = with_pubsub(server)
    server.start()
    watch = note_watch(server, "events", service, "events")
    publisher = Publisher(service, "events")
    items = publisher.items

    with noting_agent(server, tmp_path / "agent", [watch]) as (agent, notes):

        def recorded() -> None:
            """Wait until the service has almost all items on disk, whether handled or not."""
            wanted = len(items) - UNRECORDED // 2
            wait_for(lambda: recorded_events(agent), lambda count: count >= wanted, TIMEOUT_S)

        with login(server) as juliet:
            create(juliet, service, "events")
            publish(juliet, service, "events", "before", event("is no news"))
            agent.start()
            agent.wait_log("source changed", state="live")
            publisher.publish(juliet, PART - UNRECORDED // 4)
            recorded()
            publisher.publish(juliet, UNRECORDED // 4)
            agent.kill()  # in the middle of its work
            publisher.publish(juliet, UNOBSERVED)
            agent.start()
            publisher.publish(juliet, UNRECORDED // 2)
            agent.wait_log("source changed", state="live")
            publisher.publish(juliet, PART - UNRECORDED // 2)
            notes.wait(len(items) - PART // 2, TIMEOUT_S)
            agent.stop()
            publisher.publish(juliet, UNOBSERVED)
            agent.start()
            agent.wait_log("source changed", state="live")
            publisher.publish(juliet, PART)
            recorded()
        server.restart()
        with login(server) as juliet:
            publisher.publish(juliet, UNOBSERVED)
            agent.wait_log("source changed", state="live")
            notes.wait(len(items), TIMEOUT_S)
        agent.kill()
        server.restart()
        agent.start()
        agent.wait_log("source changed", state="live")
        with login(server) as juliet:
            publisher.publish(juliet, EVENTS - len(items))
            assert notes.wait(len(items), TIMEOUT_S) == items
            publish(juliet, service, "events", "last", event("shows that no other is to come"))
            assert notes.wait(len(items) + 1) == [*items, "last"]
    assert len(items) == EVENTS


@pytest.mark.thorough
def test_a_node_that_is_created_again_is_watched_again(
    make_server: ServerFactory, tmp_path: Path
) -> None:
    server = make_server(start=False)
    service = with_pubsub(server)
    server.start()
    watch = note_watch(server, "events", service, "late")
    with (
        noting_agent(server, tmp_path / "agent", [watch], watches__check_s=1) as (agent, notes),
        login(server) as juliet,
    ):
        agent.start()
        agent.wait_log("source changed", state="missing")
        create(juliet, service, "late")
        publish(juliet, service, "late", "a", event("first"))
        assert notes.wait(1) == ["a"]
        delete(juliet, service, "late")
        agent.wait_log("source changed", state="missing")
        wait_for(lambda: agent.log("source changed", state="missing"), lambda found: len(found) > 2)
        create(juliet, service, "late")
        publish(juliet, service, "late", "a", event("first"))
        assert notes.wait(2) == ["a", "a"]
        publish(juliet, service, "late", "a", event("changed"))
        assert notes.wait(3) == ["a", "a", "a"]


MOOD = "http://jabber.org/protocol/mood"
ACTIVITY = "http://jabber.org/protocol/activity"
TUNE = "http://jabber.org/protocol/tune"
LOCATION = "http://jabber.org/protocol/geoloc"
AVATAR = "urn:xmpp:avatar:metadata"
MICROBLOG = "urn:xmpp:microblog:0"
PERSONAL = {
    MOOD: f"<mood xmlns='{MOOD}'><happy/><text>sunshine</text></mood>",
    ACTIVITY: f"<activity xmlns='{ACTIVITY}'><relaxing><reading/></relaxing></activity>",
    TUNE: f"<tune xmlns='{TUNE}'><artist>Yes</artist><title>Heart of the Sunrise</title></tune>",
    LOCATION: f"<geoloc xmlns='{LOCATION}'><lat>45.44</lat><lon>12.33</lon></geoloc>",
    AVATAR: f"<metadata xmlns='{AVATAR}'><info bytes='7' id='a1' type='image/png'/></metadata>",
    MICROBLOG: "<entry xmlns='http://www.w3.org/2005/Atom'><title>Hear, hear!</title></entry>",
}


def test_what_a_person_shows_is_watched_once_they_allow_it(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server = xmpp_server.on(OTHER)  # nobody else publishes in juliet's account there
    account = server.jid("juliet")
    watches = [
        note_watch(
            server,
            f"of-{number}",
            account,
            node,
            params={"item": node, "text": "{payload}"},
        )
        for number, node in enumerate(PERSONAL)
    ]
    with (
        noting_agent(server, tmp_path / "agent", watches, watches__check_s=1) as (agent, notes),
        login(server) as juliet,
    ):
        for node, payload in PERSONAL.items():
            publish(juliet, None, node, "current", payload)
        agent.start()
        asked = juliet.presences.take(lambda stanza: stanza.get("type") == "subscribe")
        assistant = str(asked.get("from"))
        agent.wait_log("source changed", node=MOOD, state="refused")
        assert notes.items() == []
        juliet.send_raw(f"<presence to='{assistant}' type='subscribed'/>")
        juliet.send_raw(f"<presence to='{assistant}' type='subscribe'/>")
        for node in PERSONAL:
            wait_for(lambda node=node: agent.log("source changed", node=node, state="live"), bool)
        for node, payload in PERSONAL.items():
            publish(
                juliet,
                None,
                node,
                "current",
                payload.replace("happy", "sad").replace(
                    "</", "<more xmlns='urn:example:event'/></", 1
                ),
            )
        expected = set(PERSONAL)
        wait_for(lambda: set(notes.items()), lambda items: items == expected)
        publish(juliet, None, MOOD, "current", f"<mood xmlns='{MOOD}'><angry/></mood>")
        found = wait_for(notes.rows, lambda rows: any("angry" in text for _, text in rows))
        assert len(found) == len(PERSONAL) + 1


@pytest.mark.thorough
def test_the_presence_of_a_person_is_watched(make_server: ServerFactory, tmp_path: Path) -> None:
    server = make_server()
    account = server.jid("romeo")
    watch = note_watch(
        server, "romeo", account, "presence", params={"item": "{payload}", "text": "{text}"}
    )

    def shown(show: str) -> None:
        wait_for(lambda: notes.items()[-1:], lambda items: f"show='{show}'" in "".join(items))

    with noting_agent(server, tmp_path / "agent", [watch]) as (agent, notes):
        with login(server, "romeo") as romeo:
            agent.start()
            asked = romeo.presences.take(lambda stanza: stanza.get("type") == "subscribe")
            romeo.send_raw(f"<presence to='{asked.get('from')}' type='subscribed'/>")
            wait_for(lambda: agent.log("a person's presence is known", show="online"), bool)
            romeo.send_raw("<presence><show>away</show><status>at lunch</status></presence>")
            shown("away")
            assert notes.rows()[-1][1] == "at lunch"
        shown("offline")
        with login(server, "romeo"):
            shown("online")
            agent.kill()
        agent.start()  # it was left while nobody looked
        shown("offline")
    assert [row.count("show=") for row in notes.items()] == [1] * 4
