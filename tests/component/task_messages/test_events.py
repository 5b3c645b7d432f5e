"""Messages about tasks: to whom, in which words, in which order, and never before the answer."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from xml.etree import ElementTree as ET

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from component.link.messages.messenger import Messenger
from component.link.router.table import Request
from component.task_messages import events, sentences
from component.task_messages.events import TaskNews
from component.task_messages.questions import Questions
from component.tasks.changes import change
from component.tasks.events import notice_of
from component.tasks.protocol import Notice, Question
from component.tasks.question_rows import question_of
from component.tasks.request import CallerContext
from component.tasks.request import Request as TaskRequest
from component.tasks.rows import TERMINAL
from tests.component.link.router.wire import Bench, Do, ListOutput, do, parse, request, until
from tests.component.tasks.ledger import (
    AGENT,
    ALICE,
    BOB,
    PHONE,
    Ledger,
    asked_for,
    event_in,
    question,
)
from xep.binding import decode
from xep.file_sharing import File, FileSharing, Sources, UrlData
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Action, Confirm
from xep.fluux_agent.execute import Accepted, Output, Result, State
from xep.fluux_agent.task import NAMESPACE, Failure, FailureText, Progress, Task
from xep.jid import JID

pytestmark = pytest.mark.anyio

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
RESULT = Result(skill="report", outputs=(Output(name="text", text="Two dry years."),))
CAROL = JID.parse("carol@c.example")
CONFIRM = Confirm(id="c-1", task="t-1", principal=ALICE, action=Action(type="report"))


def notice(
    revision: int = 2, state: State = "running", *, task: str = "t-1", **fields: Any
) -> Notice:
    """What the engine tells of a revision."""
    told = {name: fields.pop(name) for name in list(fields) if name in Task.__struct_fields__}
    return Notice(
        **{
            "task": Task(
                **{
                    "id": task,
                    "skill": "report",
                    "state": state,
                    "revision": revision,
                    "created": START,
                    "updated": START + timedelta(seconds=revision),
                    "retain_until": START + timedelta(days=1),
                }
                | told
            ),
            "request": requested(**fields.pop("of", {})),
            "thread": "rivers",
            "final": state in TERMINAL,
        }
        | fields
    )


TALK: Final = {"origin": "message"}
"""What makes a request one that a person follows."""


def requested(*, unrequested: bool = False, **fields: Any) -> TaskRequest:
    return asked_for(caller_context=CallerContext("", unrequested=unrequested), **fields)


def put_to(*asked: JID, lapsed: bool = False) -> Question:
    return Question(
        id="c-1",
        task="t-1",
        revision=1,
        request=asked_for(),
        asked=asked,
        thread="rivers",
        content=CONFIRM,
        put_at=START,
        lapsed=lapsed,
    )


class Newsroom:
    """The news, an output, and who may be written to."""

    def __init__(self, max_stanza_bytes: int = 262_144, **options: Any) -> None:
        self.output = ListOutput()
        self.connected = True
        self.stopped: set[JID] = set()
        self.news = TaskNews(
            Messenger(self.output, max_stanza_bytes),
            lambda: self.connected,
            lambda agent, contact: agent == AGENT and contact not in self.stopped,
            Questions(),
            **options,
        )

    @property
    def sent(self) -> list[ET.Element]:
        return [parse(sent) for sent in self.output.sent]

    @property
    def told(self) -> list[tuple[str, int | None]]:
        """Task and revision of each event that was sent."""
        return [(task.id, task.revision) for task in map(task_of, self.sent)]


def task_of(message: ET.Element) -> Task:
    found = message.find(f"{{{NAMESPACE}}}task")
    assert found is not None
    return decode(Task, found, strict=True)


def text(message: ET.Element, name: str) -> str | None:
    return message.findtext(f"{{jabber:client}}{name}")


def tell(told: Notice) -> ET.Element:
    """The one message of a notice."""
    room = Newsroom()
    room.news.released(told.task.id)
    assert room.news.changed(told)
    (message,) = room.sent
    return message


# -- one message ---------------------------------------------------------------------------------


async def test_progress_is_a_headline_to_who_asked() -> None:
    told = notice(progress=Progress(text="reading", lang="en"))
    message = tell(told)
    sent = {
        "from": str(AGENT),
        "to": str(PHONE),
        "type": "headline",
        "id": f"t-1.{told.task.revision}",
    }
    assert message.attrib == sent
    assert text(message, "thread") == "rivers"
    assert text(message, "body") is None
    assert task_of(message) == told.task


async def test_the_end_is_kept_for_the_principal() -> None:
    told = notice(9, "completed", result=RESULT)
    message = tell(told)
    sent = {"from": str(AGENT), "to": str(ALICE), "type": "normal", "id": "t-1.9"}
    assert message.attrib == sent
    assert text(message, "thread") == "rivers"
    assert task_of(message) == told.task


async def test_an_event_tells_what_was_committed() -> None:
    ledger = Ledger()
    ledger.add(state="running", request=asked_for(lang="de"))
    made = change(ledger, ledger.row(), "completed", RESULT)
    told = notice_of(made)
    assert task_of(tell(told)) == event_in(made)
    assert (told.thread, told.request.conversational, told.final, told.request.lang) == (
        "t-1",
        False,
        True,
        "de",
    )
    ledger.add("t-2", request=asked_for(thread="rivers"))
    asked = question("q-1", 1)
    made = change(ledger, ledger.row("t-2"), "input-required", asked)
    put = question_of(made.row, asked, [ALICE])
    told = notice_of(msgspec.structs.replace(made, question=put))
    assert (told.question, told.thread, told.request.conversational) == (put, "rivers", True)
    assert (put.request.target, put.request.requester, put.request.principal, put.task) == (
        AGENT,
        PHONE,
        ALICE,
        "t-2",
    )
    begun = change(ledger, ledger.add("t-3", request=asked_for(origin="command")), "running")
    assert notice_of(begun).request.conversational


SPOKEN: dict[str, tuple[Notice, str]] = {
    "its result": (notice(9, "completed", result=RESULT), "Two dry years."),
    "no": (
        notice(
            9,
            "completed",
            result=Result(
                skill="report", is_error=True, outputs=(Output(name="x", text="No such river."),)
            ),
        ),
        "No such river.",
    ),
    "nothing": (notice(9, "completed", result=Result(skill="report")), "report is done."),
    "why it failed": (
        notice(9, "failed", failure=Failure.of(errors.denied())),
        f"report was not allowed: {errors.denied().text} Asking again does not change this.",
    ),
    "why it was declined": (
        notice(9, "rejected", failure=Failure.of(errors.unknown_skill())),
        "report was rejected: There is no such skill here.",
    ),
    "that it was cancelled": (notice(9, "cancelled"), "report was cancelled."),
    "a question": (notice(2, "input-required", input=question("q-1", 2)), "Which river?"),
    "that somebody has to confirm": (
        notice(1, "input-required", confirm=CONFIRM),
        "report is waiting for a confirmation.",
    ),
}


@pytest.mark.parametrize(("told", "body"), SPOKEN.values(), ids=SPOKEN)
async def test_a_person_is_told_in_words(told: Notice, body: str) -> None:
    assert text(tell(told), "body") is None
    assert text(tell(msgspec.structs.replace(told, request=requested(**TALK))), "body") == body


def bodies(room: Newsroom) -> list[tuple[str | None, str | None]]:
    return [(sent.get("to"), text(sent, "body")) for sent in room.sent]


async def test_who_is_asked_reads_the_question_once() -> None:
    """Its event, which most clients show as well, leaves the words to the question."""
    room = Newsroom()
    room.news.released("t-1")
    told = notice(1, "input-required", confirm=CONFIRM, question=put_to(ALICE), of=TALK)
    assert room.news.changed(told)
    (event, asked) = bodies(room)
    assert event == (str(PHONE), None)
    assert asked[0] == str(ALICE)


async def test_who_waits_for_the_word_of_another_is_told_so() -> None:
    room = Newsroom()
    room.news.released("t-1")
    told = notice(1, "input-required", confirm=CONFIRM, question=put_to(BOB), of=TALK)
    assert room.news.changed(told)
    (event, _asked) = bodies(room)
    assert event == (str(PHONE), "report is waiting for a confirmation.")


async def test_progress_is_not_talked_about() -> None:
    told = notice(progress=Progress(text="half"), of=TALK)
    assert text(tell(told), "body") is None


async def test_words_are_in_the_language_asked_for_where_there_is_a_choice() -> None:
    failure = Failure(
        conditions=(errors.Internal(),),
        texts=(FailureText(text="It broke.", lang="en"), FailureText(text="Kaputt.", lang="de")),
    )
    task = notice(9, "failed", failure=failure).task
    assert sentences.ending(task, "de") == sentences.Sentence("report failed: Kaputt.", "de")
    assert sentences.ending(task, "fr") == sentences.Sentence("report failed: It broke.", "en")


async def test_files_are_named_and_long_texts_cut() -> None:
    file = FileSharing(
        file=File(name="rivers.pdf"), sources=Sources(urls=(UrlData(target="https://x.example/1"),))
    )
    outputs = (Output(name="doc", file=file), Output(name="more", text="ä" * 100_000))
    task = notice(9, "completed", result=Result(skill="report", outputs=outputs)).task
    said = sentences.ending(task).text
    assert said.startswith("rivers.pdf:\nhttps://x.example/1\n\nää")
    assert (len(said), said[-1]) == (4_000, "…")


async def test_a_question_is_sent_to_who_is_asked_and_its_event_to_who_asked_for_the_work() -> None:
    room = Newsroom()
    room.news.released("t-1")
    told = notice(1, "input-required", confirm=CONFIRM, question=put_to(BOB, ALICE))
    assert room.news.changed(told)
    assert [(sent.get("to"), sent.get("type")) for sent in room.sent] == [
        (str(PHONE), "headline"),
        (str(BOB), "chat"),
        (str(ALICE), "chat"),
    ]


@pytest.mark.parametrize(
    ("origin", "heard"), [("iq", [BOB, ALICE]), ("command", [BOB]), ("tool", [BOB])]
)
async def test_who_was_asked_hears_that_the_question_has_lapsed(
    origin: str, heard: list[JID]
) -> None:
    room = Newsroom()
    room.news.released("t-1")
    lapsed = put_to(BOB, ALICE, lapsed=True)
    told = notice(2, "failed", question=lapsed, of={"origin": origin})
    assert room.news.changed(told)
    messages = [sent for sent in room.sent if sent.get("type") == "chat"]
    assert [sent.get("to") for sent in messages] == [str(jid) for jid in heard]
    assert text(messages[0], "body") == (
        "The question has expired, so I have not done it: for alice@a.example: report"
    )
    (reply,) = messages[0].findall("{urn:xmpp:reply:0}reply")
    assert reply.get("id") == "c-1"


@pytest.mark.parametrize("unrequested", [False, True])
async def test_a_person_who_wants_no_messages_gets_questions_about_their_own_requests_only(
    unrequested: bool,
) -> None:
    room = Newsroom()
    room.news.released("t-1")
    room.stopped = {ALICE, CAROL}
    told = notice(
        *(1, "input-required"),
        confirm=CONFIRM,
        question=put_to(BOB, ALICE, CAROL),
        of={"unrequested": unrequested},
    )
    delivery = room.news.changed(told)
    assert delivery
    heard = {str(BOB)} if unrequested else {str(BOB), str(ALICE)}
    assert {sent.get("to") for sent in room.sent} == heard
    assert delivery.withheld == ({ALICE, CAROL} if unrequested else {CAROL})


async def test_without_a_stream_nothing_counts_as_told() -> None:
    room = Newsroom()
    room.connected = False
    for told in (notice(1), notice(2), notice(3, "completed", result=RESULT)):
        assert not room.news.changed(told)
    room.connected = True
    assert room.news.changed(notice(3, "completed", result=RESULT))
    assert room.told == [("t-1", 3)]


async def test_what_is_held_or_waits_for_the_server_has_not_been_sent() -> None:
    room = Newsroom()
    room.output.holds = True
    delivery = room.news.changed(notice(1))
    assert delivery is not None
    assert room.told == [], "it is held until its request is answered"
    async with running(room):
        room.news.released("t-1")
        await until(lambda: room.told)
        assert delivery.state == "queued"
        room.output.settle("written")
        assert await delivery.settled()


async def test_an_end_and_a_question_must_arrive_and_progress_need_not() -> None:
    room = Newsroom()
    room.news.released("t-1")
    ended, asked, going = (
        room.news.changed(notice(9, "completed", result=RESULT)),
        room.news.changed(notice(1, "input-required", confirm=CONFIRM, question=put_to(BOB))),
        room.news.changed(notice(2, progress=Progress(text="half"))),
    )
    assert [one.must_arrive for one in (ended, asked, going) if one] == [True, True, False]


async def test_an_event_told_again_has_the_id_that_it_had() -> None:
    room = Newsroom()
    for _ in range(2):
        room.news.changed(notice(9, "completed", result=RESULT))
    assert [sent.get("id") for sent in room.sent] == ["t-1.9", "t-1.9"]


async def test_an_event_of_which_a_stanza_was_dropped_was_dropped() -> None:
    room = Newsroom()
    room.news.released("t-1")
    room.output.holds = True
    delivery = room.news.changed(
        notice(1, "input-required", confirm=CONFIRM, question=put_to(BOB, ALICE))
    )
    assert delivery is not None
    room.output.waiting[1].settle("dropped")
    assert delivery.state == "queued"
    room.output.settle("written")
    assert delivery.state == "dropped"


async def test_an_event_that_does_not_fit_still_says_that_there_is_something() -> None:
    room = Newsroom(max_stanza_bytes=2_000)
    big = Result(skill="report", outputs=(Output(name="x", text="ä" * 1_000),))
    assert room.news.changed(notice(9, "completed", result=big))
    (message,) = room.sent
    task = task_of(message)
    assert (task.state, task.revision, task.result) == ("completed", 9, None)
    # One whose thread alone is larger than that cannot be told at all.
    assert room.news.changed(notice(9, "completed", result=big, thread="x" * 2_000))
    assert len(room.sent) == 1


async def test_a_fault_of_ours_stays_here() -> None:
    room = Newsroom()
    room.news.released("t-1")
    broken: Any = msgspec.structs.replace(put_to(ALICE), asked=None)
    told = notice(1, "input-required", confirm=CONFIRM, question=broken)
    assert room.news.changed(told)
    assert room.news.changed(notice(2))
    assert room.told == [("t-1", 2)]


# -- order ---------------------------------------------------------------------------------------


@asynccontextmanager
async def running(room: Newsroom) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(room.news.run)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("before", [True, False])
async def test_no_event_before_the_answer(before: bool) -> None:
    room = Newsroom()

    def handler(_request: Request[Do]) -> Awaitable[Accepted]:
        async def work() -> Accepted:
            await checkpoint()
            if before:
                room.news.changed(notice(1))
                room.news.changed(notice(2))
                await checkpoint()
                room.news.changed(notice(3, "completed", result=RESULT))
            room.news.released("t-1")
            return Accepted(task="t-1")

        return work()

    bench = Bench([do(handler)])
    bench.output.put = room.output.put  # type: ignore[method-assign]
    async with running(room), bench.running():
        bench.receive(request())
        await bench.settled()
        if not before:
            room.news.changed(notice(1))
            room.news.changed(notice(2))
            room.news.changed(notice(3, "completed", result=RESULT))
        await until(lambda: len(room.output.sent) == 4)
    first, *rest = room.sent
    assert first.tag == "{jabber:client}iq"
    assert [task_of(message).revision for message in rest] == [1, 2, 3]


async def test_what_nobody_answers_is_told_after_a_while() -> None:
    room = Newsroom(hold_s=0)
    async with running(room):
        late = START  # no time has passed since it was accepted
        assert room.news.changed(notice(1, updated=late))
        assert room.news.changed(notice(2, updated=late))
        assert room.told == []
        await until(lambda: len(room.output.sent) == 2)
    assert room.told == [("t-1", 1), ("t-1", 2)]


async def test_a_question_about_a_child_is_asked_at_once() -> None:
    room = Newsroom(hold_s=60)
    asked = put_to(ALICE)
    room.news.changed(notice(1, "input-required", of={"origin": "child"}, question=asked))
    assert [message.get("type") for message in room.sent] == ["headline", "chat"]


async def test_what_was_accepted_long_ago_is_told_at_once() -> None:
    room = Newsroom(hold_s=60)
    room.news.changed(notice(1, updated=START + timedelta(seconds=61)))
    room.news.changed(notice(7, task="t-2"))
    assert room.told == [("t-1", 1), ("t-2", 7)]


async def test_what_another_life_accepted_is_told_at_once() -> None:
    """Nobody is left to answer its request, however short ago that was."""
    room = Newsroom(hold_s=60, since=START + timedelta(milliseconds=1))
    room.news.changed(notice(1, updated=START + timedelta(seconds=1)))
    room.news.changed(notice(2, updated=START + timedelta(seconds=1)))
    assert room.told == [("t-1", 1), ("t-1", 2)]


async def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_MOST_HELD", 3)
    monkeypatch.setattr(events, "_MOST_ANSWERED", 1)
    room = Newsroom(hold_s=60)
    for task in ("t-1", "t-2"):
        room.news.changed(notice(1, task=task))
        room.news.changed(notice(2, task=task))
    assert room.told == [("t-1", 1), ("t-1", 2)]
    for task in ("t-3", "t-4"):
        room.news.released(task)
    room.news.changed(notice(1, task="t-4"))
    assert room.told[2:] == [("t-4", 1)]
    room.news.changed(notice(1, task="t-3"))  # forgotten, and so held for a while
    assert room.told[3:] == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["change", "release", "turn"]), st.integers(0, 3)), max_size=60
    )
)
async def test_the_events_of_each_task_keep_their_order_and_wait_for_its_answer(
    moves: list[tuple[str, int]],
) -> None:
    room = Newsroom(hold_s=3_600)
    revisions: dict[str, int] = defaultdict(int)
    answered: set[str] = set()
    async with running(room):
        for move, number in moves:
            task = f"t-{number}"
            match move:
                case "change":
                    revisions[task] += 1
                    assert room.news.changed(notice(revisions[task], task=task))
                case "release":
                    before = len(room.output.sent)
                    room.news.released(task)
                    assert len(room.output.sent) == before  # the answer goes first
                    answered.add(task)
                case _:
                    await checkpoint()
            assert {task for task, _ in room.told} <= answered
        expected = sum(revisions[task] for task in answered)
        await until(lambda: len(room.output.sent) >= expected)
    found: dict[str, list[int | None]] = defaultdict(list)
    for task, revision in room.told:
        found[task].append(revision)
    assert found == {
        task: list(range(1, revisions[task] + 1)) for task in answered if revisions[task]
    }
