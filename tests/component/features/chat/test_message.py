"""Chat without a model: commands are answered, and so is everything else, by what works."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Annotated

import msgspec
import pytest

from component.commands import Asking, CommandError, CommandResult, Commands, Outline
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.policy import Rule
from component.skills import Skill, skill
from component.store import StorageError
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import (
    AGENT,
    DOMAIN,
    REFUSED,
    Bench,
    ListOutput,
    element,
    parse,
)
from tests.component.world import ALICE, BOB, World
from xep.jid import JID
from xep.stanza import Message

pytestmark = pytest.mark.anyio

DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2026-11-21T10:00:00Z'/>"


def made(name: str, description: str = "Do nothing.") -> Skill:
    @skill(name=name, description=description, inline=True)
    def f() -> None:
        pass

    return f


_IDS = count(1)


async def said(
    world: World,
    body: str | None,
    *,
    more: str = "",
    type_: str | None = "chat",
    from_: str | None = ALICE,
    to: str = AGENT,
) -> list[Message]:
    """What is answered to a message."""
    before = len(world.sent)
    content = ("" if body is None else element("body", body)) + more
    # A router that has ended takes nothing on again, and the world is asked more than once.
    bench = Bench(world.bench.router.table.routes, admits=world.policy.admits)
    async with bench.running():
        id_ = f"m{next(_IDS)}"
        bench.receive(element("message", content, type=type_, from_=from_, to=to, id=id_))
        await bench.settled()
    assert bench.output.sent == []
    answers = world.sent[before:]
    assert all(isinstance(answer, Message) for answer in answers)
    return [answer for answer in answers if isinstance(answer, Message)]


async def answered(world: World, body: str, **how: str) -> str:
    (answer,) = await said(world, body, **how)
    assert answer.body is not None
    return answer.body


# -- commands ------------------------------------------------------------------------------------


async def test_help_names_every_command() -> None:
    text = await answered(World(), "/help")
    first, *groups, last = text.split("\n\n")
    assert first.startswith("I am Assistant. I can't talk yet")
    assert [[line.split(" - ")[0] for line in group.splitlines()] for group in groups] == [
        ["Every day:", "/skills", "/run", "/help"],
        ["When I write to you:", "/stop-contact", "/start-contact"],
        ["More:", "/ping"],
    ]
    assert "help without the slash" in last


@pytest.mark.parametrize("body", ["help", "Help", "HELP", " help\n", "help!", "Help ?", "help."])
async def test_help_needs_no_slash(body: str) -> None:
    """Some clients keep a line that begins with a slash for themselves."""
    assert await answered(World(), body) == await answered(World(), "/help")


@pytest.mark.parametrize(
    "body",
    ["help me", "can you help", "/me help", "helpful", "help help", "help\nping", "/me  help"],
)
async def test_help_among_other_words_is_no_command(body: str) -> None:
    assert "I can't talk yet" in await answered(World(), body)


@pytest.mark.parametrize("body", ["/ping", " /PING\n", "/ ping", "/ping\t"])
async def test_ping_is_answered(body: str) -> None:
    assert await answered(World(), body) == "pong"


async def test_skills_lists_what_is_for_the_one_who_asks() -> None:
    world = World(
        [made("b", "Second.\n\nMore of it."), made("a", "First."), made("c")],
        rules=[Rule(("c",), allowed_domains=("b.example",))],
    )
    listed, how = (await answered(world, "/skills")).split("\n\n")
    assert listed == "- A (a): First.\n- B (b): Second."
    assert "/run" in how
    assert "- C (c): " in await answered(world, "/skills", from_=BOB)


async def test_skills_can_be_searched() -> None:
    world = World([made("a", "Make tea."), made("b", "Make coffee."), made("c")])
    assert (await answered(world, "/skills make TEA")).startswith("- A (a): Make tea.\n\n")
    found = await answered(world, "/skills\nmake")
    assert found.startswith("- A (a): Make tea.\n- B (b): Make coffee.\n\n")
    assert await answered(world, "/skills  wine ") == "No skill matches."
    assert "at most 16 words" in await answered(world, "/skills " + " ".join(map(str, range(17))))
    assert await answered(World(), "/skills") == "There are no skills for you."


async def test_a_long_list_is_cut_and_says_so() -> None:
    text = await answered(World([made(f"s{n:02}") for n in range(53)]), "/skills")
    assert text.splitlines()[49].startswith("- S49 (s49): ")
    assert text.splitlines()[50] == "… and 3 more: add words to search."
    text = await answered(World([made(f"s{n:02}", "x" * 10_000) for n in range(50)]), "/skills")
    assert len(text.encode()) < 20_000


@pytest.mark.parametrize("body", ["/unknown", "/", "//help", "/" + "x" * 9_999])
async def test_an_unknown_command_is_told_where_help_is(body: str) -> None:
    text = await answered(World(), body)
    assert "/help" in text
    assert not text.startswith("/")
    assert len(text) < 200


async def test_one_command_can_be_explained() -> None:
    text = await answered(World(), "/help SKILLS")
    assert text.splitlines() == [
        "/skills - list what I can do for you; add a name to see how, or words to search",
        (
            "  words (optional): Name of a skill to explain; or only skills that match all these"
            " words."
        ),
    ]
    assert await answered(World(), "/help /ping") == "/ping - check whether I am online"
    assert await answered(World(), "/help nosuch") == (
        "There is no command or skill called 'nosuch'. Send /help or /skills for a list."
    )


async def test_a_word_that_fits_nothing_is_named() -> None:
    assert await answered(World(), "/ping now") == (
        "'now' is one word too many for /ping: it has no parameters."
    )


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(description="Whom.")]


GREET = Outline(name="greet", title="Greet", about="greet somebody", params=Named, who="admin")


async def greet(asking: Asking, params: Named) -> CommandResult:
    if params.name == "nobody":
        raise CommandError("There is nobody.")
    if params.name == "disk":
        raise StorageError("The database /var/lib/secret cannot be read.")
    return CommandResult(f"{asking.principal} at {asking.at} greets {params.name} in {asking.lang}")


def with_admins() -> World:
    return World(commands=[GREET.done_by(greet)], admins=["alice@a.example"])


async def test_admins_have_more_commands() -> None:
    world = with_admins()
    assert "/greet - greet somebody" in (await answered(world, "/help")).splitlines()
    assert await answered(world, "/greet 'Bob and Eve'", to=f"{AGENT}/x") == (
        f"alice@a.example at {AGENT} greets Bob and Eve in None"
    )
    assert await answered(world, "/greet") == "name: is required."
    assert await answered(world, "/greet nobody") == "There is nobody."


async def test_commands_of_admins_are_hidden_from_everybody_else() -> None:
    world = with_admins()
    assert "greet" not in await answered(world, "/help", from_=BOB)
    assert "There is no command or" in await answered(world, "/help greet", from_=BOB)
    unknown = await answered(world, "/nosuch Eve", from_=BOB)
    assert await answered(world, "/greet Eve", from_=BOB) == unknown.replace("nosuch", "greet")
    assert await answered(world, "/greet", from_="alice@b.example/phone") != "name: is required."


async def test_a_fault_of_ours_says_no_more_than_that() -> None:
    text = await answered(with_admins(), "/greet disk")
    assert "an error on my side" in text
    assert "secret" not in text


async def test_who_says_so_hears_nothing_more_until_it_is_taken_back() -> None:
    world = World()
    agent, alice = JID.parse(AGENT), JID.parse(ALICE).bare
    assert "/start-contact" in await answered(world, "/stop-contact")
    assert not world.contacts.may_write(agent, alice)
    assert world.contacts.may_write(agent, JID.parse(BOB).bare)
    assert await answered(world, "/ping") == "pong"  # an answer to its own request
    await answered(world, "/START-contact")
    assert world.contacts.may_write(agent, alice)


# -- without a model -----------------------------------------------------------------------------


async def test_each_message_is_answered() -> None:
    world = World()
    for text in ("hello", "hello?", "are you there?"):
        said_ = await answered(world, text)
        assert "/skills" in said_
        assert "agent.toml" not in said_
    soon = World(now=lambda: NOON)
    assert "/run" in await answered(soon, "hello", more=delayed(timedelta(minutes=5)))


async def test_admins_are_told_how_to_set_up_a_model() -> None:
    assert "[llm]" in await answered(World(admins=["alice@a.example"]), "hello")


async def test_a_correction_is_answered_like_a_message() -> None:
    replace = "<replace xmlns='urn:xmpp:message-correct:0' id='m0'/>"
    assert "/skills" in await answered(World(), "hello?", more=replace)


async def test_a_server_is_not_answered() -> None:
    assert await said(World(), "The server goes down at noon.", from_="a.example") == []


async def test_a_program_is_answered_once_an_hour() -> None:
    now = [0.0]
    world = World(clock=lambda: now[0], is_person=lambda who, _sender: who != JID.parse(BOB).bare)
    assert "/skills" in await answered(world, "hello", from_=BOB)
    assert await said(world, "hello?", from_=BOB) == []
    assert "/skills" in await answered(world, "hello")
    assert "/skills" in await answered(world, "hello?")
    now[0] = 3600.0
    assert "/skills" in await answered(world, "hello again", from_=BOB)


async def test_two_of_us_do_not_keep_each_other_talking() -> None:
    one, other = World(is_person=lambda *_: False), World(is_person=lambda *_: False)
    body, talk = "hello", 0
    while answers := await said((one, other)[talk % 2], body):
        body = answers[0].body or ""
        talk += 1
        assert talk < 10
    assert talk == 2


# -- the answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [AGENT, DOMAIN, f"{AGENT}/x"])
@pytest.mark.parametrize("type_", ["chat", "normal", None, "unheard-of"])
async def test_the_answer_comes_from_where_it_was_asked_and_as_it_was_asked(
    to: str, type_: str | None
) -> None:
    world = World()
    (answer,) = await said(world, "/ping", to=to, type_=type_, more="<thread>t-1</thread>")
    sent = parse(answer.encode())
    assert (sent.get("from"), sent.get("to")) == (to, ALICE)
    assert (sent.get("type") or "normal") == ("chat" if type_ == "chat" else "normal")
    assert sent.findtext("{jabber:client}thread") == "t-1"
    assert sent.findtext("{jabber:client}body") == "pong"


async def test_a_message_without_a_thread_is_answered_without_one() -> None:
    (answer,) = await said(World(), "/ping")
    assert answer.thread is None


async def test_the_answer_goes_to_the_very_address_that_asked() -> None:
    """Servers prepare resources in another way: what we make of one might be nobody's."""
    from_ = "alice@a.example/a\N{NO-BREAK SPACE}b"
    (answer,) = await said(World(), "/ping", from_=from_)
    assert parse(answer.encode()).get("to") == from_


