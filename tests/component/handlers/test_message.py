"""Chat without a model: commands are answered, anything else gets a hint now and then."""

import pytest

from component.policy import Rule
from component.skills import AnySkill, skill
from tests.component.handlers.world import ALICE, BOB, World
from tests.component.router.wire import AGENT, DOMAIN, REFUSED, element, parse
from xep.stanza import Message

DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2026-11-21T10:00:00Z'/>"


def made(name: str, description: str = "Do nothing.") -> AnySkill:
    @skill(name=name, description=description, inline=True)
    def f() -> None:
        pass

    return f


def said(
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
    world.bench.receive(element("message", content, type=type_, from_=from_, to=to, id="m1"))
    answers = world.sent[before:]
    assert all(isinstance(answer, Message) for answer in answers)
    return [answer for answer in answers if isinstance(answer, Message)]


def answered(world: World, body: str, **how: str) -> str:
    (answer,) = said(world, body, **how)
    assert answer.body is not None
    return answer.body


# -- commands ------------------------------------------------------------------------------------


def test_help_names_every_command() -> None:
    text = answered(World(), "/help")
    assert text.startswith("I am Assistant.")
    assert [line.split(" - ")[0] for line in text.splitlines()[1:]] == ["/help", "/skills", "/ping"]


@pytest.mark.parametrize("body", ["/ping", " /PING\n", "/ping now", "/ ping", "/ping\tnow"])
def test_ping_is_answered(body: str) -> None:
    assert answered(World(), body) == "pong"


def test_skills_lists_what_is_for_the_one_who_asks() -> None:
    world = World(
        [made("b", "Second.\n\nMore of it."), made("a", "First."), made("c")],
        rules=[Rule(("c",), allowed_domains=("b.example",))],
    )
    assert answered(world, "/skills") == "a - First.\nb - Second."
    assert "c - " in answered(world, "/skills", from_=BOB)


def test_skills_can_be_searched() -> None:
    world = World([made("a", "Make tea."), made("b", "Make coffee."), made("c")])
    assert answered(world, "/skills make TEA") == "a - Make tea."
    assert answered(world, "/skills\nmake") == "a - Make tea.\nb - Make coffee."
    assert answered(world, "/skills  wine ") == "No skill of yours matches that."
    assert "at most 16 words" in answered(world, "/skills " + " ".join(map(str, range(17))))
    assert answered(World(), "/skills") == "There is no skill for you."


def test_a_long_list_is_cut_and_says_so() -> None:
    text = answered(World([made(f"s{n:02}") for n in range(53)]), "/skills")
    assert len(text.splitlines()) == 51
    assert text.splitlines()[-1] == "… and 3 more: add words to search."
    text = answered(World([made(f"s{n:02}", "x" * 10_000) for n in range(50)]), "/skills")
    assert len(text.encode()) < 20_000


@pytest.mark.parametrize("body", ["/unknown", "/", "//help", "/" + "x" * 9_999])
def test_an_unknown_command_is_told_where_help_is(body: str) -> None:
    text = answered(World(), body)
    assert "/help" in text
    assert not text.startswith("/")
    assert len(text) < 200


# -- the hint ------------------------------------------------------------------------------------


def test_one_hint_in_ten_minutes_for_each() -> None:
    now = [0.0]
    world = World(clock=lambda: now[0])
    assert "/help" in answered(world, "hello")
    assert said(world, "hello?") == []
    assert said(world, "hello?", from_="alice@a.example/desk") == []
    assert "/help" in answered(world, "hello", from_=BOB)
    now[0] = 599.9
    assert said(world, "hello?") == []
    assert answered(world, "/ping") == "pong"
    now[0] = 600.0
    assert "/help" in answered(world, "hello again")
    assert said(world, "hello?") == []


def test_two_of_us_do_not_keep_each_other_talking() -> None:
    one, other = World(), World()
    body, talk = "hello", 0
    while answers := said((one, other)[talk % 2], body):
        body = answers[0].body or ""
        talk += 1
        assert talk < 10
    assert talk == 2


def test_strangers_cannot_fill_the_memory() -> None:
    world = World()
    for n in range(5_000):
        said(world, "hello", from_=f"p{n}@a.example/x")
    assert len(world.message._hinted) <= 4_096


# -- the answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [AGENT, DOMAIN, f"{AGENT}/x"])
@pytest.mark.parametrize("type_", ["chat", "normal", None, "unheard-of"])
def test_the_answer_comes_from_where_it_was_asked_and_as_it_was_asked(
    to: str, type_: str | None
) -> None:
    world = World()
    (answer,) = said(world, "/ping", to=to, type_=type_, more="<thread>t-1</thread>")
    sent = parse(answer.encode())
    assert (sent.get("from"), sent.get("to")) == (to, ALICE)
    assert (sent.get("type") or "normal") == ("chat" if type_ == "chat" else "normal")
    assert sent.findtext("{jabber:client}thread") == "t-1"
    assert sent.findtext("{jabber:client}body") == "pong"


def test_without_a_thread_there_is_none() -> None:
    (answer,) = said(World(), "/ping")
    assert answer.thread is None


def test_the_answer_goes_to_the_very_address_that_asked() -> None:
    """Servers prepare resources in another way: what we make of one might be nobody's."""
    from_ = "alice@a.example/a\N{NO-BREAK SPACE}b"
    (answer,) = said(World(), "/ping", from_=from_)
    assert parse(answer.encode()).get("to") == from_


def test_of_several_bodies_the_one_in_the_language_of_the_message_counts() -> None:
    world = World()
    world.bench.receive(
        f"<message from='{ALICE}' to='{AGENT}' type='chat' xml:lang='de'>"
        "<body xml:lang='en'>/unknown</body><body xml:lang='de'>/ping</body></message>"
    )
    (answer,) = world.sent
    assert isinstance(answer, Message)
    assert answer.body == "pong"


# -- silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [None, "", " \n\t"])
def test_what_says_nothing_is_not_answered(body: str | None) -> None:
    more = "<composing xmlns='http://jabber.org/protocol/chatstates'/>"
    assert said(World(), body, more=more) == []


@pytest.mark.parametrize("more", [DELAY, "<delay xmlns='urn:xmpp:delay' stamp='yesterday'/>"])
@pytest.mark.parametrize("body", ["/ping", "hello"])
def test_what_was_said_long_ago_is_not_answered(body: str, more: str) -> None:
    world = World()
    assert said(world, body, more=more) == []
    assert said(world, "hello") != []  # and has not used up the hint


@pytest.mark.parametrize("type_", ["error", "headline", "groupchat"])
@pytest.mark.parametrize("body", ["/ping", "hello"])
def test_other_types_are_not_answered(type_: str, body: str) -> None:
    world = World()
    assert said(world, body, type_=type_) == []
    assert world.bench.output.sent == []


@pytest.mark.parametrize("from_", [f"x@{REFUSED}", "c.example", "@", "", None])
def test_who_is_refused_is_not_answered(from_: str | None) -> None:
    assert said(World(), "/ping", from_=from_) == []
