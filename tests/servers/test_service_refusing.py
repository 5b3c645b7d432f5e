"""The service on real servers, seen by a client that nobody here wrote: errors and refusals."""

from collections.abc import Iterator

import pytest

from tests.servers.clients import Element, SlixClient
from tests.servers.fixtures import SNOWMAN
from tests.servers.site import AGENT, ASSISTANT, STANZA_BYTES, Site
from tests.servers.talk import (
    EXECUTE,
    INFO,
    ITEMS,
    PING,
    SKILLS,
    application,
    but_the_id,
    condition,
    error,
    execute,
    login,
    output,
    query,
)
from tests.servers.tasking import cancel, decision, events, get, heard, listed
from xep.commands import NAMESPACE as COMMANDS

pytestmark = [pytest.mark.servers]

# Errors: every condition of docs/how-to/callers.md that a client can provoke.


@pytest.mark.parametrize(
    ("payload", "expected", "detail"),
    [
        (execute("conformance.add", a="x", b=1), "bad-request", "invalid-param"),
        (execute("conformance.add", a=1), "bad-request", "invalid-param"),
        (execute("echo", text="1", more="2"), "bad-request", "invalid-param"),
        (execute("echo", text="1", json='{"text": "2"}'), "bad-request", "invalid-param"),
        (f"<execute xmlns='{EXECUTE}'/>", "bad-request", "malformed"),
        (execute("echo", json="{"), "bad-request", "malformed"),
        (execute("nosuch"), "item-not-found", "unknown-skill"),
        (
            execute("conformance.erase", attributes="mode='inline'", target="x"),
            "not-allowed",
            "confirmation-unavailable",
        ),
        (
            f"<execute xmlns='{EXECUTE}' skill='echo'><earlier task='nosuch'/></execute>",
            "item-not-found",
            "unknown-task",
        ),
        (
            execute("echo", attributes="deadline='2001-01-01T00:00:00Z'", text="x"),
            "not-acceptable",
            "deadline-expired",
        ),
        (execute("echo", text="x" * (STANZA_BYTES + 1)), "policy-violation", "too-big"),
        (execute("conformance.big", bytes=2 * STANZA_BYTES), "policy-violation", "too-big"),
        (execute("broken"), "internal-server-error", "internal"),
        ("<nosuch xmlns='urn:example:nosuch'/>", "service-unavailable", None),
    ],
)
def test_each_bad_request_gets_its_error_and_harms_no_stream(
    juliet: SlixClient, payload: str, expected: str, detail: str | None
) -> None:
    reply = juliet.iq(AGENT, payload, "set")
    assert reply.get("from") == AGENT
    assert condition(reply) == expected
    found = application(reply)
    assert (found is None) == (detail is None)
    if found is not None:
        assert found.tag.rpartition("}")[2] == detail
    # None of them harms the stream, which carries everybody.
    assert juliet.iq(AGENT, PING).get("type") == "result"


def test_a_wrong_parameter_is_named(juliet: SlixClient) -> None:
    reply = juliet.iq(AGENT, execute("conformance.add", a="x", b=1), "set")
    detail = application(reply)
    assert detail is not None
    assert detail.get("name") == "a"
    text = error(reply).findtext("{*}text", "")
    assert "a: " in text
    assert "integer" in text


def test_a_skill_that_breaks_tells_the_admin_alone(site: Site, juliet: SlixClient) -> None:
    reply = juliet.iq(AGENT, execute("broken"), "set")
    assert "what nobody outside may read" not in but_the_id(reply)
    line = site.agent.wait_log("a skill failed", skill="broken")
    assert "what nobody outside may read" in line["exception"]


def test_a_sender_that_is_no_address(site: Site) -> None:
    with login(site.server, SNOWMAN) as snowman:
        reply = snowman.iq(AGENT, PING)
        assert condition(reply) == "jid-malformed"
        assert reply.get("to") == snowman.jid


def test_nobody_of_that_address(juliet: SlixClient) -> None:
    reply = juliet.iq(f"nobody@{AGENT}", execute("echo", text="x"), "set")
    assert condition(reply) == "service-unavailable"


@pytest.fixture
def fresh(site: Site) -> Iterator[SlixClient]:
    """Juliet on a new connection: servers let it send 20 KB at once, before they limit its rate."""
    with login(site.server) as client:
        yield client


