"""The PubSub service of an agent, used with the plug-ins of slixmpp and aioxmpp, verb by verb."""

import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp.exceptions import IqError

from tests.servers import guides
from tests.servers.base import Server
from tests.servers.chatting import heard, say
from tests.servers.clients import SlixClient
from tests.servers.talk import ROSTER, condition, from_, login

pytestmark = [pytest.mark.servers]

ATOM = "{http://www.w3.org/2005/Atom}"
DATA = "{jabber:x:data}"
EVENT = "{http://jabber.org/protocol/pubsub#event}"
Verb = Callable[[Any], Coroutine[Any, Any, Any]]


class Party:
    """The service of an agent, its owner juliet, and romeo, who is a stranger to it."""

    def __init__(self, server: Server, juliet: SlixClient, romeo: SlixClient) -> None:
        self.agent = f"assistant@{server.component_domain}"
        self.juliet = juliet
        self.romeo = romeo
        for each in (juliet, romeo):

            async def register(xmpp: Any) -> None:
                for plugin in ("xep_0004", "xep_0030", "xep_0059", "xep_0060"):
                    xmpp.register_plugin(plugin)

            each.run(register)

    def do(self, who: SlixClient, verb: str, *args: Any, **options: Any) -> Any:
        """What a verb of slixmpp's plug-in gives."""

        async def call(xmpp: Any) -> Any:
            return await getattr(xmpp.plugin["xep_0060"], verb)(self.agent, *args, **options)

        return who.run(call)

    def refused(self, who: SlixClient, verb: str, *args: Any, **options: Any) -> str:
        """The condition with which a verb is refused."""
        with pytest.raises(IqError) as caught:
            self.do(who, verb, *args, **options)
        return str(caught.value.condition)

    def event(self, who: SlixClient, node: str = "") -> ET.Element:
        """What the next notification says, or the next one of a node."""

        def is_one(message: ET.Element) -> bool:
            found = message.find(f"{EVENT}event")
            return found is not None and (not node or found[0].get("node") == node)

        message = who.messages.take(is_one)
        (said,) = message[0] if message[0].tag == f"{EVENT}event" else message.find(f"{EVENT}event")
        return said


@pytest.fixture
def party(owned: Server) -> Iterator[Party]:
    """A running agent whose admin is juliet, and two clients."""
    with login(owned) as juliet, login(owned, "romeo") as romeo:
        yield Party(owned, juliet, romeo)


def config(party: Party, **options: str) -> Any:
    """A form that configures a node."""
    form = party.juliet.xmpp.plugin["xep_0004"].make_form("submit")
    form.add_field(
        var="FORM_TYPE", ftype="hidden", value="http://jabber.org/protocol/pubsub#node_config"
    )
    for name, value in options.items():
        form.add_field(var=f"pubsub#{name}", value=value)
    return form


def entry(text: str) -> ET.Element:
    """A payload."""
    made = ET.Element("{urn:test:entry}entry")
    made.text = text
    return made


def test_a_node_from_its_creation_to_its_deletion(party: Party) -> None:
    juliet, romeo = party.juliet, party.romeo
    party.do(
        juliet, "create_node", "news", config=config(party, access_model="open", max_items="3")
    )
    assert party.refused(juliet, "create_node", "news") == "conflict"
    assert party.refused(romeo, "create_node", "more") == "forbidden"

    subscribed = party.do(romeo, "subscribe", "news")["pubsub"]["subscription"]
    assert subscribed["subscription"] == "subscribed"
    published = party.do(juliet, "publish", "news", id="1", payload=entry("one"))
    assert published["pubsub"]["publish"]["item"]["id"] == "1"
    said = party.event(romeo)
    assert said.get("node") == "news"
    assert said[0].get("id") == "1"
    assert said[0][0].text == "one"

    for number in range(2, 6):
        party.do(juliet, "publish", "news", id=str(number), payload=entry(str(number)))
        assert party.event(romeo)[0].get("id") == str(number)
    found = party.do(romeo, "get_items", "news")["pubsub"]["items"]
    assert [each["id"] for each in found] == ["3", "4", "5"]
    assert party.refused(romeo, "publish", "news", payload=entry("no")) == "forbidden"

    party.do(juliet, "retract", "news", "4", notify=True)
    said = party.event(romeo)
    assert (said[0].tag, said[0].get("id")) == (f"{EVENT}retract", "4")
    assert party.refused(juliet, "retract", "news", "4") == "item-not-found"
    party.do(juliet, "purge", "news")
    assert party.event(romeo).tag == f"{EVENT}purge"
    party.do(juliet, "delete_node", "news")
    assert party.event(romeo).tag == f"{EVENT}delete"
    assert party.refused(romeo, "get_items", "news") == "item-not-found"


