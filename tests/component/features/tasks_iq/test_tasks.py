"""Asking for tasks, cancelling and answering, over the router, on the tables themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from xml.etree import ElementTree as ET

import msgspec
import pytest

from component.features.tasks_iq.handlers import TasksHandler
from component.kernel.errors import AgentErrors
from component.store import StorageError
from component.tasks import queries
from component.tasks.changes import change
from component.tasks.protocol import TaskLimits
from tests.component.link.router.wire import DOMAIN, Bench, error_of, iq
from tests.component.tasks.ledger import NOON, Ledger, asked_for
from tests.component.world import result, xml
from xep.binding import Payload
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import NAMESPACE as CONFIRM
from xep.fluux_agent.errors import Malformed, Retry, UnknownTask
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import (
    NAMESPACE,
    AnswerParams,
    Cancel,
    Events,
    InputAnswer,
    Progress,
    Task,
)
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID

pytestmark = pytest.mark.anyio

PARAMS = AnswerParams(json=msgspec.Raw(b"{}"))


class OnLedger:
    """The part of the durable work that is asked here, on tables in memory."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.refuses = False
        self.answers: list[InputAnswer] = []

    async def get(self, who: JID, at: JID, task: str) -> Task:
        if self.refuses:
            raise StorageError("/secret/agent.db: the disk is full")
        found = queries.get(self.ledger, who, at, task)
        if found is None:
            raise errors.unknown_task()
        return found

    async def list(self, who: JID, at: JID, query: TaskList) -> TaskList:
        return queries.list_(self.ledger, who, at, query, TaskLimits())

    async def events(self, who: JID, at: JID, query: Events) -> Events:
        found = queries.events(self.ledger, who, at, query)
        if found is None:
            raise errors.unknown_task()
        return found

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        task = await self.get(who, at, query.id)
        row = self.ledger.row(task.id)
        if row.state == "accepted":
            change(self.ledger, row, "cancelled")
        return await self.get(who, at, query.id)

    async def answer(self, who: JID, at: JID, answer: InputAnswer) -> Task:
        self.answers.append(answer)
        return await self.get(who, at, answer.task)


class Faces:
    """The handler behind a router."""

    def __init__(self) -> None:
        self.tasks = OnLedger()
        self.bench = Bench(TasksHandler(cast("Any", self.tasks)).routes(), faults=AgentErrors(7))

    async def ask(
        self,
        payload: Payload | str,
        type_: str = "get",
        from_: str = "alice@a.example/tablet",
        to: str = f"assistant@{DOMAIN}",
    ) -> ET.Element:
        before = len(self.bench.output.sent)
        self.bench.receive(iq(xml(payload), type_=type_, from_=from_, to=to))
        await self.bench.settled()
        (reply,) = self.bench.replies[before:]
        return reply


@asynccontextmanager
async def faces() -> AsyncIterator[Faces]:
    made = Faces()
    async with made.bench.running():
        yield made


async def test_any_resource_of_the_principal_asks_for_the_whole_task() -> None:
    async with faces() as made:
        made.tasks.ledger.add(state="running", request=asked_for(thread="rivers"))
        change(made.tasks.ledger, made.tasks.ledger.row(), "completed", Result(skill="report"))
        task = result(Task, await made.ask(Task(id="t-1")))
        assert (task.state, task.revision, task.thread) == ("completed", 1, "rivers")
        assert task.result == Result(skill="report")
        # More than the id changes nothing.
        more = Task(id="t-1", skill="other", state="running", progress=Progress(text="x"))
        assert result(Task, await made.ask(more)) == task


async def test_lists_and_events_are_pages_with_a_set() -> None:
    async with faces() as made:
        assert result(TaskList, await made.ask(TaskList())).page is not None
        made.tasks.ledger.add(state="running")
        change(made.tasks.ledger, made.tasks.ledger.row(), "running", Progress(text="x"))
        (task,) = result(TaskList, await made.ask(TaskList(state="running"))).tasks
        assert task.progress == Progress(text="x")
        told = result(Events, await made.ask(Events(id="t-1", since=0)))
        assert told.page is not None
        assert (told.revision, told.page.last, told.tasks[0].progress) == (1, "1", task.progress)