async def test_of_several_bodies_the_one_in_the_language_of_the_message_counts() -> None:
    world = World()
    async with world.bench.running():
        world.bench.receive(
            f"<message from='{ALICE}' to='{AGENT}' type='chat' xml:lang='de'>"
            "<body xml:lang='en'>/unknown</body><body xml:lang='de'>/ping</body></message>"
        )
        await world.bench.settled()
    (answer,) = world.sent
    assert isinstance(answer, Message)
    assert answer.body == "pong"


# -- silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [None, "", " \n\t"])
async def test_a_message_without_text_is_not_answered(body: str | None) -> None:
    more = "<composing xmlns='http://jabber.org/protocol/chatstates'/>"
    assert await said(World(), body, more=more) == []


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def delayed(ago: timedelta) -> str:
    return f"<delay xmlns='urn:xmpp:delay' stamp='{NOON - ago:%Y-%m-%dT%H:%M:%SZ}'/>"


@pytest.mark.parametrize(
    "more",
    [
        delayed(timedelta(hours=2)),
        delayed(timedelta(hours=-2)),
        "<delay xmlns='urn:xmpp:delay' stamp='yesterday'/>",
        "<x xmlns='jabber:x:delay' stamp='20260101T00:00:00'/>",
    ],
    ids=["two hours ago", "in two hours", "no time", "XEP-0091"],
)
async def test_a_command_that_was_delayed_is_not_executed(more: str) -> None:
    assert "message was delayed" in await answered(World(now=lambda: NOON), "/ping", more=more)


