"""What people do in their clients goes through the stages, in the shape in which each sends it."""

import pytest

from component.agent.requests import MessageStarter, TurnRequest
from component.commands import Commands
from component.memory_directory.layout import SessionKey
from component.store import StorageError
from tests.component.features.chat.handler import message_handler
from tests.component.features.questions.chat_world import World
from tests.component.link.messages.clients import CORRECTED, CORRECTED_ID, SAID, URL, Shape, shapes
from tests.component.link.router.wire import Bench
from tests.component.sent import Sent
from xep.receipts import Received
from xep.stanza import Message, Presence

pytestmark = pytest.mark.anyio

ALL = tuple(shapes())
TASK = "q"  # of the question c-q


def of(*kinds: str) -> pytest.MarkDecorator:
    chosen = [each for each in ALL if each.of in kinds]
    assert chosen
    return pytest.mark.parametrize("shape", chosen, ids=str)


# -- a question is open --------------------------------------------------------------------------


@pytest.fixture
def asked(chat: World) -> World:
    """Alice has been asked one thing."""
    chat.confirm(TASK)
    return chat


async def answers(world: World, shape: Shape, **instead: str) -> str | None:
    """What is answered to a message, with other words in it."""
    before, xml = len(world.sent), shape.xml
    for old, new in instead.items():
        xml = xml.replace(old.replace("_", " "), new)
    world.bench.receive(xml)
    await world.bench.settled()
    said = [one.body for one in world.sent[before:] if isinstance(one, Message) and one.body]
    assert len(said) <= 1
    return said[0] if said else None


@of("chat")
@pytest.mark.parametrize("word", ["ok", "yes", "Sure!"])
async def test_a_question_is_answered_in_a_word(asked: World, shape: Shape, word: str) -> None:
    assert (await answers(asked, shape, Good_evening=word) or "").startswith("Approved")
    assert asked.state(TASK) != "input-required"


@of("reply", "reaction", "reaction in a reply")
async def test_a_question_is_answered_by_a_reply_or_a_reaction(asked: World, shape: Shape) -> None:
    """The one that is meant, though a second one is open."""
    asked.confirm("t2")
    assert (await answers(asked, shape) or "").startswith("Approved")
    assert asked.state(TASK) != "input-required"
    assert asked.state("t2") == "input-required"


def quoting(shape: Shape, question: str) -> str:
    """The message, with a question quoted in its text."""
    lines = question.replace('"', "&quot;").split("\n")
    return shape.xml.replace("{question}", "\n&gt; ".join(lines))


@of("quotation")
async def test_a_question_is_answered_below_a_quotation(asked: World, shape: Shape) -> None:
    quoted = quoting(shape, "May I run report?")
    assert (await answers(asked, shape._replace(xml=quoted)) or "").startswith("Approved")
    assert asked.state(TASK) != "input-required"


@of("quotation")
async def test_the_quotation_has_to_be_of_an_open_question(asked: World, shape: Shape) -> None:
    """An old question does not approve what is asked now."""
    quoted = quoting(shape, "May I run reports?")
    await answers(asked, shape._replace(xml=quoted))
    assert asked.state(TASK) == "input-required"


@of("quotation")
async def test_a_text_for_an_input_is_what_stands_below(chat: World, shape: Shape) -> None:
    chat.input("t1")
    quoted = quoting(shape, "Which river?").replace("yes</body>", "Rhine</body>")
    assert await answers(chat, shape._replace(xml=quoted)) == "Thank you, I'll continue."


@of("reaction withdrawn")
async def test_a_reaction_taken_back_changes_nothing(asked: World, shape: Shape) -> None:
    assert await answers(asked, shape) is None
    assert asked.state(TASK) == "input-required"


@of("correction", "corrected reply")
async def test_a_correction_answers_nothing(asked: World, shape: Shape) -> None:
    """It says so: a message of its own is an answer."""
    said = await answers(asked, shape, Good_morning="yes")
    assert "it corrects an earlier message" in (said or "")
    assert asked.state(TASK) == "input-required"


@of("delayed chat", "room", "correction in a room", "private message", "broadcast")
async def test_a_message_that_is_late_from_a_room_or_for_many_answers_nothing(
    asked: World, shape: Shape
) -> None:
    await answers(asked, shape, Good_evening="yes", Good_morning="yes")
    assert asked.state(TASK) == "input-required"


@of("OMEMO", "OpenPGP", "OTR", "encrypted reaction")
async def test_what_cannot_be_read_is_answered_with_how_to_go_on(
    asked: World, shape: Shape
) -> None:
    said = await answers(asked, shape)
    assert said is not None
    assert said.startswith("I can't read this message, because it is encrypted with O")
    assert asked.state(TASK) == "input-required"


@of("nothing said", "received", "displayed", "keys of OMEMO", "encrypted state")
async def test_a_message_without_words_does_not_answer_a_question(
    asked: World, shape: Shape
) -> None:
    before = len(asked.sent)
    assert await answers(asked, shape) is None
    assert asked.sent[before:] == []
    assert asked.state(TASK) == "input-required"


# -- talk with an agent --------------------------------------------------------------------------


