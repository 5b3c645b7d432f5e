"""The service on real servers, seen by a client that nobody here wrote: what it serves."""

import json

import pytest
from slixmpp.plugins.xep_0030.stanza.info import DiscoInfo

from tests.servers.clients import SlixClient
from tests.servers.site import AGENT, ASSISTANT, INLINE_S, STANZA_BYTES
from tests.servers.talk import (
    EXECUTE,
    FLUUX,
    INFO,
    ITEMS,
    PING,
    ROSTER,
    RSM,
    SKILLS,
    execute,
    from_,
    output,
    page,
    query,
    result,
)
from tests.xep.fluux_agent.test_seed import DISCOVERY, EXECUTION

pytestmark = [pytest.mark.servers]

# Discovery.

PUBSUB = "http://jabber.org/protocol/pubsub"


def test_the_server_lists_the_component(juliet: SlixClient) -> None:
    items = result(juliet.iq("example.com", query(ITEMS)))
    assert AGENT in {item.get("jid") for item in items}


@pytest.mark.parametrize(
    ("address", "identity"),
    [(AGENT, ("component", "generic")), (ASSISTANT, ("client", "bot"))],
)
def test_disco_info_gives_identity_features_and_limits(
    juliet: SlixClient, address: str, identity: tuple[str, str]
) -> None:
    info = result(juliet.iq(address, query(INFO)))
    found, *others = info.findall(f"{{{INFO}}}identity")
    assert (found.get("category"), found.get("type")) == identity
    assert found.get("name") == "Agent"
    assert [(each.get("category"), each.get("type")) for each in others] == [
        ("pubsub", "pep" if address == ASSISTANT else "service")
    ]
    features = {feature.get("var") or "" for feature in info.findall(f"{{{INFO}}}feature")}
    of_pubsub = {var for var in features if var.startswith(PUBSUB)}
    assert {f"{PUBSUB}#retrieve-items", f"{PUBSUB}#publish", f"{PUBSUB}#subscribe"} <= of_pubsub
    assert features - of_pubsub == {
        FLUUX,
        SKILLS,
        EXECUTE,
        f"{FLUUX}#confirm",
        f"{FLUUX}#memory",
        f"{FLUUX}#plan",
        f"{FLUUX}#task",
        INFO,
        ITEMS,
        RSM,
        "http://jabber.org/protocol/commands",
        "jabber:x:conference",
        "jabber:x:data",
        "http://jabber.org/protocol/caps",
        "jabber:iq:version",
        "urn:xmpp:ping",
        "urn:xmpp:time",
        "urn:xmpp:chat-markers:0",
        "urn:xmpp:eme:0",
        "urn:xmpp:mentions:0",
        "urn:xmpp:reactions:0",
        "urn:xmpp:receipts",
        "urn:xmpp:reply:0",
        "vcard-temp",
        "urn:ietf:params:xml:ns:vcard-4.0",
    }
    form, restrictions = (
        {field.get("var"): field.findtext("{*}value") for field in form.findall("{*}field")}
        for form in info.findall("{jabber:x:data}x")
    )
    assert restrictions["FORM_TYPE"] == "urn:xmpp:reactions:0:restrictions"
    assert form["FORM_TYPE"] == FLUUX
    assert form["agent_name"] == "Agent"
    assert form["software"] == "xmpp-agent-component"
    assert form["max_stanza_bytes"] == str(STANZA_BYTES)
    assert form["inline_seconds"] == str(INLINE_S)


@pytest.mark.parametrize("address", [AGENT, ASSISTANT])
def test_what_any_entity_is_asked(juliet: SlixClient, address: str) -> None:
    assert juliet.iq(address, PING).get("type") == "result"
    version = result(juliet.iq(address, query("jabber:iq:version")))
    assert version.findtext("{*}name") == "xmpp-agent-component"
    time = result(juliet.iq(address, "<time xmlns='urn:xmpp:time'/>"))
    assert time.findtext("{*}utc", "").endswith("Z")