async def test_a_message_that_was_stored_for_a_moment_is_not_late() -> None:
    more = delayed(timedelta(seconds=2))
    assert await answered(World(now=lambda: NOON), "/ping", more=more) == "pong"


async def test_a_message_that_is_hours_late_is_not_passed_to_the_agent() -> None:
    world = World(now=lambda: NOON)
    assert "reached me only now" in await answered(world, "hello", more=DELAY)
    assert "/run" in await answered(world, "hello", more="<delay xmlns='urn:xmpp:delay'/>")


@pytest.mark.parametrize("type_", ["error", "headline", "groupchat"])
@pytest.mark.parametrize("body", ["/ping", "hello"])
async def test_other_types_are_not_answered(type_: str, body: str) -> None:
    world = World()
    assert await said(world, body, type_=type_) == []


@pytest.mark.parametrize("from_", [f"x@{REFUSED}", "c.example", "@", "", None])
async def test_who_is_refused_is_not_answered(from_: str | None) -> None:
    assert await said(World(), "/ping", from_=from_) == []


async def test_the_same_message_twice_is_answered_once_and_received_twice() -> None:
    world = World()
    more = "<origin-id xmlns='urn:xmpp:sid:0' id='o1'/><request xmlns='urn:xmpp:receipts'/>"
    receipt, answer = await said(world, "/ping", more=more)
    assert (receipt.body, answer.body) == (None, "pong")
    (again,) = await said(world, "/ping", more=more)
    assert again.body is None


