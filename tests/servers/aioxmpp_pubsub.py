"""aioxmpp as the owner of PubSub nodes at an agent: a process that uses its plug-in verb by verb.

It prints one JSON object with what each verb gave, or the condition of its error.

    python -m tests.servers.aioxmpp_pubsub JID PASSWORD HOST PORT CA_FILE AGENT
"""

import asyncio
import json
import sys
from typing import Any

import aioxmpp
import aioxmpp.connector
import aioxmpp.pubsub
import aioxmpp.security_layer
from aioxmpp import xso

TIMEOUT = 120.0


@aioxmpp.pubsub.xso.as_payload_class  # type: ignore[untyped-decorator]
class Entry(xso.XSO):
    TAG = ("urn:test:entry", "entry")
    text = xso.Text(default=None)


def entry(text: str) -> Entry:
    made = Entry()
    made.text = text
    return made


async def use(jid: str, password: str, host: str, port: int, ca_file: str, agent: str) -> Any:
    layer = aioxmpp.make_security_layer(password)._replace(
        ssl_context_factory=lambda: _context(ca_file)
    )
    client = aioxmpp.PresenceManagedClient(
        aioxmpp.JID.fromstr(jid),
        layer,
        override_peer=[(host, port, aioxmpp.connector.STARTTLSConnector())],
    )
    pubsub = client.summon(aioxmpp.PubSubClient)
    to = aioxmpp.JID.fromstr(agent)
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def note(node: str, kind: str, id_: Any) -> None:
        if node == "log":  # the account may be told of other nodes, too
            told.put_nowait((kind, id_))

    pubsub.on_item_published.connect(
        lambda _jid, node, item, **_: note(node, "published", item.id_)
    )
    pubsub.on_item_retracted.connect(lambda _jid, node, id_, **_: note(node, "retracted", id_))
    pubsub.on_node_deleted.connect(lambda _jid, node, **_: note(node, "deleted", ""))

    async def event() -> Any:
        return await asyncio.wait_for(told.get(), TIMEOUT)

    async def condition(verb: Any) -> str:
        try:
            await verb
        except aioxmpp.errors.XMPPError as error:
            return str(error.condition.name).lower().replace("_", "-")
        return "none"

    found: dict[str, Any] = {}
    async with client.connected():
        found["features"] = sorted(each.name for each in await pubsub.get_features(to))
        await pubsub.create(to, "log")
        found["created twice"] = await condition(pubsub.create(to, "log"))
        config = await pubsub.get_node_config(to, "log")
        form = aioxmpp.pubsub.NodeConfigForm.from_xso(config)
        form.max_items.value = "3"
        form.access_model.value = "open"
        await pubsub.set_node_config(to, form.render_reply(), node="log")
        subscribed = await pubsub.subscribe(to, node="log")
        found["subscribed"] = subscribed.payload.subscription
        found["published"] = [
            await pubsub.publish(to, "log", entry(str(number)), id_=str(number))
            for number in range(4)
        ]
        found["events"] = [await event() for _ in range(4)]
        items = await pubsub.get_items(to, "log")
        found["items"] = [[item.id_, item.registered_payload.text] for item in items.payload.items]
        by_id = await pubsub.get_items_by_id(to, "log", ["2"])
        found["by id"] = [item.id_ for item in by_id.payload.items]
        await pubsub.retract(to, "log", "2", notify=True)
        found["retracted"] = await event()
        found["retracted twice"] = await condition(pubsub.retract(to, "log", "2"))
        mine = await pubsub.get_subscriptions(to)
        found["subscriptions"] = [each.node for each in mine.subscriptions]
        nodes = await pubsub.get_nodes(to)
        found["nodes"] = sorted(node for node, _ in nodes)
        romeo = aioxmpp.JID.fromstr("romeo@example.com")
        await pubsub.change_node_affiliations(to, "log", [(romeo, "publisher")])
        others = await pubsub.get_node_affiliations(to, "log")
        found["affiliations"] = sorted(
            [str(each.jid), each.affiliation] for each in others.payload.affiliations
        )
        people = await pubsub.get_node_subscriptions(to, "log")
        found["subscribers"] = len(people.payload.subscriptions)
        await pubsub.purge(to, "log")
        await pubsub.unsubscribe(to, node="log")
        found["unsubscribed twice"] = await condition(pubsub.unsubscribe(to, node="log"))
        await pubsub.delete(to, "log")
        found["deleted twice"] = await condition(pubsub.delete(to, "log"))
    return found


def _context(ca_file: str) -> Any:
    made = aioxmpp.security_layer.default_ssl_context()
    made.load_verify_locations(ca_file)
    return made


if __name__ == "__main__":
    jid, password, host, port, ca_file, agent = sys.argv[1:]
    print(json.dumps(asyncio.run(use(jid, password, host, int(port), ca_file, agent))))
