"""What accounts and components do, on the kit's server and on a real one.

Each function is a script: its histories on both servers have to be the same.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from tests.servers.kit_stage import HOST, OTHER_HOST, PING, PUBSUB, ROOMS, Stage

Script: TypeAlias = Callable[[Stage], Awaitable[None]]
AGENT: Final = f"agent.{HOST}"
OTHER_AGENT: Final = f"agent.{OTHER_HOST}"
TYPES: Final = ("chat", "normal", "headline", "groupchat", "error")
COMPOSING: Final = "<composing xmlns='http://jabber.org/protocol/chatstates'/>"
SORRY: Final = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
UNKNOWN: Final = "<query xmlns='urn:unknown'/>"
NODES: Final = "http://jabber.org/protocol/pubsub"


def _of_type(type_: str, inside: str = "") -> dict[str, str]:
    return {"type_": type_, "inside": inside + (SORRY if type_ == "error" else "")}


# Messages.


async def messages_to_somebody_online(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    for type_ in TYPES:
        await agent.says(stage.account("juliet"), f"bare-{type_}", **_of_type(type_))
        await agent.says(juliet.jid, f"full-{type_}", **_of_type(type_))
    await agent.says(juliet.jid, inside=COMPOSING)
    await stage.settle()
    await juliet.says(AGENT, "to-the-domain")
    await juliet.says(f"assistant@{AGENT}/x", "to-an-agent", inside=COMPOSING)


async def messages_to_a_resource_that_is_not_there(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    for type_ in TYPES:
        await agent.says(f"{stage.account('juliet')}/gone", f"m-{type_}", **_of_type(type_))
    await juliet.gets("m-chat")


async def messages_to_several_clients(stage: Stage) -> None:
    agent = await stage.component()
    await stage.client("juliet", "low", "<presence><priority>1</priority></presence>")
    await stage.client("juliet", "high", "<presence><priority>5</priority></presence>")
    await stage.client("juliet", "same", "<presence><priority>5</priority></presence>")
    await stage.client("juliet", "never", "<presence><priority>-1</priority></presence>")
    await stage.client("juliet", "silent", None)
    await stage.settle()
    for actor in stage.actors:
        actor.lines.clear()
    for type_ in TYPES:
        await agent.says(stage.account("juliet"), f"m-{type_}", **_of_type(type_))


async def messages_to_somebody_offline(stage: Stage) -> None:
    agent = await stage.component()
    for type_ in TYPES:
        await agent.says(stage.account("juliet"), f"m-{type_}", **_of_type(type_))
        await agent.says(f"{stage.account('juliet')}/gone", f"full-{type_}", **_of_type(type_))
    await stage.settle()
    await stage.client("juliet")
    await stage.settle()
    await stage.client("juliet", "second")


async def messages_without_a_body_to_somebody_offline(stage: Stage) -> None:
    agent = await stage.component()
    account = stage.account("juliet")
    await agent.says(account, inside=COMPOSING)
    await agent.says(account, inside=f"{COMPOSING}<thread>t</thread>")
    await agent.says(account, type_="normal", inside="<event xmlns='urn:example'/>")
    await agent.says(account, type_="headline", inside="<event xmlns='urn:example'/>")
    await agent.says(account, "hint", inside="<no-store xmlns='urn:xmpp:hints'/>")
    await agent.says(
        account, "own", inside="<no-store xmlns='urn:xmpp:hints'/><x xmlns='urn:example'/>"
    )
    await agent.says(account, inside="<store xmlns='urn:xmpp:hints'/><x xmlns='urn:example'/>")
    await agent.says(account, inside="<request xmlns='urn:xmpp:receipts'/>")
    await stage.settle()
    await stage.client("juliet")


async def messages_to_nobody(stage: Stage) -> None:
    agent, romeo = await stage.component(), await stage.client("romeo")
    for actor in (agent, romeo):
        for type_ in TYPES:
            await actor.says(stage.account("nobody"), f"m-{type_}", **_of_type(type_))
            await actor.says(f"{stage.account('nobody')}/x", f"full-{type_}", **_of_type(type_))


async def messages_wait_for_a_client_that_wants_them(stage: Stage) -> None:
    agent = await stage.component()
    for number in range(5):
        await agent.says(stage.account("juliet"), f"m{number}")
    juliet = await stage.client("juliet", "home", None)
    await agent.says(stage.account("juliet"), "m5")
    await stage.settle()
    await juliet.shows(inside="<priority>-1</priority>")
    await agent.says(stage.account("juliet"), "m6")
    await stage.settle()
    await juliet.shows()
    await stage.settle()
    await juliet.leave()
    await stage.client("juliet", "later")


async def clients_write_to_somebody_offline(stage: Stage) -> None:
    romeo = await stage.client("romeo")
    for type_ in TYPES:
        await romeo.says(stage.account("juliet"), f"m-{type_}", **_of_type(type_))
    await romeo.says(stage.account("juliet"), inside=COMPOSING)
    await stage.settle()
    await stage.client("juliet")


async def a_stream_keeps_its_order(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    for number in range(20):
        await agent.says(juliet.jid, f"down-{number}")
        await juliet.says(AGENT, f"up-{number}")
        await juliet.shows(AGENT, inside=f"<status>{number}</status>")


# Components.


async def a_component_that_is_not_connected(stage: Stage) -> None:
    romeo = await stage.client("romeo")
    for type_ in TYPES:
        await romeo.says(f"assistant@{AGENT}", f"m-{type_}", **_of_type(type_))
    await romeo.asks(AGENT, id_="get")
    await romeo.asks(AGENT, type_="set", id_="set")
    await romeo.asks(AGENT, type_="result", id_="result", payload="")
    await romeo.shows(AGENT)
    await romeo.shows(AGENT, "subscribe")
    await romeo.shows(AGENT, "unavailable")
    await stage.settle()
    agent = await stage.component()
    await romeo.says(AGENT, "now")
    await agent.gets("now")


async def what_is_lost_when_a_component_leaves(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    await romeo.shows(f"assistant@{AGENT}")
    await romeo.says(AGENT, "before")
    await agent.gets("before")
    await agent.leave()
    await romeo.says(AGENT, "meanwhile")
    await romeo.asks(AGENT)
    await stage.settle()
    await stage.component()
    await romeo.says(AGENT, "after")


async def two_components(stage: Stage) -> None:
    agent, other = await stage.component(), await stage.component(OTHER_HOST)
    await agent.says(f"x@{OTHER_AGENT}", "hello")
    await other.gets("hello")
    await other.asks(AGENT, id_="there")
    await agent.gets("there")
    await agent.send(f"<iq to='{OTHER_AGENT}' from='{AGENT}' type='result' id='there'/>")
    await agent.shows(OTHER_AGENT, "subscribe", at="a")
    await other.gets("subscribe")
    await other.leave()
    await agent.says(OTHER_AGENT, "gone")
    await agent.asks(OTHER_AGENT, id_="gone")


async def a_domain_that_does_not_exist(stage: Stage) -> None:
    agent, romeo = await stage.component(), await stage.client("romeo")
    for actor in (agent, romeo):
        await actor.says("nobody.invalid", "m")
        await actor.says("nobody.invalid", "e", **_of_type("error"))
        await actor.asks("nobody.invalid")
        await actor.shows("nobody.invalid")


# Requests.


async def requests_to_accounts(stage: Stage) -> None:
    agent, romeo, juliet = (
        await stage.component(),
        await stage.client("romeo"),
        await stage.client("juliet"),
    )
    for actor in (agent, romeo):
        for type_ in ("get", "set"):
            await actor.asks(juliet.jid, type_=type_, id_=f"full-{type_}")
            await stage.settle()
            payload = PING if type_ == "get" else UNKNOWN
            await actor.asks(stage.account("juliet"), payload, type_, id_=f"bare-{type_}")
            await actor.asks(f"{stage.account('juliet')}/x", payload, type_, id_=f"gone-{type_}")
            await actor.asks(stage.account("nurse"), payload, type_, id_=f"offline-{type_}")
            await actor.asks(f"{stage.account('nurse')}/x", payload, type_, id_=f"off-{type_}")
            await actor.asks(stage.account("nobody"), payload, type_, id_=f"nobody-{type_}")
            await actor.asks(f"{stage.account('nobody')}/x", payload, type_, id_=f"none-{type_}")
        await actor.asks(f"{stage.account('juliet')}/x", "", "result", "result")
        await actor.asks(HOST, id_="host")
        await actor.asks(HOST, UNKNOWN, id_="unknown")
        await actor.asks(HOST, UNKNOWN, type_="set", id_="set")


# Presence.


async def an_account_subscribes_to_a_component(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    address = f"assistant@{AGENT}"
    await juliet.shows(address, "subscribe")
    await agent.gets("type=subscribe")
    await agent.shows(stage.account("juliet"), "subscribed", at="assistant")
    await agent.shows(stage.account("juliet"), at="assistant")
    await juliet.gets("from=assistant")
    await stage.settle()
    await juliet.leave()
    await stage.settle()
    juliet = await stage.client("juliet", "again")
    await agent.gets("type=probe")
    await stage.settle()
    await juliet.shows(address, "unsubscribe")
    await agent.gets("type=unsubscribe")


async def a_component_subscribes_to_an_account(stage: Stage) -> None:
    agent = await stage.component()
    await agent.shows(stage.account("juliet"), "subscribe", at="assistant")
    await stage.settle()
    juliet = await stage.client("juliet")
    await juliet.gets("type=subscribe")
    await juliet.shows(f"assistant@{AGENT}", "subscribed")
    await stage.settle()
    await juliet.shows(inside="<show>away</show>")
    await stage.settle()
    await agent.shows(stage.account("juliet"), "probe", at="assistant")
    await stage.settle()
    await stage.client("juliet", "phone")
    await stage.settle()
    await juliet.leave()
    await agent.gets("juliet/home to=assistant@agent.localhost type=unavailable")
    await stage.settle()
    await stage.actors[2].leave()
    await stage.settle()
    await agent.shows(stage.account("juliet"), "probe", at="assistant")


async def a_component_and_an_account_subscribe_to_each_other(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await juliet.shows(f"assistant@{AGENT}", "subscribe")
    await agent.gets("type=subscribe")
    await agent.shows(stage.account("juliet"), "subscribed", at="assistant")
    await agent.shows(stage.account("juliet"), "subscribe", at="assistant")
    await stage.settle()
    await juliet.shows(f"assistant@{AGENT}", "subscribed")
    await stage.settle()
    await juliet.shows(f"assistant@{AGENT}", "unsubscribed")
    await stage.settle()
    await juliet.shows(f"assistant@{AGENT}", "unsubscribe")
    await stage.settle()
    await juliet.shows(type_="unavailable")


async def a_request_that_nobody_answers(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await juliet.shows(f"assistant@{AGENT}", "subscribe")
    await agent.gets("type=subscribe")
    await juliet.leave()
    await stage.client("juliet", "later")


async def an_account_withdraws_its_approval(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await agent.shows(stage.account("juliet"), "subscribe", at="assistant")
    await juliet.gets("type=subscribe")
    await juliet.shows(f"assistant@{AGENT}", "subscribed")
    await stage.settle()
    await juliet.shows(f"assistant@{AGENT}", "unsubscribed")
    await stage.settle()
    await juliet.shows(inside="<show>away</show>")


async def a_component_withdraws_its_subscription(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await agent.shows(stage.account("juliet"), "subscribe", at="assistant")
    await juliet.gets("type=subscribe")
    await juliet.shows(f"assistant@{AGENT}", "subscribed")
    await stage.settle()
    await agent.shows(stage.account("juliet"), "subscribe", at="assistant")
    await stage.settle()
    await agent.shows(stage.account("juliet"), "unsubscribe", at="assistant")
    await stage.settle()
    await juliet.shows(inside="<show>away</show>")


async def a_component_withdraws_its_approval(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await juliet.shows(f"assistant@{AGENT}", "subscribe")
    await agent.gets("type=subscribe")
    await agent.shows(stage.account("juliet"), "subscribed", at="assistant")
    await stage.settle()
    await agent.shows(stage.account("juliet"), "unsubscribed", at="assistant")
    await stage.settle()
    await agent.shows(stage.account("juliet"), "subscribed", at="assistant")


async def a_subscription_that_is_refused(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await agent.shows(stage.account("juliet"), "subscribe", at="assistant")
    await juliet.gets("type=subscribe")
    await juliet.shows(f"assistant@{AGENT}", "unsubscribed")
    await stage.settle()
    await agent.shows(stage.account("nobody"), "subscribe", at="assistant")
    await agent.shows(stage.account("nobody"), "probe", at="assistant")
    await agent.shows(stage.account("nobody"), at="assistant")
    await agent.shows(stage.account("nurse"), "probe", at="assistant")
    await agent.shows(stage.account("juliet"), "probe", at="assistant")


async def directed_presence(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await juliet.shows(f"assistant@{AGENT}")
    await stage.client("romeo")
    await agent.shows(juliet.jid, at="assistant")
    await agent.shows(stage.account("juliet"), at="assistant")
    await agent.shows(stage.account("romeo"), "unavailable", at="assistant")
    await agent.shows(f"{stage.account('romeo')}/x", at="assistant")
    await agent.gets("presence")
    await stage.settle()
    await juliet.shows(inside="<show>away</show>")
    await stage.settle()
    await juliet.leave()
    await agent.gets("type=unavailable")


async def directed_presence_ends_with_a_broadcast(stage: Stage) -> None:
    await stage.component()
    juliet = await stage.client("juliet")
    await juliet.shows(AGENT)
    await stage.settle()
    await juliet.shows(type_="unavailable")
    await stage.settle()
    await juliet.shows()
    await stage.settle()
    await juliet.leave()


async def presence_while_a_component_is_away(stage: Stage) -> None:
    agent, juliet = await stage.component(), await stage.client("juliet")
    await juliet.shows(f"assistant@{AGENT}", "subscribe")
    await agent.gets("type=subscribe")
    await agent.shows(stage.account("juliet"), "subscribed", at="assistant")
    await stage.settle()
    await agent.leave()
    await stage.settle()
    await juliet.shows(inside="<show>away</show>")
    await stage.settle()
    await stage.component()
    await juliet.shows(inside="<show>dnd</show>")


# PubSub.


async def _pubsub(stage: Stage, id_: str, inside: str, type_: str = "set", after: str = "") -> None:
    actor = stage.actors[0]
    await actor.asks(PUBSUB, f"<pubsub xmlns='{NODES}'>{inside}{after}</pubsub>", type_, id_)
    await actor.gets(f"id={id_} ")
    await stage.settle()


async def subscribers_are_notified(stage: Stage) -> None:
    agent, node = await stage.component(), await stage.node()
    await _pubsub(stage, "sub", f"<subscribe node='{node}' jid='{agent.jid}'/>")
    for id_ in ("a", "b", "a"):
        await stage.publish(node, id_)
    await stage.retract(node, "b")
    await stage.publish(node, "c")
    await stage.purge(node)
    await stage.publish(node, "d")
    await stage.settle()
    await _pubsub(stage, "end", f"<unsubscribe node='{node}' jid='{agent.jid}'/>")
    await stage.publish(node, "e")
    await stage.settle()
    await _pubsub(stage, "again", f"<subscribe node='{node}' jid='{agent.jid}'/>")
    await stage.delete(node)
    await stage.settle()
    await _pubsub(stage, "gone", f"<items node='{node}'/>", "get")


async def a_subscription_brings_the_last_item(stage: Stage) -> None:
    agent, node = await stage.component(), await stage.node()
    for id_ in ("a", "b", "a"):
        await stage.publish(node, id_)
    await _pubsub(stage, "one", f"<subscribe node='{node}' jid='{agent.jid}'/>")
    await _pubsub(stage, "two", f"<subscribe node='{node}' jid='{agent.jid}'/>")
    await stage.publish(node, "c")


async def items_are_listed(stage: Stage) -> None:
    await stage.component()
    node = await stage.node(3)
    await _pubsub(stage, "empty", f"<items node='{node}'/>", "get")
    for id_ in ("a", "b", "c", "d", "b"):
        await stage.publish(node, id_)
    await _pubsub(stage, "all", f"<items node='{node}'/>", "get")
    await _pubsub(stage, "newest", f"<items node='{node}' max_items='1'/>", "get")
    await _pubsub(stage, "two", f"<items node='{node}' max_items='2'/>", "get")
    some = "<item id='c'/><item id='z'/>"
    await _pubsub(stage, "some", f"<items node='{node}'>{some}</items>", "get")
    await _pubsub(stage, "none", f"<items node='{node}'><item id='z'/></items>", "get")
    await stage.retract(node, "c")
    await _pubsub(stage, "rest", f"<items node='{node}'/>", "get")
    await stage.purge(node)
    await _pubsub(stage, "purged", f"<items node='{node}'/>", "get")


async def pubsub_refuses(stage: Stage) -> None:
    agent, node = await stage.component(), await stage.node()
    await _pubsub(stage, "who", f"<subscribe node='{node}' jid='x@else.invalid'/>")
    await _pubsub(stage, "what", f"<subscribe node='none' jid='{agent.jid}'/>")
    await _pubsub(stage, "not", f"<unsubscribe node='{node}' jid='{agent.jid}'/>")
    await _pubsub(stage, "items", "<items node='none'/>", "get")


async def a_subscriber_that_is_away_is_not_told(stage: Stage) -> None:
    agent, node = await stage.component(), await stage.node()
    await _pubsub(stage, "sub", f"<subscribe node='{node}' jid='{agent.jid}'/>")
    await stage.publish(node, "a")
    await agent.gets("item id=a")
    await agent.leave()
    await stage.publish(node, "b")
    await stage.settle()
    agent = await stage.component()
    await stage.settle()
    await stage.publish(node, "c")
    await agent.gets("item id=c")


async def an_account_subscribes_to_a_node(stage: Stage) -> None:
    await stage.client("romeo")
    node = await stage.node()
    romeo = stage.account("romeo")
    await _pubsub(stage, "sub", f"<subscribe node='{node}' jid='{romeo}'/>")
    await stage.publish(node, "a")
    await stage.settle()


# Rooms.


async def people_and_a_component_in_a_room(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    juliet = await stage.client("juliet")
    room = await stage.room(romeo)
    await stage.enters(room, agent, "Agent", at="a")
    await stage.enters(room, juliet, "Juliet")
    await juliet.says(room, "hello", "groupchat")
    await agent.gets("hello")
    await agent.send(
        f"<message to='{room}' from='a@{agent.jid}' type='groupchat' id='reply'>"
        "<body>reply</body></message>"
    )
    await juliet.gets("reply")
    await stage.settle()
    await juliet.says(f"{room}/Agent", "private")
    await agent.gets("private")
    await juliet.says(f"{room}/Nobody", "nobody")
    await juliet.gets("type=error")
    await stage.settle()
    await juliet.shows(f"{room}/Juliet", inside="<show>away</show>")
    await stage.settle()
    await juliet.shows(f"{room}/Julia")
    await stage.settle()
    await juliet.shows(f"{room}/Julia", "unavailable")
    await stage.settle()
    await juliet.says(room, "outside", "groupchat")
    await juliet.gets("outside")


async def a_nickname_that_is_taken(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await agent.shows(f"{room}/owner", inside="<x xmlns='http://jabber.org/protocol/muc'/>", at="a")
    await agent.gets("conflict")


async def history_of_a_room(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    juliet = await stage.client("juliet")
    room = await stage.room(romeo)
    for number in range(4):
        await romeo.says(room, f"m{number}", "groupchat")
        await romeo.gets(f"m{number}")
    await romeo.says(room, "", "groupchat", inside=COMPOSING)
    await stage.settle()
    await stage.enters(room, juliet, "Juliet")
    for number, history in enumerate(
        (
            "<history maxstanzas='0'/>",
            "<history maxstanzas='2'/>",
            "<history since='2001-01-01T00:00:00Z'/>",
            "<history since='2100-01-01T00:00:00Z'/>",
        )
    ):
        await stage.enters(room, agent, f"Agent{number}", history, at=f"a{number}")


async def a_subject(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await romeo.send(
        f"<message to='{room}' type='groupchat' id='s'><subject>Swords</subject></message>"
    )
    await romeo.gets("Swords")
    await stage.settle()
    await stage.enters(room, agent, "Agent", at="a")
    await agent.send(
        f"<message to='{room}' from='a@{agent.jid}' type='groupchat' id='t'>"
        "<subject>Mine</subject></message>"
    )


async def a_kick(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await stage.enters(room, agent, "Agent", at="a")
    await stage.kick(room, romeo, "Agent")
    await agent.gets("type=unavailable")
    await stage.settle()
    await agent.shows(f"{room}/Agent", inside="<x xmlns='http://jabber.org/protocol/muc'/>", at="a")
    await stage.settle()


async def affiliations_in_a_room(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    juliet = await stage.client("juliet")
    room = await stage.room(romeo)
    await stage.affiliate(room, romeo, stage.account("juliet"), "admin")
    await stage.affiliate(room, romeo, f"a@{agent.jid}", "outcast")
    await stage.affiliate(room, romeo, f"b@{agent.jid}", "member")
    await stage.settle()
    romeo.lines.clear()
    for name in ("a", "b"):
        inside = "<x xmlns='http://jabber.org/protocol/muc'/>"
        await agent.shows(f"{room}/Agent-{name}", inside=inside, at=name)
        await stage.settle()
    await stage.enters(room, juliet, "Juliet")


async def a_person_disconnects_in_a_room(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    juliet = await stage.client("juliet")
    await stage.enters(room, agent, "Agent", at="a")
    await stage.enters(room, juliet, "Juliet")
    await stage.settle()
    await juliet.leave()
    await agent.gets("type=unavailable")


async def requests_in_a_room(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await agent.asks(f"{room}/owner", id_="outside")
    await agent.gets("outside")
    await stage.enters(room, agent, "Agent")
    await agent.asks(f"{room}/owner", id_="other")
    await stage.settle()
    await agent.asks(f"{room}/Agent", id_="self")
    await agent.gets("self")
    await agent.asks(f"{room}/Nobody", id_="nobody")
    await agent.gets("nobody")


async def a_component_that_left_is_removed_from_a_room(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await stage.enters(room, agent, "Agent", at="a")
    await agent.leave()
    await romeo.says(room, "anybody", "groupchat")
    await stage.settle()
    romeo.lines.sort()  # it is removed before or after others have received the message
    agent = await stage.component()
    await stage.enters(room, agent, "Agent", at="a")


async def presence_in_a_room_that_a_component_has_left(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    juliet = await stage.client("juliet")
    room = await stage.room(romeo)
    await stage.enters(room, agent, "Agent", at="a")
    await agent.leave()
    await stage.enters(room, juliet, "Juliet")
    juliet.lines.sort()  # a server removes the component before or after it announces her
    romeo.lines.sort()


async def entering_again(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await stage.enters(room, agent, "Agent", at="a")
    await romeo.says(room, "hello", "groupchat")
    await stage.settle()
    await stage.enters(room, agent, "Agent", at="a")
    await stage.enters(room, agent, "Agent", "<history maxstanzas='0'/>", at="a")


async def errors_of_an_occupant(stage: Stage) -> None:
    romeo, agent = await stage.client("romeo"), await stage.component()
    room = await stage.room(romeo)
    await stage.enters(room, agent, "Agent", at="a")
    for condition in ("policy-violation", "service-unavailable"):
        inside = f"<{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
        await agent.send(
            f"<message to='{room}/owner' from='a@{agent.jid}' type='error' id='{condition}'>"
            f"<error type='cancel'>{inside}</error></message>"
        )
        await stage.settle()
    await agent.send(
        f"<message to='{room}/owner' from='b@{agent.jid}' type='error' id='outside'>{SORRY}"
        "</message>"
    )


async def a_room_that_does_not_exist(stage: Stage) -> None:
    agent = await stage.component()
    room = f"none-{agent.jid}@{ROOMS}"
    await agent.says(room, "hello", "groupchat")
    await agent.asks(room, "<query xmlns='http://jabber.org/protocol/disco#info'/>")
    await agent.shows(f"{room}/Agent", "unavailable", at="a")
    await stage.settle()


SCRIPTS: Final[tuple[Script, ...]] = (
    messages_to_somebody_online,
    messages_to_a_resource_that_is_not_there,
    messages_to_several_clients,
    messages_to_somebody_offline,
    messages_without_a_body_to_somebody_offline,
    messages_to_nobody,
    messages_wait_for_a_client_that_wants_them,
    clients_write_to_somebody_offline,
    a_stream_keeps_its_order,
    a_component_that_is_not_connected,
    what_is_lost_when_a_component_leaves,
    two_components,
    a_domain_that_does_not_exist,
    requests_to_accounts,
    an_account_subscribes_to_a_component,
    a_component_subscribes_to_an_account,
    a_component_and_an_account_subscribe_to_each_other,
    a_request_that_nobody_answers,
    an_account_withdraws_its_approval,
    a_component_withdraws_its_subscription,
    a_component_withdraws_its_approval,
    a_subscription_that_is_refused,
    directed_presence,
    directed_presence_ends_with_a_broadcast,
    presence_while_a_component_is_away,
    subscribers_are_notified,
    a_subscription_brings_the_last_item,
    items_are_listed,
    pubsub_refuses,
    a_subscriber_that_is_away_is_not_told,
    an_account_subscribes_to_a_node,
    people_and_a_component_in_a_room,
    a_nickname_that_is_taken,
    history_of_a_room,
    a_subject,
    a_kick,
    affiliations_in_a_room,
    a_person_disconnects_in_a_room,
    requests_in_a_room,
    a_component_that_left_is_removed_from_a_room,
    presence_in_a_room_that_a_component_has_left,
    entering_again,
    errors_of_an_occupant,
    a_room_that_does_not_exist,
)
