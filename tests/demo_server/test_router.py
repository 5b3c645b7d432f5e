"""Where stanzas go: between clients, the component and the server itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.demo_server.fakes import AGENT, C, Client, World, condition

PING = "<ping xmlns='urn:xmpp:ping'/>"
INFO = "{http://jabber.org/protocol/disco#info}"
ITEMS = "{http://jabber.org/protocol/disco#items}"


@pytest.fixture
def world() -> World:
    return World()


def test_the_sender_is_who_has_logged_in_whatever_it_writes(world: World) -> None:
    juliet, romeo = world.client("juliet", "balcony"), world.client("romeo", "orchard")
    juliet.says(
        "<message from='pope@rome/x' to='romeo@localhost/orchard'><body>hi</body></message>"
    )
    (message,) = romeo.take()
    assert message.get("from") == juliet.jid
    assert message.findtext(f"{C}body") == "hi"


def test_a_component_speaks_for_each_address_of_its_domain(world: World) -> None:
    romeo, component = world.client("romeo", "orchard"), world.component()
    component.says(f"<message from='nurse@{AGENT}/x' to='{romeo.jid}'><body>hi</body></message>")
    (message,) = romeo.take()
    assert message.get("from") == f"nurse@{AGENT}/x"


def test_an_iq_goes_to_the_component_and_its_answer_back(world: World) -> None:
    juliet, component = world.client("juliet", "balcony"), world.component()
    assert juliet.says(f"<iq type='get' id='1' to='{AGENT}'>{PING}</iq>") == []
    (request,) = component.take()
    assert (request.get("from"), request.get("id")) == (juliet.jid, "1")
    component.says(f"<iq type='result' id='1' from='{AGENT}' to='{juliet.jid}'/>")
    (answer,) = juliet.take()
    assert (answer.get("type"), answer.get("from")) == ("result", AGENT)


def test_a_components_iq_to_its_own_domain_comes_back_to_it(world: World) -> None:
    component = world.component()
    (request,) = component.says(f"<iq type='get' id='1' from='{AGENT}' to='{AGENT}'>{PING}</iq>")
    assert request.get("type") == "get"


def test_a_component_that_is_away_may_come_back(world: World) -> None:
    juliet = world.client("juliet", "balcony")
    for stanza in (f"<iq type='get' id='1' to='{AGENT}'>{PING}</iq>", f"<message to='a@{AGENT}'/>"):
        (answer,) = juliet.says(stanza)
        assert condition(answer) == "remote-server-timeout"
        assert answer.find(f"{C}error").get("type") == "wait"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("nobody@localhost", "service-unavailable"),
        ("romeo@localhost", "service-unavailable"),
        ("romeo@localhost/nowhere", "service-unavailable"),
        ("far.example", "remote-server-not-found"),
        ("@@", "jid-malformed"),
    ],
)
@pytest.mark.parametrize("kind", ["iq", "message"])
def test_who_writes_to_nobody_hears_of_it(world: World, kind: str, to: str, expected: str) -> None:
    juliet = world.client("juliet", "balcony")
    (answer,) = juliet.says(f"<{kind} type='get' id='1' to='{to}'>{PING}</{kind}>")
    assert condition(answer) == expected
    assert (answer.get("id"), answer.get("from")) == ("1", to)


@given(
    kind=st.sampled_from(["iq", "message", "presence"]),
    to=st.sampled_from(["nobody@localhost", "romeo@localhost/x", AGENT, "far.example", "@@", ""]),
)
def test_answers_and_errors_are_never_answered(kind: str, to: str) -> None:
    juliet = World().client("juliet", "balcony")
    types = {"iq": ["result", "error"], "message": ["error"], "presence": ["error", "unavailable"]}
    for type_ in types[kind]:
        assert juliet.says(f"<{kind} type='{type_}' id='1' to='{to}'/>") == []


@pytest.mark.parametrize(
    "iq",
    [
        "<iq type='get' id='1'/>",
        f"<iq type='set' id='1'>{PING}{PING}</iq>",
        f"<iq type='get'>{PING}</iq>",
        f"<iq type='dance' id='1'>{PING}</iq>",
        f"<iq id='1' to='{AGENT}'>{PING}</iq>",
        "<iq type='set' id='1'><query xmlns='jabber:iq:roster'><item jid='@@'/></query></iq>",
    ],
)
def test_an_iq_that_breaks_the_rules_is_a_bad_request(world: World, iq: str) -> None:
    component = world.component()
    (answer,) = world.client("juliet", "balcony").says(iq)
    assert condition(answer) == "bad-request"
    assert component.take() == []


# Messages to an account (RFC 6121 §8.5).


def receivers(world: World, clients: list[Client], message: str) -> list[str]:
    sender = world.client("juliet", "balcony")
    answers = sender.says(message)
    got = [client.jid.rpartition("/")[2] for client in clients if client.take()]
    return got + [f"bounced: {condition(answer)}" for answer in answers]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("to='romeo@localhost'", ["high", "top"]),
        ("to='romeo@localhost' type='chat'", ["high", "top"]),
        ("to='romeo@localhost' type='headline'", ["low", "high", "top"]),
        ("to='romeo@localhost' type='error'", []),
        ("to='romeo@localhost' type='groupchat'", ["bounced: service-unavailable"]),
        ("to='romeo@localhost/negative' type='chat'", ["negative"]),
        ("to='romeo@localhost/silent' type='normal'", ["silent"]),
        ("to='romeo@localhost/gone' type='chat'", ["high", "top"]),
        ("to='romeo@localhost/gone' type='headline'", []),
        ("to='romeo@localhost/gone' type='groupchat'", ["bounced: service-unavailable"]),
    ],
)
def test_which_of_an_accounts_clients_get_a_message(
    world: World, attributes: str, expected: list[str]
) -> None:
    def presence(priority: int) -> str:
        return f"<presence><priority>{priority}</priority></presence>"

    clients = [
        world.client("romeo", "low", presence(0)),
        world.client("romeo", "high", presence(5)),
        world.client("romeo", "top", presence(5)),
        world.client("romeo", "negative", presence(-1)),
        world.client("romeo", "silent"),
    ]
    for client in clients:
        client.take()
    assert receivers(world, clients, f"<message {attributes}><body>hi</body></message>") == expected


def test_a_message_that_nobody_would_read_is_bounced(world: World) -> None:
    romeo = world.client("romeo", "away", "<presence><priority>-1</priority></presence>")
    message = "<message to='romeo@localhost'><body>hi</body></message>"
    assert receivers(world, [romeo], message) == ["bounced: service-unavailable"]


# The server itself.


def test_a_client_finds_the_component_by_asking_the_server(world: World) -> None:
    juliet = world.client("juliet", "balcony")
    (answer,) = juliet.says(
        "<iq type='get' id='1' to='localhost'>"
        "<query xmlns='http://jabber.org/protocol/disco#items'/></iq>"
    )
    assert [item.get("jid") for item in answer.iter(f"{ITEMS}item")] == [AGENT]
    (answer,) = juliet.says(
        "<iq type='get' id='2' to='localhost'>"
        "<query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
    )
    identity = answer.find(f"{INFO}query/{INFO}identity")
    assert identity is not None
    assert (identity.get("category"), identity.get("type")) == ("server", "im")
    features = {feature.get("var") for feature in answer.iter(f"{INFO}feature")}
    assert {"urn:xmpp:ping", "jabber:iq:version", "jabber:iq:roster"} <= features


@pytest.mark.parametrize("to", ["", "to='localhost'", "to='juliet@localhost'"])
@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("get", PING),
        ("set", "<session xmlns='urn:ietf:params:xml:ns:xmpp-session'/>"),
        ("get", "<query xmlns='http://jabber.org/protocol/disco#info'/>"),
    ],
)
def test_what_the_server_answers(world: World, to: str, type_: str, payload: str) -> None:
    (answer,) = world.client("juliet", "b").says(f"<iq type='{type_}' id='1' {to}>{payload}</iq>")
    assert (answer.get("type"), answer.get("id")) == ("result", "1")


def test_the_component_may_ask_the_server_too(world: World) -> None:
    (answer,) = world.component().says(
        f"<iq type='get' id='1' from='{AGENT}' to='localhost'>{PING}</iq>"
    )
    assert (answer.get("type"), answer.get("to"), answer.get("from")) == (
        "result",
        AGENT,
        "localhost",
    )


@pytest.mark.parametrize(
    "payload",
    [
        "<vCard xmlns='vcard-temp'/>",
        "<enable xmlns='urn:xmpp:carbons:2'/>",
        "<query xmlns='urn:xmpp:mam:2'/>",
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'/>",
        "<query xmlns='jabber:iq:private'/>",
    ],
)
@pytest.mark.parametrize("to", ["", "to='localhost'", "to='romeo@localhost'"])
def test_what_is_not_offered_is_refused(world: World, to: str, payload: str) -> None:
    (answer,) = world.client("juliet", "b").says(f"<iq type='set' id='1' {to}>{payload}</iq>")
    assert condition(answer) == "service-unavailable"


def test_the_latest_client_gets_the_resource(world: World) -> None:
    former = world.client("juliet", "balcony", "<presence/>")
    other = world.client("juliet", "garden", "<presence/>")
    former.take()
    latest = world.client("juliet", "balcony")
    assert former.closed is not None
    assert former.closed.condition == "conflict"
    assert [presence.get("type") for presence in other.take()] == ["unavailable"]
    former.leaves()  # its connection ends later; that must not take the address from the latest
    other.says(f"<message to='{latest.jid}'/>")
    assert len(latest.take()) == 1