def test_a_publisher_a_subscriber_and_what_they_may(party: Party) -> None:
    juliet, romeo = party.juliet, party.romeo
    stranger = str(romeo.xmpp.boundjid.bare)
    party.do(juliet, "create_node", "diary", config=config(party, access_model="authorize"))
    assert party.refused(romeo, "get_items", "diary") == "not-authorized"
    assert party.refused(romeo, "get_node_config", "diary") == "forbidden"
    subscribed = party.do(romeo, "subscribe", "diary")["pubsub"]["subscription"]
    assert subscribed["subscription"] == "pending"
    party.do(juliet, "modify_subscriptions", "diary", subscriptions=[(stranger, "subscribed")])
    people = party.do(juliet, "get_node_subscriptions", "diary")["pubsub_owner"]["subscriptions"]
    assert [(each["jid"], each["subscription"]) for each in people] == [(stranger, "subscribed")]
    assert party.event(romeo).get("subscription") == "subscribed"
    party.do(juliet, "modify_affiliations", "diary", affiliations=[(stranger, "publisher")])
    with_node = party.do(juliet, "get_node_affiliations", "diary")["pubsub_owner"]["affiliations"]
    assert {(str(each["jid"]), each["affiliation"]) for each in with_node} == {
        (str(juliet.xmpp.boundjid.bare), "owner"),
        (stranger, "publisher"),
    }
    mine = party.do(romeo, "get_affiliations")["pubsub"]["affiliations"]
    assert [(each["node"], each["affiliation"]) for each in mine] == [("diary", "publisher")]
    party.do(romeo, "publish", "diary", id="1", payload=entry("romeo's"))
    assert party.event(romeo)[0].get("id") == "1"
    subscriptions = party.do(romeo, "get_subscriptions")["pubsub"]["subscriptions"]
    assert [each["node"] for each in subscriptions] == ["diary"]
    assert party.do(romeo, "get_subscription_options", "diary", stranger) is not None
    party.do(romeo, "unsubscribe", "diary")
    assert party.refused(romeo, "unsubscribe", "diary") == "unexpected-request"
    party.do(juliet, "delete_node", "diary")


def test_the_default_configuration_and_the_nodes(party: Party) -> None:
    romeo = party.romeo
    form = party.do(romeo, "get_node_config", None)["pubsub_owner"]["default"]["form"]
    assert form["values"]["pubsub#access_model"] == "presence"
    shown = party.do(romeo, "get_nodes")["disco_items"]["items"]
    assert "urn:fluux:agent:0#skills" in {node for _, node, _ in shown}
    skills = party.do(romeo, "get_items", "urn:fluux:agent:0#skills")["pubsub"]["items"]
    assert "time" in [each["id"] for each in skills]


def test_announcements_of_the_agent(party: Party) -> None:
    node = "urn:xmpp:microblog:0"
    listed = party.do(party.romeo, "get_nodes")["disco_items"]["items"]
    assert node in {name for _, name, _ in listed}
    party.do(party.romeo, "subscribe", node)
    assert party.refused(party.romeo, "publish", node, payload=entry("spam")) == "forbidden"
    wrong = party.refused(party.juliet, "publish", node, payload=entry("no Atom"))
    assert wrong == "bad-request"
    say(party.juliet, party.agent, "/announce I am on holiday.")
    heard(party.juliet, "Announced.")
    said = party.event(party.romeo)
    assert said.get("node") == node
    assert said.findtext(f".//{ATOM}title") == "I am on holiday."
    say(party.romeo, party.agent, "/announce Me too.")
    heard(party.romeo, "/announce")
    found = party.do(party.romeo, "get_items", node)["pubsub"]["items"]
    assert [each["payload"].findtext(f"{ATOM}title") for each in found] == ["I am on holiday."]


