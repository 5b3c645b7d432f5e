"""Somebody who is asked things in chat, on a database in memory whose clock is set by hand."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from component.commands import Commands
from component.features.questions.answers import ChatAnswers
from component.features.tasks_iq.handlers import TasksHandler
from component.skills import skill
from component.skills.params import prepare
from component.store import StorageError
from component.task_messages.questions import Questions
from component.tasks import question_rows, questions, standing_rows
from component.tasks.changes import cancel, change
from component.tasks.protocol import Naming, Question, UncertainError
from component.tasks.question_rows import Answerer
from component.tasks.questions import Judgement, answer, confirm_for, decide
from component.tasks.request import CallerContext, Confirmation, Origin
from component.tasks.rows import moment
from component.tasks.standing_rows import Kind
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, Bench, element, iq
from tests.component.sent import Sent
from tests.component.tasks.ledger import AGENT as AT
from tests.component.tasks.ledger import DAY, NOON, Ledger, asked_for
from xep.binding import encode
from xep.fluux_agent.confirm import (
    Confirm,
    Decision,
    Standing,
    StandingText,
    standing_digest_of,
)
from xep.fluux_agent.task import InputAnswer, Task
from xep.hashes import Hash
from xep.jid import JID
from xep.stanza import Message, Presence

PHONE = "alice@a.example/phone"
ALICE = JID.parse("alice@a.example")
BOB = "bob@b.example/desk"
HINT = "I can't talk yet"
READING_MS = 5_000
RIVER = {
    "type": "object",
    "properties": {"river": {"type": "string", "maxLength": 9}},
    "required": ["river"],
}


@skill(name="report")
def report(topic: str = "rivers") -> None:
    """Report."""


class World:
    """Alice, her questions, and the handlers that take her answers."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.broken = False
        self.looked = 0
        self.sent: list[Message | Presence] = []
        self._ids = (f"m{number}" for number in count(1))
        words = Questions(clock=lambda: moment(self.ledger.now))
        self.message = message_handler(
            *(Sent(self.sent), Commands(()), [ChatAnswers(self, words).stage()]),
            clock=lambda: 0.0,
            now=lambda: moment(NOON),
        )
        handlers = (self.message, TasksHandler(self))
        self.bench = Bench([route for handler in handlers for route in handler.routes()])

    def confirm(
        self,
        task: str,
        *,
        thread: str | None = None,
        asked: Sequence[JID] = (ALICE,),
        read: bool = True,
        expires: int = NOON + 60_000,
        principal: JID = ALICE,
        operator: str = "",
        withheld: Sequence[JID] = (),
        offers: bool = False,
        **given: Any,
    ) -> str:
        """Ask whether a report may be made. Then as much time passes as one needs to `read` it.

        Its message is written, except to those from whom it is `withheld`. It `offers` a standing
        approval.
        """
        context = CallerContext("assistant", operator=operator)
        needed = Confirmation((principal,), "high")
        request = asked_for(principal, thread=thread, caller_context=context, confirmation=needed)
        row = self.ledger.add(task, request=request, principal=principal)
        put = confirm_for(
            *(request, report, prepare(report, json=json.dumps(given))),
            task=task,
            question=f"c-{task}",
            expires=moment(expires),
        )
        put = with_offer(put) if offers else put
        questions.ask_question(self.ledger, row, put, asked)
        standing_rows.insert_kinds(self.ledger, put.id, [Kind("reports", "")], counts=True)
        question_rows.written(self.ledger, put.id, withheld)
        if read:
            self.ledger.now += READING_MS
        return put.id

    def input(
        self,
        task: str,
        schema: dict[str, Any] | None = None,
        *,
        read: bool = True,
        origin: Origin = "message",
    ) -> str:
        """Ask which river. Then as much time passes as one needs to `read` it."""
        row = self.ledger.add(task, request=asked_for(origin=origin))
        change(self.ledger, row, "running", owner="i-1")
        raw = msgspec.Raw(json.dumps(schema or RIVER).encode())
        questions.ask_input(
            self.ledger, row, ("?1", f"q-{task}"), "Which river?", raw, NOON + 60_000
        )
        question_rows.written(self.ledger, f"q-{task}", ())
        if read:
            self.ledger.now += READING_MS
        return f"q-{task}"

    def withdraw(self, task: str) -> None:
        """The requester does not want the work any more."""
        cancel(self.ledger, self.ledger.row(task))

    def state(self, task: str) -> str:
        return self.ledger.row(task).state

    def failure(self, task: str) -> str:
        return self.ledger.row(task).failure or ""

    # The durable work, as handlers see it.

    async def decide(
        self,
        who: JID,
        at: JID,
        decision: Decision,
        lang: str | None = None,
        naming: Naming | None = None,
    ) -> int:
        return (await self.vote(Answerer(who, at, lang, naming), decision)).missing

    async def vote(self, by: Answerer, decision: Decision) -> Judgement:
        self._work()
        return self._judged(decide(self.ledger, by, decision))

    async def withdraw_vote(self, by: Answerer, question: str) -> int:
        self._work()
        return self._judged(questions.withdraw(self.ledger, by, question)).missing

    async def answer(
        self, who: JID, at: JID, given: InputAnswer, naming: Naming | None = None, reason: str = ""
    ) -> Task:
        self._work()
        by = Answerer(who, at, None, naming, reason=reason)
        found = self._judged(answer(self.ledger, by, given, None))
        assert found.task is not None
        return found.task

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        self._work()
        self.looked += 1
        return question_rows.open_questions(self.ledger, who, at)

    async def returned(self, who: JID, at: JID, question: str) -> None:
        self._work()
        question_rows.returned(self.ledger, question, who, at)

    async def was_asked(self, who: JID, at: JID, name: str) -> bool:
        self._work()
        return question_rows.was_asked(self.ledger, who, at, name)

    def _work(self) -> None:
        if self.broken:
            raise StorageError("the disk is full")

    @staticmethod
    def _judged(found: Judgement) -> Judgement:
        if found.doubt is not None:
            raise UncertainError(found.doubt)
        if found.error is not None:
            raise found.error
        return found

    # What comes in.

    async def say(
        self,
        body: str | None,
        *,
        thread: str | None = None,
        more: str = "",
        type_: str = "chat",
        from_: str = PHONE,
        to: str = AGENT,
        id_: str | None = None,
    ) -> str | None:
        """The one answer to a message, None for none."""
        before, replies = len(self.sent), len(self.bench.output.sent)
        content = "" if body is None else element("body", body)
        content += "" if thread is None else element("thread", thread)
        self.bench.receive(
            element(
                *("message", content + more),
                type=type_,
                from_=from_,
                to=to,
                id=id_ or next(self._ids),
            )
        )
        await self.bench.settled()
        said = [one for one in self.sent[before:] if not _is_bodiless(one)]
        assert len(said) <= 1
        assert len(self.bench.output.sent) == replies
        if not said:
            return None
        assert isinstance(said[0], Message)
        assert said[0].thread == thread or "<thread>" in more
        return said[0].body

    async def press(self, identifier: str, **how: Any) -> str | None:
        selected = element("action-selected", xmlns="urn:xmpp:tmp:quick-response", id=identifier)
        return await self.say(None, more=selected, **how)

    async def send(self, decision: Decision, **how: Any) -> Any:
        before = len(self.bench.output.sent)
        self.bench.receive(
            iq(encode(decision), type_="set", **({"from_": PHONE, "to": AGENT} | how))
        )
        await self.bench.settled()
        (reply,) = self.bench.replies[before:]
        return reply


def with_offer(question: Confirm) -> Confirm:
    """The question, with the offer of a standing approval."""
    text = StandingText(text="Until 2026-12-24 12:00 UTC, I may do this: report.", lang="en")
    offer = Standing(until=moment(NOON + 30 * DAY), uses=50, text=text)
    question = msgspec.structs.replace(question, standing=offer)
    digest = Hash(algo="sha-256", digest=standing_digest_of(AT, question))
    return msgspec.structs.replace(question, standing=msgspec.structs.replace(offer, hash=digest))


def _is_bodiless(stanza: Message | Presence) -> bool:
    return isinstance(stanza, Message) and stanza.body is None