async def test_a_cancelled_task_is_shown_as_it_then_is_again_and_again() -> None:
    async with faces() as made:
        made.tasks.ledger.add()
        first = await made.ask(Cancel(id="t-1", reason="enough"), "set")
        assert result(Task, first).state == "cancelled"
        assert ET.tostring(await made.ask(Cancel(id="t-1"), "set")) == ET.tostring(first)


async def test_what_is_not_there_gives_the_same_bytes_whatever_it_is() -> None:
    async with faces() as made:
        ledger = made.tasks.ledger
        ledger.add("t-bob", principal=JID.parse("bob@b.example"))
        ledger.add("t-elsewhere", target=f"helper@{DOMAIN}")
        ledger.add("t-gone", state="failed", retain_until=NOON - 1)
        ledger.add("t-inline", promoted=0)
        for task in ("t-never", "t-bob", "t-elsewhere", "t-gone", "t-inline"):
            replies = [
                await made.ask(Task(id=task)),
                await made.ask(Events(id=task, since=0)),
                await made.ask(Cancel(id=task), "set"),
                await made.ask(InputAnswer(task=task, input="q", revision=1, params=PARAMS), "set"),
            ]
            error = error_of(replies[0])
            assert (error.condition, error.application) == ("item-not-found", (UnknownTask(),))
        assert len(set(made.bench.output.sent)) == 1


NEGATIVE = "<set xmlns='http://jabber.org/protocol/rsm'><max>-1</max></set>"
FORM = "<x xmlns='jabber:x:data' type='submit'/>"
MALFORMED: tuple[tuple[str, str], ...] = (
    ("get", "<task {}/>"),
    ("get", "<task {} id=''/>"),
    ("get", "<task {} id='a b'/>"),
    ("get", f"<task {{}} id='{'a' * 129}'/>"),
    ("get", "<task {} id='a&#10;'/>"),
    ("get", "<tasks {} context='ä'/>"),
    ("get", "<tasks {} state='lost'/>"),
    ("get", "<tasks {} since='yesterday'/>"),
    ("get", f"<tasks {{}}>{NEGATIVE}</tasks>"),
    ("get", "<events {} id='t-1'/>"),
    ("get", "<events {} id='t/1' since='0'/>"),
    ("get", "<events {} id='t-1' since='-1'/>"),
    ("get", f"<events {{}} id='t-1' since='0'>{NEGATIVE}</events>"),
    ("set", "<cancel {} id='*'/>"),
    ("set", "<answer {} task='t-1' input='q' revision='1'/>"),
    ("set", "<answer {} task='t-1' input='q' revision='-1'><params>1</params></answer>"),
    ("set", "<answer {} task='t-1' input='q' revision='1'><params>no</params></answer>"),
    ("set", "<answer {} task='t-1' input='' revision='1'><params>1</params></answer>"),
    ("set", f"<answer {{}} task='t-1' input='q' revision='1'><params>1</params>{FORM}</answer>"),
)


@pytest.mark.parametrize(("type_", "payload"), MALFORMED)
async def test_a_request_that_means_nothing_is_malformed(type_: str, payload: str) -> None:
    async with faces() as made:
        made.tasks.ledger.add()
        error = error_of(await made.ask(payload.format(f"xmlns='{NAMESPACE}'"), type_))
        assert (error.condition, error.application) == ("bad-request", (Malformed(),))
        assert error.text


async def test_an_answer_is_json_or_a_form() -> None:
    async with faces() as made:
        made.tasks.ledger.add()
        for answer in (
            InputAnswer(task="t-1", input="q-1", revision=1, params=PARAMS),
            InputAnswer(task="t-1", input="q-1", revision=1, form=Form(type="cancel")),
        ):
            assert result(Task, await made.ask(answer, "set")).id == "t-1"
            assert made.tasks.answers[-1] == answer


async def test_a_database_that_refuses_is_to_be_asked_again_and_says_no_more() -> None:
    async with faces() as made:
        made.tasks.refuses = True
        error = error_of(await made.ask(Task(id="t-1")))
        assert (error.condition, error.type) == ("resource-constraint", "wait")
        assert error.application == (Retry(after=7),)
        assert "secret" not in error.text


async def test_questions_are_asked_by_get_and_changes_made_by_set() -> None:
    async with faces() as made:
        for payload, type_ in ((Task(id="t-1"), "set"), (Cancel(id="t-1"), "get")):
            assert error_of(await made.ask(payload, type_)).condition == "service-unavailable"
        assert made.bench.router.table.features("agent") == (CONFIRM, NAMESPACE)