def test_owners_get_the_subscriptions_that_wait(party: Party) -> None:
    form = config(party, access_model="authorize")
    party.do(party.juliet, "create_node", "waiting", config=form)
    party.do(party.romeo, "subscribe", "waiting")
    asked = party.juliet.messages.take(lambda each: each.find(f"{DATA}x") is not None)
    again = party.juliet.iq(party.agent, command(), "set")
    (answer,) = again
    assert [each.text for each in answer.iter(f"{DATA}value")][1:] == ["waiting"]
    inside = (
        "<x xmlns='jabber:x:data' type='submit'><field var='pubsub#node'>"
        "<value>waiting</value></field></x>"
    )
    done = party.juliet.iq(party.agent, command(answer.attrib["sessionid"], inside), "set")
    assert done[0].get("status") == "completed"
    repeated = party.juliet.messages.take(lambda each: each.find(f"{DATA}x") is not None)
    texts = [[each.text for each in one.iter(f"{DATA}value")] for one in (asked, repeated)]
    assert texts[0] == texts[1]
    assert condition(party.romeo.iq(party.agent, command(), "set")) == "forbidden"


def command(session: str = "", inside: str = "") -> str:
    """A request of the command that lists pending subscriptions."""
    known = f" sessionid='{session}'" if session else ""
    return (
        "<command xmlns='http://jabber.org/protocol/commands'"
        f" node='http://jabber.org/protocol/pubsub#get-pending'{known}>{inside}</command>"
    )


def test_capabilities_are_enough_to_be_notified(owned: Server) -> None:
    plugins = ("xep_0030", "xep_0115", "xep_0199")
    with (
        login(owned) as juliet,
        login(owned, "romeo", presence=False, plugins=plugins) as romeo,
    ):
        party = Party(owned, juliet, romeo)
        party.do(juliet, "create_node", "caps", config=config(party, access_model="presence"))
        party.do(juliet, "publish", "caps", id="1", payload=entry("one"))
        assert romeo.iq(None, ROSTER).get("type") == "result"

        async def interested(xmpp: Any) -> None:
            xmpp.plugin["xep_0030"].add_feature("caps+notify")
            await xmpp.plugin["xep_0115"].update_caps()
            xmpp.send_presence()

        romeo.run(interested)
        romeo.send_raw(f"<presence to='{party.agent}' type='subscribe'/>")
        romeo.presences.take(from_(party.agent, "subscribed"))
        romeo.presences.take(from_(party.agent, "subscribe"))
        romeo.send_raw(f"<presence to='{party.agent}' type='subscribed'/>")
        assert party.event(romeo, "caps")[0].get("id") == "1"  # the last item
        party.do(juliet, "publish", "caps", id="2", payload=entry("two"))
        assert party.event(romeo, "caps")[0].get("id") == "2"


def test_aioxmpp_owns_a_node(owned: Server) -> None:
    owner = owned.jid("juliet")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.servers.aioxmpp_pubsub",
            owner,
            owned.accounts["juliet"],
            owned.address,
            str(owned.c2s_port),
            str(owned.ca_file),
            f"assistant@{owned.component_domain}",
        ],
        cwd=guides.DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"PUBLISH", "SUBSCRIBE", "RETRIEVE_ITEMS", "PURGE_NODES"} <= set(found.pop("features"))
    assert {"log", "urn:fluux:agent:0#skills"} <= set(found.pop("nodes"))
    assert found == {
        "created twice": "conflict",
        "subscribed": "subscribed",
        "published": ["0", "1", "2", "3"],
        "events": [["published", str(number)] for number in range(4)],
        "items": [["1", "1"], ["2", "2"], ["3", "3"]],
        "by id": ["2"],
        "retracted": ["retracted", "2"],
        "retracted twice": "item-not-found",
        "subscriptions": ["log"],
        "affiliations": [[owner, "owner"], ["romeo@example.com", "publisher"]],
        "subscribers": 1,
        "unsubscribed twice": "unexpected-request",
        "deleted twice": "item-not-found",
    }
