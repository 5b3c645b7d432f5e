"""The notice that an agent is a machine: once for each person, before the first answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from component.agent.requests import TurnRequest
from component.app.schema import SCHEMA
from component.commands import Commands
from component.features.chat.notices import Notices
from component.features.chat.rows import NoticeStore
from component.features.service_commands.commands import Introduction, everybody
from component.features.service_commands.skill_commands import SkillCommands
from component.policy.persons import Persons
from component.store import Storage, StorageError
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, DOMAIN, OURS, Bench, element
from tests.component.sent import Sent
from tests.component.world import a_person
from xep.disco import Feature, InfoQuery
from xep.fluux_agent import NAMESPACE as FLUUX
from xep.jid import JID
from xep.stanza import Message, Presence

pytestmark = pytest.mark.anyio

JULIET = "juliet@a.example/balcony"
ROMEO = "romeo@a.example/street"
OTHER = "other@agent.example"
NOTICE = "I am a machine."


def agent_at(address: JID) -> JID:
    return OURS.address_of(OURS.agent_at(address))


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


async def a_peer(_to: JID, _from: JID, /) -> InfoQuery:
    return InfoQuery(features=(Feature(var=FLUUX),))


class Listener:
    """Answers a message in the moment it is taken in."""

    def __init__(self, answer: Callable[[Message], None]) -> None:
        self._answer = answer

    async def received(self, request: TurnRequest) -> None:
        to = request.reply_to
        assert to is not None
        self._answer(Message(from_=to.from_, to=to.to, body=f"to {request.text}"))

    async def revised(self, *_: Any) -> bool:
        return False


class Talk:
    """One process: its message handler behind a router."""

    def __init__(self, store: Any, info: Any = a_person, *, flushes: bool = True) -> None:
        self.sent: list[Message | Presence] = []
        self.flushes = flushes
        skills = SkillCommands(lambda _: None)
        self.commands = Commands(everybody(Introduction("A", talks=True), lambda _: (), skills))
        notices = Notices(
            store, Persons(info, OURS.is_own), agent_at, lambda agent: NOTICE, self._flushed
        )
        self.handler = message_handler(
            Sent(self.sent),
            self.commands,
            agents=Listener(self.sent.append),
            notices=notices,
        )

    async def _flushed(self) -> bool:
        if not self.flushes:
            raise RuntimeError("the process was killed")
        return True

    async def hears(
        self, *bodies: str, from_: str = JULIET, to: str = AGENT, inner: str = ""
    ) -> list[str | None]:
        """What is said to messages that come in one read."""
        before = len(self.sent)
        bench = Bench(self.handler.routes())
        async with bench.running():
            bench.receive(
                *(
                    element(
                        "message",
                        element("body", body) + element("thread", "th") + inner,
                        type="chat",
                        from_=from_,
                        to=to,
                        id=f"m{number}",
                    )
                    for number, body in enumerate(bodies)
                )
            )
            await bench.settled()
        return [each.body for each in self.sent[before:] if isinstance(each, Message)]


async def test_it_is_said_once_before_the_first_answer(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        talk = Talk(NoticeStore(storage))
        assert await talk.hears("Hello", "Again") == [NOTICE, "to Hello", "to Again"]
        assert await talk.hears("And again") == ["to And again"]
        notice, answer = talk.sent[:2]
        assert isinstance(notice, Message)
        assert (str(notice.from_), str(notice.to), notice.type) == (AGENT, JULIET, "chat")
        assert notice.thread is None  # it answers no thread
        assert notice.id != answer.id
    async with Storage.open(SCHEMA, tmp_path) as storage:  # after a restart
        assert await Talk(NoticeStore(storage)).hears("Good morning") == ["to Good morning"]


@pytest.mark.parametrize("body", ["/ping", "help", "/nosuch"])
async def test_it_is_said_before_the_answer_to_a_command(tmp_path: Path, body: str) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        first, answer = await Talk(NoticeStore(storage)).hears(body)
        assert first == NOTICE
        assert answer


async def test_each_person_is_told_by_each_agent(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        store = NoticeStore(storage)
        talk = Talk(store)
        assert (await talk.hears("Hello"))[0] == NOTICE
        assert (await talk.hears("Hello", from_=ROMEO))[0] == NOTICE
        # The domain is the default agent, and a client is its person.
        assert await talk.hears("Hello", to=DOMAIN) == ["to Hello"]
        assert await talk.hears("Hello", from_="juliet@a.example/phone") == ["to Hello"]
        assert await store.claim(JID.parse(OTHER), JID.parse(JULIET))


async def test_agents_are_not_told(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        talk = Talk(NoticeStore(storage), a_peer)
        assert await talk.hears("Hello") == ["to Hello"]
        # Who turns out to be a person later is told then.
        assert (await Talk(NoticeStore(storage)).hears("Hello"))[0] == NOTICE


@pytest.mark.parametrize(
    ("body", "inner", "from_"),
    [
        ("  ", "", JULIET),
        ("done", f"<task xmlns='{FLUUX}#task' id='9'/>", JULIET),
        ("The server goes down at noon.", "", "a.example"),
    ],
)
async def test_what_is_not_answered_gets_no_notice(
    tmp_path: Path, body: str, inner: str, from_: str
) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        talk = Talk(NoticeStore(storage))
        assert await talk.hears(body, inner=inner, from_=from_) == []
        assert (await talk.hears("Hello"))[0] == NOTICE


async def test_of_two_instances_one_says_it(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        store = NoticeStore(storage)
        agent, juliet = JID.parse(AGENT), JID.parse(JULIET)
        assert [await store.claim(agent, juliet) for _ in range(2)] == [True, False]
        assert not await store.is_sent(agent, juliet)
        assert await Talk(store).hears("Hello") == ["to Hello"]


async def test_it_is_said_again_if_the_process_was_killed_before_it_was_sent(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with Storage.open(SCHEMA, tmp_path, now=clock) as storage:
        with capture_logs():
            await Talk(NoticeStore(storage), flushes=False).hears("Hello")
        assert NOTICE not in await Talk(NoticeStore(storage)).hears("Hello")  # it may be under way
        clock.now += 60_000
        assert NOTICE in await Talk(NoticeStore(storage)).hears("Hello")
        clock.now += 60_000
        assert NOTICE not in await Talk(NoticeStore(storage)).hears("Hello")


class Broken:
    """A database that is away."""

    async def is_sent(self, agent: JID, person: JID) -> bool:
        raise StorageError("The disk is full.")

    claim = sent = is_sent


async def test_without_a_database_it_is_said_once_by_each_process() -> None:
    talk = Talk(Broken())
    with capture_logs() as logs:
        assert await talk.hears("Hello", "Again") == [NOTICE, "to Hello", "to Again"]
    assert {line["reason"] for line in logs} == {"The disk is full."}
    assert await Talk(Broken(), a_peer).hears("Hello") == ["to Hello"]