class Talk:
    """A message handler behind a router, and an agent that listens."""

    def __init__(self) -> None:
        self.heard: list[TurnRequest] = []
        self.waiting: dict[str | None, str | None] = {}
        self.broken = False
        self.sent: list[Message | Presence] = []
        handler = message_handler(Sent(self.sent), Commands(()), agents=self)
        self.bench = Bench(handler.routes())

    async def received(self, request: TurnRequest) -> None:
        assert isinstance(request.starter, MessageStarter)
        self.heard.append(request)
        self.waiting[request.starter.msg_id] = request.text

    async def revised(self, key: SessionKey, msg_id: str, body: str | None) -> bool:
        if self.broken:
            raise StorageError("The disk is full.")
        if self.waiting.get(msg_id) is None:
            return False
        self.waiting[msg_id] = body
        return True

    async def take(self, *stanzas: str) -> None:
        for xml in stanzas:
            self.bench.receive(xml)
            await self.bench.settled()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("chat", SAID),
        ("formatted chat", SAID),
        ("action", "/me waves"),
        ("file", f"[Attached: a file, at {URL}]"),
        ("file with a name", f"[Attached: river.jpg (image/jpeg, 4096 bytes), at {URL}]"),
        ("file with words", f"The river:\n[Attached: a file, at {URL}]"),
        (
            "file with a name and words",
            f"The river:\n[Attached: river.jpg (image/jpeg, 4096 bytes), at {URL}]",
        ),
        ("broadcast", SAID),
        ("link with a preview", "https://a.example/rivers"),
    ],
)
async def test_an_agent_hears_what_was_said(kind: str, said: str) -> None:
    for shape in (each for each in ALL if each.of == kind):
        talk = Talk()
        async with talk.bench.running():
            await talk.take(shape.xml)
        assert [one.text for one in talk.heard] == [said], shape
        reply_to = talk.heard[0].reply_to
        assert reply_to is not None
        assert reply_to.shows_states == ("state" in shape.adds)
        receipts = [
            one.id for stanza in talk.sent for one in stanza.payloads if isinstance(one, Received)
        ]
        assert receipts == (["m1"] if "receipt" in shape.adds else []), shape


@of("correction", "corrected reply", "emptied", "retraction")
async def test_a_message_that_waits_is_corrected_or_taken_back(shape: Shape) -> None:
    talk = Talk()
    async with talk.bench.running():
        talk.waiting[CORRECTED_ID] = SAID
        await talk.take(shape.xml)
    body = CORRECTED if shape.of in ("correction", "corrected reply") else None
    assert talk.waiting == {CORRECTED_ID: body}
    assert talk.heard == []
    assert all(isinstance(one, Message) and one.body is None for one in talk.sent)


@of("correction", "emptied", "retraction")
async def test_one_that_was_acted_on_is_not_and_that_is_said(shape: Shape) -> None:
    talk = Talk()
    async with talk.bench.running():
        await talk.take(shape.xml)
    (said,) = [one.body for one in talk.sent if isinstance(one, Message) and one.body]
    assert "too late" in said
    assert talk.heard == []


def _chat(client: str, kind: str, **instead: str) -> str:
    (found, *_) = [each.xml for each in ALL if (each.client, each.of) == (client, kind)]
    for old, new in instead.items():
        found = found.replace(f'"{old}"', f'"{new}"')
    return found


async def test_a_second_correction_may_name_the_first() -> None:
    """As Profanity does."""
    talk = Talk()
    async with talk.bench.running():
        await talk.take(
            _chat("Profanity", "chat", m1="p1"),
            _chat("Profanity", "correction", m1="p2", m0="p1"),
            _chat("Profanity", "correction", m1="p3", m0="p2").replace(CORRECTED, "Good night"),
        )
    assert talk.waiting == {"p1": "Good night"}


async def test_a_retraction_may_name_the_origin_id_of_a_correction() -> None:
    """As Converse does."""
    talk = Talk()
    async with talk.bench.running():
        await talk.take(
            _chat("Converse", "chat", m1="c1"),
            _chat("Converse", "correction", m1="c2", o1="c3", m0="c1"),
            _chat("Converse", "retraction", m1="c4", m0="c3"),
        )
    assert talk.waiting == {"c1": None}


async def test_a_correction_may_have_the_id_of_what_it_corrects() -> None:
    """As Matterbridge does (issue 1584 of 42wim/matterbridge)."""
    talk = Talk()
    async with talk.bench.running():
        await talk.take(
            _chat("Psi", "chat", m1="c4sul7qf8todi86lbplg"),
            _chat("Psi", "correction", m1="c4sul7qf8todi86lbplg", m0="c4sul7qf8todi86lbplg"),
        )
    assert talk.waiting == {"c4sul7qf8todi86lbplg": CORRECTED}


async def test_nobody_else_can_name_it() -> None:
    talk = Talk()
    async with talk.bench.running():
        await talk.take(
            _chat("Profanity", "chat", m1="p1"),
            _chat("Profanity", "correction", m1="p2", m0="p1"),
            _chat("Profanity", "correction", m1="p3", m0="p2").replace("alice@", "mallory@"),
        )
    assert talk.waiting == {"p1": CORRECTED}