def test_its_items_are_the_agent(juliet: SlixClient) -> None:
    items = result(juliet.iq(AGENT, query(ITEMS))).findall("{*}item")
    hosted = [(item.get("jid"), item.get("name")) for item in items if item.get("node") is None]
    assert hosted == [(ASSISTANT, "Agent")]
    nodes = result(juliet.iq(ASSISTANT, query(ITEMS))).findall("{*}item")
    assert {item.get("jid") for item in nodes} == {ASSISTANT}
    profile = ("urn:xmpp:avatar:data", "urn:xmpp:avatar:metadata", "urn:xmpp:vcard4")
    assert {SKILLS, *profile} <= {item.get("node") for item in nodes}


def skills_seen(client: SlixClient) -> list[str]:
    answer = result(client.iq(AGENT, query(SKILLS)))
    return [skill.get("name", "") for skill in answer.findall(f"{{{SKILLS}}}skill")]


def test_the_skills_of_each(juliet: SlixClient, romeo: SlixClient) -> None:
    seen = skills_seen(juliet)
    assert seen == sorted(seen)
    assert {"echo", "time", "email-summary", "broken", "conformance.sleep"} <= set(seen)
    assert "conformance.hidden" not in seen
    assert set(skills_seen(romeo)) - set(seen) == {"only-romeo"}


@pytest.mark.parametrize(
    ("namespace", "node", "name_in"), [(SKILLS, "", "name"), (ITEMS, f"node='{SKILLS}'", "node")]
)
def test_the_skills_page_by_page(
    juliet: SlixClient, namespace: str, node: str, name_in: str
) -> None:
    found: list[str] = []
    last = None
    while True:
        answer = result(juliet.iq(AGENT, query(namespace, node, page(4, last))))
        which = answer.find(f"{{{RSM}}}set")
        assert which is not None
        entries = [e.get(name_in, "").removeprefix(f"{SKILLS}/") for e in answer if e is not which]
        assert len(entries) <= 4
        if not entries:
            break
        last = which.findtext(f"{{{RSM}}}last")
        assert last == entries[-1]
        found += entries
    assert found == skills_seen(juliet)
    assert which.findtext(f"{{{RSM}}}count") == str(len(found))


def test_one_skill_with_its_schemas(juliet: SlixClient) -> None:
    answer = result(juliet.iq(AGENT, query(SKILLS, "skill='conformance.add'")))
    (skill,) = answer.findall(f"{{{SKILLS}}}skill")
    params = {p.get("name"): (p.get("type"), p.get("required")) for p in skill.findall("{*}param")}
    assert params == {"a": ("integer", "true"), "b": ("integer", "true")}
    schemas = {s.get("for"): json.loads(s.text or "") for s in skill.findall("{*}schema")}
    assert set(schemas["input"]["required"]) == {"a", "b"}
    assert schemas["output"]["type"] == "integer"
    marks = skill.find("{*}annotations")
    assert marks is not None
    assert (marks.get("read-only"), marks.get("destructive")) == ("true", "false")


def test_skills_by_words_and_by_version(juliet: SlixClient) -> None:
    answer = result(juliet.iq(AGENT, query(SKILLS, "search='newest mails'")))
    assert [s.get("name") for s in answer.findall(f"{{{SKILLS}}}skill")] == ["email-summary"]
    again = result(juliet.iq(AGENT, query(SKILLS, f"version='{answer.get('version')}'")))
    assert again.get("unchanged") == "true"
    assert again.findall(f"{{{SKILLS}}}skill") == []


# Execution.


@pytest.mark.parametrize("address", [AGENT, ASSISTANT])
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (execute("echo", text="<&> \u00e9\U0001f600"), "<&> \u00e9\U0001f600"),
        (execute("conformance.add", a=40, b=" 2 "), "42"),
        (execute("conformance.add", json='{"a": 40, "b": 2}'), "42"),
        (execute("conformance.add", a=40, json='{"b": 2}'), "42"),
        (execute("conformance.sleep", seconds=0.01), "slept 0.01 seconds"),
        (execute("conformance.progress", steps=3), "3 steps"),
        (execute("conformance.big", bytes=10_000), "x" * 10_000),
        (execute("echo", attributes="mode='inline'", text="now"), "now"),
        (execute("echo", attributes="deadline='2999-01-01T00:00:00Z'", text="early"), "early"),
    ],
    ids=["text", "typed", "json", "both", "async", "context", "thread", "inline", "deadline"],
)
def test_execute_is_answered_with_the_output(
    juliet: SlixClient, address: str, payload: str, expected: str
) -> None:
    reply = juliet.iq(address, payload, "set")
    assert reply.get("from") == address
    assert output(reply) == expected