def test_too_much_at_once_and_too_long(fresh: SlixClient, romeo: SlixClient) -> None:
    """One over its share is refused at once, others are served; what is too long is given up."""
    sleep = execute("conformance.sleep", attributes="mode='inline'", seconds=60)
    slow = [fresh.start_iq(AGENT, sleep, "set") for _ in range(64)]
    reply = fresh.iq(AGENT, sleep, "set")
    assert condition(reply) == "resource-constraint"
    assert error(reply).get("type") == "wait"
    retry = application(reply)
    assert retry is not None
    assert int(retry.get("after", "")) >= 1
    assert output(romeo.iq(AGENT, execute("conformance.sleep", seconds=0), "set"))
    for late in (future.result(120) for future in slow):
        assert condition(late) == "remote-server-timeout"
        detail = application(late)
        assert detail is not None
        assert detail.tag.endswith("}timeout")
    assert output(fresh.iq(AGENT, execute("conformance.sleep", seconds=0), "set"))


# Refusal.

EVERY_IQ = [
    ("get", query(INFO)),
    ("get", query(INFO, "node='urn:example:nosuch'")),
    ("get", query(ITEMS)),
    ("get", query(ITEMS, f"node='{SKILLS}'")),
    ("get", query(SKILLS)),
    ("get", query(SKILLS, "skill='echo'")),
    ("get", query(SKILLS, "skill='nosuch'")),
    ("set", execute("echo", text="x")),
    ("set", execute("nosuch")),
    ("set", execute("conformance.hidden")),
    ("set", f"<execute xmlns='{EXECUTE}'/>"),
    ("set", execute("echo", text="x" * (STANZA_BYTES + 1))),
    ("set", execute("conformance.erase", attributes="mode='async'", target="x")),
    ("get", get("nosuch")),
    ("get", listed()),
    ("get", events("nosuch", 0)),
    ("set", cancel("nosuch")),
    ("set", decision("nosuch", "approve")),
    ("set", f"<command xmlns='{COMMANDS}' node='command/status'/>"),
    ("get", query(ITEMS, f"node='{COMMANDS}'")),
    ("get", PING),
    ("get", query("jabber:iq:version")),
    ("get", "<time xmlns='urn:xmpp:time'/>"),
    ("get", "<nosuch xmlns='urn:example:nosuch'/>"),
    ("set", "<nosuch xmlns='urn:example:nosuch'/>"),
]


@pytest.mark.parametrize("address", [AGENT, ASSISTANT, f"nobody@{AGENT}"])
def test_a_stranger_gets_the_same_to_everything(mallory: SlixClient, address: str) -> None:
    replies = [mallory.iq(address, payload, type_) for type_, payload in EVERY_IQ]
    assert {condition(reply) for reply in replies} == {"service-unavailable"}
    assert application(replies[0]) is None
    assert len({but_the_id(reply) for reply in replies}) == 1


def test_a_stranger_hears_nothing_else(juliet: SlixClient, mallory: SlixClient) -> None:
    for address in (AGENT, ASSISTANT):
        for type_, body in (("chat", "/help"), ("normal", "/help"), ("chat", "yes")):
            mallory.send_raw(
                f"<message to='{address}' type='{type_}'><body>{body}</body></message>"
            )
        mallory.send_raw(f"<presence to='{address}' type='subscribe'/>")
        mallory.send_raw(f"<presence to='{address}' type='probe'/>")
        mallory.send_raw(f"<presence to='{address}'/>")
    # All of it has been handled when this is answered, and what it caused came before this.
    assert condition(mallory.iq(AGENT, PING)) == "service-unavailable"
    juliet.send_raw(f"<message to='{AGENT}' type='chat'><body>/ping</body></message>")
    heard(juliet, AGENT, "pong")
    assert condition(mallory.iq(AGENT, PING)) == "service-unavailable"

    def is_ours(stanza: Element) -> bool:
        return stanza.get("from", "").partition("/")[0].endswith(AGENT)

    came = [*mallory.messages.all(), *mallory.presences.all()]
    assert [stanza for stanza in came if is_ours(stanza)] == []


@pytest.mark.parametrize("name", ["conformance.hidden", "only-romeo"])
def test_a_skill_that_one_may_not_use_is_not_there(juliet: SlixClient, name: str) -> None:
    for type_, asked in (
        ("set", execute("NAME")),
        ("set", execute("NAME", text="x")),
        ("set", execute("NAME", attributes="mode='async'")),
        ("set", execute("NAME", attributes="deadline='2001-01-01T00:00:00Z'")),
        ("get", query(SKILLS, "skill='NAME'")),
        ("get", query(INFO, f"node='{SKILLS}/NAME'")),
        ("get", query(ITEMS, f"node='{SKILLS}/NAME'")),
    ):
        hidden = juliet.iq(AGENT, asked.replace("NAME", name), type_)
        unknown = juliet.iq(AGENT, asked.replace("NAME", "nosuch"), type_)
        assert condition(hidden) == "item-not-found"
        assert but_the_id(hidden) == but_the_id(unknown)