# -- what it reports and refers to ----------------------------------------------------------------


async def test_a_receipt_is_taken_and_not_answered() -> None:
    output = ListOutput()
    messenger = Messenger(output)
    handler = message_handler(messenger, Commands(()))
    bench = Bench(handler.routes())
    address = ReplyAddress(ALICE, JID.parse(AGENT))
    delivery = messenger.send(
        OutboundMessage(
            id="q1",
            conversation=conversation_with(JID.parse(AGENT), JID.parse(ALICE)),
            to=address,
            parts=(Text("May I?"),),
        )
    )
    receipt = "<received xmlns='urn:xmpp:receipts' id='q1'/>"
    bench.receive(element("message", receipt, type="chat", from_=ALICE, to=AGENT, id="m1"))
    assert delivery.state == "received"
    assert (len(output.sent), bench.output.sent) == (1, [])


async def test_every_answer_has_an_origin_id() -> None:
    (answer,) = await said(World(), "/ping")
    sent = parse(answer.encode())
    assert sent.get("id")
    assert [each.get("id") for each in sent.findall("{urn:xmpp:sid:0}origin-id")] == [
        sent.get("id")
    ]


async def test_a_command_from_the_chat_knows_the_client_that_sent_it() -> None:
    outline = Outline(name="greet", title="Greet", about="greet", params=Named)

    async def from_where(asking: Asking, _params: Named) -> CommandResult:
        return CommandResult(f"from {asking.client}")

    world = World(commands=[outline.done_by(from_where)])
    assert await answered(world, "/greet Bob") == f"from {ALICE}"