def test_every_type_of_parameter(juliet: SlixClient) -> None:
    point = json.dumps({"point": {"x": 1, "y": -1}})
    asked = execute(
        "conformance.types", json=point, colour="red", flag="true", ratio="0.5", words=["a", "b"]
    )
    reply = juliet.iq(AGENT, asked, "set")
    assert json.loads(output(reply)) == {
        "colour": "red",
        "flag": True,
        "ratio": 0.5,
        "words": ["a", "b"],
        "note": None,
        "point": {"x": 1, "y": -1},
    }
    (found,) = result(reply).findall(f"{{{EXECUTE}}}output")
    assert found.get("type") == "application/json"


def test_a_skill_that_says_no(juliet: SlixClient) -> None:
    answer = result(juliet.iq(AGENT, execute("conformance.fail", message="not today"), "set"))
    assert answer.get("is-error") == "true"
    assert answer.findtext(f"{{{EXECUTE}}}output") == "not today"


def test_it_knows_who_asks(romeo: SlixClient) -> None:
    assert output(romeo.iq(AGENT, execute("only-romeo"), "set")) == "romeo@example.com"


def with_id(xml: str, id_: str) -> str:
    return xml.replace("<iq ", f"<iq id='{id_}' ", 1)


def test_the_iqs_of_the_first_draft(juliet: SlixClient) -> None:
    """Letter for letter, but for the id, without which no server passes an IQ."""
    found = result(juliet.start_raw_iq(with_id(DISCOVERY, "seed-1")).result(120))
    assert found.tag == f"{{{SKILLS}}}query"
    assert "email-summary" in {s.get("name") for s in found.findall(f"{{{SKILLS}}}skill")}
    assert output(juliet.start_raw_iq(with_id(EXECUTION, "seed-2")).result(120)) == "20 mails"


# Presence and chat.


def test_presence_and_its_capabilities(juliet: SlixClient) -> None:
    # Who has asked for the roster is told what becomes of subscriptions (RFC 6121 §2.2).
    assert juliet.iq(None, ROSTER).get("type") == "result"
    generate = juliet.xmpp.plugin["xep_0115"].generate_verstring
    for address in (AGENT, ASSISTANT):
        juliet.send_raw(f"<presence to='{address}' type='subscribe'/>")
        juliet.presences.take(from_(address, "subscribed"))
        available = juliet.presences.take(from_(address))
        caps = available.find("{http://jabber.org/protocol/caps}c")
        assert caps is not None
        assert caps.get("hash") == "sha-1"
        node = f"{caps.get('node')}#{caps.get('ver')}"
        info = result(juliet.iq(address, query(INFO, f"node='{node}'")))
        # slixmpp's own reading of XEP-0115 §5.1, of the answer with and without the node.
        assert generate(DiscoInfo(xml=info), "sha-1") == caps.get("ver")
        plain = result(juliet.iq(address, query(INFO)))
        assert generate(DiscoInfo(xml=plain), "sha-1") == caps.get("ver")
    # The two addresses are one contact.
    juliet.messages.take(lambda message: "the same agent" in message.findtext("{*}body", ""))


@pytest.mark.parametrize("address", [AGENT, ASSISTANT])
def test_commands_in_a_chat_are_answered(juliet: SlixClient, address: str) -> None:
    def ask(body: str) -> str:
        juliet.send_raw(f"<message to='{address}' type='chat'><body>{body}</body></message>")
        answer = juliet.messages.take(from_(address, "chat"))
        assert answer.get("from") == address
        return answer.findtext("{*}body", "")

    assert ask("/ping") == "pong"
    for command in ("/help", "/skills", "/ping"):
        assert command in ask("/help")
    listed = ask("/skills")
    assert "(email-summary): Summarise the newest mails." in listed
    assert "only-romeo" not in listed
    assert "conformance.hidden" not in listed
    assert ask("/skills newest mails").startswith("- Email summary ")
    assert "/help" in ask("/nosuch")
