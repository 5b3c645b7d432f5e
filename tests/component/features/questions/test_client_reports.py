"""Stanzas from public reports about bots, gateways and clients, which each test names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from component.commands import Commands
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.skills import skill
from tests.component.features.adhoc.command_bench import CommandBench
from tests.component.features.chat.handler import message_handler
from tests.component.features.presence.test_presence import living, presence, sent
from tests.component.features.questions.chat_world import PHONE, World
from tests.component.link.router.wire import AGENT, Bench, ListOutput, element
from tests.component.world import result
from xep.commands import NAMESPACE as COMMANDS
from xep.commands import Command
from xep.jid import JID

pytestmark = pytest.mark.anyio

TASK = "q"  # of the question c-q
ME = JID.parse(PHONE)
OURS = "c-q-message"


def fill(content: str, type_: str | None = "submit") -> str:
    return element("x", content, xmlns="jabber:x:data", type=type_)


def field(var: str, *values: str) -> str:
    return element("field", "".join(element("value", value) for value in values), var=var)


def xhtml(content: str) -> str:
    body = element("body", content, xmlns="http://www.w3.org/1999/xhtml")
    return element("html", body, xmlns="http://jabber.org/protocol/xhtml-im")


def reply(id_: str, quoted: str, answer: str = "yes") -> str:
    quotation = "".join(f"> {line}\n" for line in quoted.split("\n"))
    marked = element("body", start="0", end=str(len(quotation)))
    return (
        element("body", (quotation + answer).replace(">", "&gt;"))
        + element("reply", xmlns="urn:xmpp:reply:0", id=id_, to=AGENT)
        + element("fallback", marked, xmlns="urn:xmpp:fallback:0", for_="urn:xmpp:reply:0")
    )


@pytest.mark.parametrize(
    "more",
    [
        # SleekXMPP 176: an empty body before the one that was meant.
        "<body/><body>yes</body>",
        "<body>yes</body><body xml:lang='de'> </body>",
        # Psi 300, JSXC 526, Conversations 2481: web clients that send the formatted text alone.
        xhtml("yes"),
        xhtml("<p><b>ye</b>s</p><p> </p>"),
        # A client that asks for attention (XEP-0224).
        "<body>yes</body><attention xmlns='urn:xmpp:attention:0'/>",
    ],
)
async def test_a_yes_counts_however_a_client_wraps_it(chat: World, more: str) -> None:
    chat.confirm(TASK)
    assert (await chat.say(None, more=more) or "").startswith("Approved")
    assert chat.state(TASK) != "input-required"


@pytest.mark.parametrize(
    "more",
    [
        "<body>yes</body><body>no</body>",  # aioxmpp 305
        xhtml("<p>yes</p><p>but not now</p>"),
        xhtml("yes<br/>or no?"),
        xhtml("<p></p>"),  # Jappix 488
        "<body/><body> </body>",
    ],
)
async def test_two_things_that_are_said_are_not_taken_for_a_yes(chat: World, more: str) -> None:
    chat.confirm(TASK)
    await chat.say(None, more=more)
    assert chat.state(TASK) == "input-required"


@pytest.mark.parametrize("space", ["\u00a0", "\n", "\u2003 ", "\t"])
@pytest.mark.parametrize("end", ["", "\u200b", "\u00a0", " \u2060\u200e"])
async def test_any_space_separates_and_invisible_characters_end_a_command(
    chat: World, space: str, end: str
) -> None:
    """WeeChat 423, Webogram 1086, Errbot 1518."""
    chat.confirm(TASK)
    said = await chat.say(f"/deny{space}c-{TASK}{space}not{space}today{end}")
    assert (said or "").startswith("Denied")
    assert f">not{space}today</text>" in chat.failure(TASK)


@pytest.mark.parametrize("emoji", ["👍", "👍\ufe0f", "👍\ufe0e", "👍🏽", " 👍 "])
async def test_a_reaction_counts_with_any_variation_of_its_emoji(chat: World, emoji: str) -> None:
    """LettaBot 499, Element 27331, the Bot API of Telegram 718."""
    question = chat.confirm(TASK)
    reaction = element("reaction", emoji)
    more = element("reactions", reaction, xmlns="urn:xmpp:reactions:0", id=question)
    assert (await chat.say(None, more=more) or "").startswith("Approved")


# -- replies to ids that nobody else knows (Fluux 212) ---------------------------------------------


SEAS = 'May I run report? topic: "seas". Please answer yes or no within 50 seconds.'


@pytest.mark.parametrize("before", ["", "Assistant wrote:\n"])
async def test_a_reply_with_an_id_of_an_archive_is_about_what_it_quotes(
    chat: World, before: str
) -> None:
    chat.confirm(TASK, topic="seas")
    said = await chat.say(None, more=reply("archive-7", before + SEAS))
    assert (said or "").startswith("Approved")
    assert chat.state(TASK) == "accepted"


async def test_a_reply_with_a_foreign_id_does_not_decide_what_it_does_not_quote(
    chat: World,
) -> None:
    chat.confirm(TASK, topic="seas")
    chat.confirm("t2")
    await chat.say(None, more=reply("archive-7", SEAS))
    assert chat.state("t2") == "input-required"


async def test_a_reply_with_a_foreign_id_that_quotes_something_else_answers_nothing(
    chat: World,
) -> None:
    chat.confirm(TASK)
    await chat.say(None, more=reply("archive-7", "May I run reports?"))
    await chat.say(None, more=reply("archive-7", "What is the weather?"))
    assert chat.state(TASK) == "input-required"


async def test_the_id_of_a_reply_counts_before_what_it_quotes(chat: World) -> None:
    first, _ = chat.confirm(TASK), chat.confirm("t2", topic="seas")
    await chat.say(None, more=reply(first, SEAS))
    assert (chat.state(TASK), chat.state("t2")) == ("accepted", "input-required")
    said = await chat.say(None, more=reply(first, SEAS))
    assert "closed" in (said or "")
    assert chat.state("t2") == "input-required"


# -- reports about our messages --------------------------------------------------------------------


class Reports:
    """A sent message, and what a client reports about it."""

    def __init__(self) -> None:
        self.output = ListOutput()
        messenger = Messenger(self.output)
        self.bench = Bench(message_handler(messenger, Commands(())).routes())
        agent = JID.parse(AGENT)
        self.delivery = messenger.send(
            OutboundMessage(
                id=OURS,
                conversation=conversation_with(agent, ME.bare),
                to=ReplyAddress(PHONE, agent),
                parts=(Text("The news."),),
            )
        )

    async def take(self, content: str, id_: str | None = "r1") -> None:
        async with self.bench.running():
            self.bench.receive(
                element("message", content, type="chat", id=id_, from_=PHONE, to=AGENT)
            )
            await self.bench.settled()


MARKERS = "urn:xmpp:chat-markers:0"


@pytest.mark.parametrize(
    ("content", "id_", "state"),
    [
        # Psi+ 558: the receipt has the id of the message that has arrived.
        (f"<received xmlns='urn:xmpp:receipts' id='{OURS}'/>", OURS, "received"),
        # XEP-0184 before version 1.1, and the discussion of xsf/xeps 690.
        ("<received xmlns='urn:xmpp:receipts'/>", OURS, "received"),
        ("<received xmlns='urn:xmpp:receipts'/>", "r1", "written"),
        ("<received xmlns='urn:xmpp:receipts'/>", None, "written"),
        # Xabber 45, Converse 2028: markers instead of receipts.
        (f"<received xmlns='{MARKERS}' id='{OURS}'/>", "r1", "received"),
        (f"<acknowledged xmlns='{MARKERS}' id='{OURS}'/>", "r1", "displayed"),
        # Movim 1118: an id that it invented.
        (f"<displayed xmlns='{MARKERS}' id='m_81df354f'/>", "r1", "written"),
    ],
)
async def test_what_a_client_reports_is_recorded_and_not_answered(
    content: str, id_: str | None, state: str
) -> None:
    world = Reports()
    await world.take(content, id_)
    assert world.delivery.state == state
    assert len(world.output.sent) == 1
    assert world.bench.output.sent == []


async def test_our_own_message_that_comes_back_is_still_ignored() -> None:
    world = Reports()
    await world.take("<body>The news.</body><request xmlns='urn:xmpp:receipts'/>", OURS)
    assert (world.delivery.state, len(world.output.sent)) == ("written", 1)


# -- delayed messages ------------------------------------------------------------------------------


def old(stamp: str) -> str:
    return element("x", xmlns="jabber:x:delay", stamp=stamp)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        # Profanity 59, ermine/xmpp 2: only the form of before XEP-0203.
        (old("20121106T18:18:11"), "Your message of 2012-11-06 18:18 UTC reached me only now."),
        # QXmpp 52, ejabberd 377: both.
        (
            "<delay xmlns='urn:xmpp:delay' stamp='2012-11-06T18:18:11.509Z'/>"
            + old("20121106T18:18:11"),
            "Your message of 2012-11-06 18:18 UTC",
        ),
    ],
)
async def test_an_old_message_is_not_acted_on_whatever_its_form(
    chat: World, more: str, said: str
) -> None:
    chat.confirm(TASK)
    assert (await chat.say("yes", more=more) or "").startswith(said)
    assert chat.state(TASK) == "input-required"


# -- forms -----------------------------------------------------------------------------------------


@skill(inline=True, destructive=False)
def trip(to: str, days: int = 3) -> str:
    """Plan a trip."""
    return f"{days} days in {to}"


def answer(bench: CommandBench, content: str, session: str | None = None, **more: str) -> Command:
    xml = element("command", content, xmlns=COMMANDS, node="skill/trip", sessionid=session, **more)
    return result(Command, bench.reply(xml))


def said(done: Command) -> str:
    assert done.form is not None
    return done.form.fields[-1].values[0]


FORMS: dict[str, Callable[[str], str]] = {
    # strophejs-plugins 22, ChatSecure 793, stanza 301: no type.
    "without a type": lambda _: fill(field("to", "Rome"), None),
    # FORM_TYPE twice, a type for each field, an empty value.
    "as Psi": lambda form_type: fill(
        2 * field("FORM_TYPE", form_type)
        + "<field var='to' type='text-single'><value>Rome</value></field>"
        + "<field var='days' type='text-single'><value>3</value></field>"
    ),
    # The whole form that it has got, filled in.
    "as Cheogram": lambda form_type: fill(
        "<title>Trip</title><instructions>Plan a trip.</instructions>"
        + field("FORM_TYPE", form_type)
        + "<field var='to' label='to'><required/><value>Rome</value></field>"
        + "<field var='days'><value>3</value>"
        + "<validate xmlns='http://jabber.org/protocol/xdata-validate' datatype='xs:integer'/>"
        + "</field>"
    ),
    # Without types, and without what is empty.
    "as Smack and Gajim": lambda form_type: fill(
        field("FORM_TYPE", form_type) + field("to", "Rome")
    ),
    "as Fluux": lambda form_type: fill(
        field("FORM_TYPE", form_type) + field("to", "Rome") + field("days", "3")
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("action", ["complete", "execute", ""])
def test_a_form_is_understood_as_clients_submit_it(form: Callable[[str], str], action: str) -> None:
    bench = CommandBench((trip,))
    begun = answer(bench, "", action=action.replace("complete", "execute"))
    assert begun.form is not None
    done = answer(bench, form(begun.form.form_type or ""), begun.sessionid, action=action)
    assert (done.status, said(done)) == ("completed", "3 days in Rome")


@pytest.mark.parametrize("type_", ["submit", None, "form", "cancel"])
def test_a_command_begins_with_its_form_whatever_comes_with_the_first_request(
    type_: str | None,
) -> None:
    """Converse 2048 left the session out, Fluux fills in forms that it knows; see FAC-002."""
    bench = CommandBench((trip,))
    begun = answer(bench, fill(field("to", "Rome"), type_), status="next")
    assert begun.status == "executing"
    assert answer(bench, fill(field("to", "Rome")), begun.sessionid).status == "completed"


# -- presence --------------------------------------------------------------------------------------


async def test_a_client_that_acknowledges_with_a_request_gets_a_last_answer(tmp_path: Path) -> None:
    """Openfire OF-38 (pull request 2010): "subscribed" is acknowledged by "subscribe"."""
    async with living(tmp_path) as (world, store):
        asked = 0
        while asked < 100 and await sent(world, presence("subscribe")):
            asked += 1
        assert 2 <= asked < 20
        assert len(await store.receivers()) == 1
        assert await sent(world, presence("subscribe", "bob@b.example"))
