"""Chat without a model: commands are answered, anything else gets a hint now and then."""

from typing import Annotated

import msgspec
import pytest

from component.commands.definition import Answer, Asking, CommandError, Outline
from component.policy import Rule
from component.skills import AnySkill, skill
from component.storage import StorageError
from tests.component.handlers.world import ALICE, BOB, World
from tests.component.router.wire import AGENT, DOMAIN, REFUSED, Bench, element, parse
from xep.jid import JID
from xep.stanza import Message

pytestmark = pytest.mark.anyio

DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2026-11-21T10:00:00Z'/>"


def made(name: str, description: str = "Do nothing.") -> AnySkill:
    @skill(name=name, description=description, inline=True)
    def f() -> None:
        pass

    return f


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
        bench.receive(element("message", content, type=type_, from_=from_, to=to, id="m1"))
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
    assert text.startswith("I am Assistant.")
    assert [line.split(" - ")[0] for line in text.splitlines()[1:]] == [
        "/help",
        "/skills",
        "/ping",
        "/stop-contact",
        "/start-contact",
    ]


@pytest.mark.parametrize("body", ["/ping", " /PING\n", "/ ping", "/ping\t"])
async def test_ping_is_answered(body: str) -> None:
    assert await answered(World(), body) == "pong"


async def test_skills_lists_what_is_for_the_one_who_asks() -> None:
    world = World(
        [made("b", "Second.\n\nMore of it."), made("a", "First."), made("c")],
        rules=[Rule(("c",), allowed_domains=("b.example",))],
    )
    assert await answered(world, "/skills") == "a - First.\nb - Second."
    assert "c - " in await answered(world, "/skills", from_=BOB)


async def test_skills_can_be_searched() -> None:
    world = World([made("a", "Make tea."), made("b", "Make coffee."), made("c")])
    assert await answered(world, "/skills make TEA") == "a - Make tea."
    assert await answered(world, "/skills\nmake") == "a - Make tea.\nb - Make coffee."
    assert await answered(world, "/skills  wine ") == "No skill of yours matches that."
    assert "at most 16 words" in await answered(world, "/skills " + " ".join(map(str, range(17))))
    assert await answered(World(), "/skills") == "There is no skill for you."


async def test_a_long_list_is_cut_and_says_so() -> None:
    text = await answered(World([made(f"s{n:02}") for n in range(53)]), "/skills")
    assert len(text.splitlines()) == 51
    assert text.splitlines()[-1] == "… and 3 more: add words to search."
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
        "/skills - what I can do for you; add words to search",
        "  words (optional): Only skills in which all of these occur.",
    ]
    assert await answered(World(), "/help /ping") == "/ping - whether I am here"
    assert await answered(World(), "/help nosuch") == "I do not know /nosuch."


async def test_a_word_that_fits_nothing_is_named() -> None:
    assert await answered(World(), "/ping now") == (
        "'now' is one word too many for /ping: it takes none."
    )


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(description="Whom.")]


GREET = Outline(name="greet", title="Greet", about="greet somebody", params=Named, who="admin")


async def greet(asking: Asking, params: Named) -> Answer:
    if params.name == "nobody":
        raise CommandError("There is nobody.")
    if params.name == "disk":
        raise StorageError("The database /var/lib/secret cannot be read.")
    return Answer(f"{asking.principal} at {asking.at} greets {params.name} in {asking.lang}")


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


async def test_for_anybody_else_they_are_not_there() -> None:
    world = with_admins()
    assert "greet" not in await answered(world, "/help", from_=BOB)
    assert "I do not know" in await answered(world, "/help greet", from_=BOB)
    unknown = await answered(world, "/nosuch Eve", from_=BOB)
    assert await answered(world, "/greet Eve", from_=BOB) == unknown.replace("nosuch", "greet")
    assert await answered(world, "/greet", from_="alice@b.example/phone") != "name: is required."


async def test_a_fault_of_ours_says_no_more_than_that() -> None:
    text = await answered(with_admins(), "/greet disk")
    assert "a fault on my side" in text
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


# -- the hint ------------------------------------------------------------------------------------


async def test_one_hint_in_ten_minutes_for_each() -> None:
    now = [0.0]
    world = World(clock=lambda: now[0])
    assert "/help" in await answered(world, "hello")
    assert await said(world, "hello?") == []
    assert await said(world, "hello?", from_="alice@a.example/desk") == []
    assert "/help" in await answered(world, "hello", from_=BOB)
    now[0] = 599.9
    assert await said(world, "hello?") == []
    assert await answered(world, "/ping") == "pong"
    now[0] = 600.0
    assert "/help" in await answered(world, "hello again")
    assert await said(world, "hello?") == []


async def test_two_of_us_do_not_keep_each_other_talking() -> None:
    one, other = World(), World()
    body, talk = "hello", 0
    while answers := await said((one, other)[talk % 2], body):
        body = answers[0].body or ""
        talk += 1
        assert talk < 10
    assert talk == 2


async def test_strangers_cannot_fill_the_memory() -> None:
    world = World()
    for n in range(5_000):
        hello = element("body", "hello")
        world.bench.receive(element("message", hello, from_=f"p{n}@a.example/x", to=AGENT))
    assert len(world.message._hinted) <= 4_096


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


async def test_without_a_thread_there_is_none() -> None:
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
async def test_what_says_nothing_is_not_answered(body: str | None) -> None:
    more = "<composing xmlns='http://jabber.org/protocol/chatstates'/>"
    assert await said(World(), body, more=more) == []


@pytest.mark.parametrize("more", [DELAY, "<delay xmlns='urn:xmpp:delay' stamp='yesterday'/>"])
@pytest.mark.parametrize("body", ["/ping", "hello"])
async def test_what_was_said_long_ago_is_not_answered(body: str, more: str) -> None:
    world = World()
    assert await said(world, body, more=more) == []
    assert await said(world, "hello") != []  # and has not used up the hint


@pytest.mark.parametrize("type_", ["error", "headline", "groupchat"])
@pytest.mark.parametrize("body", ["/ping", "hello"])
async def test_other_types_are_not_answered(type_: str, body: str) -> None:
    world = World()
    assert await said(world, body, type_=type_) == []


@pytest.mark.parametrize("from_", [f"x@{REFUSED}", "c.example", "@", "", None])
async def test_who_is_refused_is_not_answered(from_: str | None) -> None:
    assert await said(World(), "/ping", from_=from_) == []
