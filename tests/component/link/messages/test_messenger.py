"""Messages on their way, and what others say about them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.messages.delivery import Delivery
from component.link.messages.inbound import Account, InboundMessage, Reacted, Reference
from component.link.messages.messenger import Messenger, SentMessages, TooBigError
from component.link.messages.parsing import parse_message
from tests.component.link.messages.clients import NOON
from tests.component.link.messages.test_rendering import AGENT, JULIET, outbound
from tests.component.link.router.wire import ListOutput, Wire, element, parse
from xep.jid import JID
from xep.receipts import Received
from xep.stanza_stream import StanzaReceived

ROMEO = JID.parse("romeo@b.example/orchard")


class World:
    """A messenger, and stanzas from others."""

    def __init__(self, limit: int = 262_144) -> None:
        self.output = ListOutput()
        self.messenger = Messenger(self.output, limit)
        self.wire = Wire()

    def hears(self, inner: str, from_: JID = JULIET, type_: str = "chat") -> InboundMessage:
        xml = element("message", inner, type=type_, id="in", from_=str(from_), to=str(AGENT))
        (event,) = self.wire.events(xml)
        assert isinstance(event, StanzaReceived)
        return self.messenger.receive(parse_message(event.stanza, from_, AGENT, NOON))


def test_a_message_is_put_and_its_delivery_is_told() -> None:
    world = World()
    world.output.holds = True
    delivery = world.messenger.send(outbound("Hi", must_arrive=True))
    assert (delivery.state, delivery.must_arrive) == ("queued", True)
    world.output.settle("written")
    assert delivery.is_sent
    (sent,) = [parse(xml) for xml in world.output.sent]
    assert sent.findtext("{jabber:client}body") == "Hi"


def test_a_message_of_nothing_is_written() -> None:
    assert World().messenger.send(outbound("")).state == "written"


def test_of_what_does_not_fit_nothing_is_sent() -> None:
    world = World(6_000)
    with pytest.raises(TooBigError):
        world.messenger.send(outbound("Hi" * 400, payloads=(Received(id="x" * 6_000),)))
    assert world.output.sent == []


@pytest.mark.parametrize(
    ("report", "state"),
    [
        ("<received xmlns='urn:xmpp:receipts' id='m1'/>", "received"),
        ("<displayed xmlns='urn:xmpp:chat-markers:0' id='m1'/>", "displayed"),
        ("<received xmlns='urn:xmpp:receipts' id='m2'/>", "written"),
        ("<received xmlns='urn:xmpp:receipts'/>", "written"),
    ],
)
def test_the_client_tells_what_it_has_received_and_displayed(report: str, state: str) -> None:
    world = World()
    delivery = world.messenger.send(outbound("Hi"))
    world.hears(report)
    assert delivery.state == state


def test_nobody_else_can_tell_and_displayed_stays() -> None:
    world = World()
    delivery = world.messenger.send(outbound("Hi"))
    world.hears("<received xmlns='urn:xmpp:receipts' id='m1'/>", ROMEO)
    assert delivery.state == "written"
    world.hears("<displayed xmlns='urn:xmpp:chat-markers:0' id='m1'/>")
    world.hears("<received xmlns='urn:xmpp:receipts' id='m1'/>")
    assert delivery.state == "displayed"


def test_what_has_not_been_written_cannot_have_been_received() -> None:
    world = World()
    world.output.holds = True
    delivery = world.messenger.send(outbound("Hi"))
    world.hears("<received xmlns='urn:xmpp:receipts' id='m1'/>")
    assert delivery.state == "queued"


def test_every_part_of_a_long_text_stands_for_its_message() -> None:
    world = World(10_000)
    world.messenger.send(outbound("word " * 1_000))
    ids = [parse(xml).get("id") for xml in world.output.sent]
    assert len(ids) > 1
    for id_ in ids:
        heard = world.hears(f"<reply xmlns='urn:xmpp:reply:0' id='{id_}'/><body>yes</body>")
        assert heard.replies_to == Reference("m1", True)
        reacts = f"<reactions xmlns='urn:xmpp:reactions:0' id='{id_}'><reaction>x</reaction>"
        assert world.hears(f"{reacts}</reactions>").reacted == Reacted("m1", frozenset("x"))


def test_what_refers_to_the_message_of_another_is_left_alone() -> None:
    world = World(10_000)
    world.messenger.send(outbound("word " * 1_000))
    reply = f"<reply xmlns='urn:xmpp:reply:0' id='m1-2' to='{ROMEO}'/><body>yes</body>"
    assert world.hears(reply).replies_to == Reference("m1-2", False)


def test_a_room_gives_a_message_an_id_of_its_own() -> None:
    sent = SentMessages()
    message = outbound("Hi")
    room = msgspec.structs.replace(message.conversation, in_room=True)
    sent.add(msgspec.structs.replace(message, conversation=room), "m1", Delivery())
    assert sent.id_of(room, "s-1") == "s-1"
    sent.reflected(room, "m1", "s-1")
    assert sent.id_of(room, "s-1") == "m1"
    sent.reflected(room, "unknown", "s-2")
    assert sent.id_of(room, "s-2") == "s-2"


def test_a_stanza_id_that_is_taken_is_not_given_to_another_message() -> None:
    sent = SentMessages()
    first = outbound("Hi")
    second = msgspec.structs.replace(first, id="m2")
    sent.add(first, "m1", Delivery())
    sent.add(second, "m2", Delivery())
    for message in (first, second):
        sent.reflected(first.conversation, message.id, "s-1")
    assert sent.id_of(first.conversation, "s-1") == "m1"


@given(
    reports=st.lists(
        st.tuples(
            st.sampled_from(["m1", "m2", "other"]),
            st.sampled_from(["received", "displayed"]),
            st.sampled_from([JULIET, ROMEO]),
        )
    )
)
def test_a_message_is_as_far_as_its_recipient_said(
    reports: list[tuple[str, str, JID]],
) -> None:
    world = World()
    deliveries = {
        id_: world.messenger.send(msgspec.structs.replace(outbound("Hi"), id=id_))
        for id_ in ("m1", "m2")
    }
    rank = ["written", "received", "displayed"]
    for id_, report, who in reports:
        namespace = "urn:xmpp:receipts" if report == "received" else "urn:xmpp:chat-markers:0"
        heard = world.hears(f"<{report} xmlns='{namespace}' id='{id_}'/>", who)
        assert heard.actor == Account(who.bare)
    for id_, delivery in deliveries.items():
        told = [report for to, report, who in reports if (to, who) == (id_, JULIET)]
        assert delivery.state == max(["written", *told], key=rank.index)
