"""Skills of a worker are like all others for their callers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from component.app.schema import SCHEMA
from component.skills.operations import ModelQuestion
from component.skills.spec import Annotations
from component.store import Storage
from component.tasks.rows import TERMINAL
from tests.component.features.workers.support import (
    Serving,
    WorkerProgram,
    serving,
)
from tests.component.tasks.world import AGENT, ANN
from tests.waiting import eventually
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import AnswerParams, Cancel, InputAnswer, Task
from xep.stanza_error import StanzaError

pytestmark = [pytest.mark.servers, pytest.mark.anyio]


@pytest.fixture
def served(
    worker: WorkerProgram, queue_url: str, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Serving]]:
    """Runs a task service with the skills of the worker."""

    @asynccontextmanager
    async def run(**how: Any) -> AsyncIterator[Serving]:
        async with serving(
            lambda: Storage.open(SCHEMA, tmp_path / "data"), queue_url, "shout", "who", **how
        ) as made:
            yield made

    return run


Served = Callable[..., AbstractAsyncContextManager[Serving]]


def text(answer: Result | Accepted) -> str:
    assert isinstance(answer, Result), answer
    return answer.outputs[0].text


async def refusal(served: Serving, skill: str, **how: Any) -> StanzaError:
    with pytest.raises(StanzaError) as caught:
        await served.world.run(skill, **how)
    return caught.value


async def ended(served: Serving, task: str) -> Task:
    return await served.world.reaches(task, *TERMINAL)


async def test_a_skill_is_offered_as_its_worker_describes_it(served: Served) -> None:
    async with served() as running:
        skill = running.registry.get("pay")
        assert skill is not None
        assert skill.description == "Pay once."
        assert skill.annotations == Annotations()
        assert skill.capabilities == ("network:pay.example.com:443",)
        assert set(skill.input_schema["properties"]) == {"number", "seconds"}
        assert skill.source == "the workers of the queue default"
        assert text(await running.world.run("shout", params={"text": "hi"})) == "HI"
        who, sender, pid = text(await running.world.run("who")).split()
        assert (who, sender) == (str(ANN.bare), str(ANN))
        assert int(pid) != os.getpid()


async def test_the_settings_select_the_skills_and_their_taint(served: Served) -> None:
    async with served(skills=("sh*", "who"), taint="web") as running:
        assert running.registry.names() == ("shout", "who")
        skill = running.registry.get("shout")
        assert skill is not None
        assert (skill.taint, skill.described_by) == ("web", "web")
        assert "annotations" in skill.claims
        assert "description" not in skill.claims
        assert text(await running.world.run("shout", params={"text": "hi"})) == "HI"


async def test_files_come_with_the_result(served: Served) -> None:
    async with served() as running:
        answer = await running.world.run("files")
        assert isinstance(answer, Result)
        (output,) = answer.outputs
        assert (output.name, output.type) == ("a.png", "image/png")
        assert output.file is not None


async def test_large_parameters_and_results_are_refused(served: Served) -> None:
    async with served(max_argument_bytes=100, max_result_bytes=1000) as running:
        answer = await running.world.run("shout", params={"text": "x" * 100})
        assert isinstance(answer, Result)
        assert answer.is_error
        assert "at most 100 are sent to a worker" in text(answer)
        refused = await refusal(running, "files", json={"size": 2000})
        assert "at most 1,000 are sent to the service" in (refused.text or "")


async def test_errors_are_those_of_the_skill(served: Served) -> None:
    async with served() as running:
        answer = await running.world.run("fail", params={"how": "refuse"})
        assert isinstance(answer, Result)
        assert (answer.is_error, text(answer)) == (True, "It is closed.")
        refused = await refusal(running, "fail", params={"how": "parameter"})
        assert refused.text == "how: cannot be that"
        with capture_logs() as logs:
            refused = await refusal(running, "fail")
        assert isinstance(refused.application[0], errors.Internal)
        assert "secret" not in (refused.text or "")
        assert "a secret of the worker" in str([log.get("exc_info") for log in logs])
        refused = await refusal(running, "slow")
        assert isinstance(refused.application[0], errors.Timeout)


async def test_progress_and_cancellation_cross(worker: WorkerProgram, served: Served) -> None:
    async with served() as running:
        stopped = worker.lines().count("hang stopped")
        task = await running.world.task("hang")
        heard = await running.world.ear.until(
            lambda one: one.task.id == task and one.task.progress is not None
        )
        assert heard.task.progress is not None
        assert heard.task.progress.text == "half way"
        await running.world.service.cancel(ANN.bare, AGENT, Cancel(id=task))
        assert (await ended(running, task)).state == "cancelled"
        await eventually(lambda: worker.lines().count("hang stopped") == stopped + 1)


async def test_a_call_that_must_not_run_twice_is_cancelled_with_an_unknown_outcome(
    worker: WorkerProgram, served: Served
) -> None:
    async with served() as running:
        stopped = worker.lines().count("hang stopped")
        begun = worker.lines().count("hang")
        task = await running.world.task("hang_for_good")
        await eventually(lambda: worker.lines().count("hang") == begun + 1)
        await running.world.service.cancel(ANN.bare, AGENT, Cancel(id=task))
        failed = await ended(running, task)
        assert failed.state == "failed"
        assert failed.failure is not None
        assert isinstance(failed.failure.conditions[0], errors.OutcomeUnknown)
        await eventually(lambda: worker.lines().count("hang stopped") == stopped + 1)


async def test_the_deadline_stops_the_worker(worker: WorkerProgram, served: Served) -> None:
    async with served(limits={"inline_s": 0.3}) as running:
        stopped = worker.lines().count("hang stopped")
        refused = await refusal(running, "hang", mode="inline")
        assert isinstance(refused.application[0], errors.Timeout)
        await eventually(lambda: worker.lines().count("hang stopped") == stopped + 1)


@pytest.mark.parametrize("how", ["drained", "at once"])
async def test_a_call_goes_on_while_its_service_stops(
    worker: WorkerProgram, served: Served, how: str, anyio_backend_name: str
) -> None:
    number = 100 + 2 * (how == "drained") + (anyio_backend_name == "trio")
    begun, paid = f"begin pay {number}", f"pay {number}"
    async with served(limits={"drain_s": 0.1}) as running:
        task = await running.world.task("pay", json={"number": number, "seconds": 0.5})
        await eventually(lambda: begun in worker.lines())
        if how == "drained":
            await running.world.service.drain()
    async with served() as running:
        done = await ended(running, task)
        assert done.result is not None
        assert done.result.outputs[0].text == f"paid {number}"
    assert [line for line in worker.lines() if line in (begun, paid)] == [begun, paid]


async def test_a_question_of_a_worker_is_asked_and_answered(
    worker: WorkerProgram, served: Served
) -> None:
    async with served() as running:
        before = worker.lines().count("mix")
        task = await running.world.task("paint")
        asked = await running.world.reaches(task, "input-required")
        assert asked.input is not None
        assert asked.input.questions[0].text == "Which colour?"
        given = msgspec.Raw(b'{"colour": "red", "twice": true}')
        await running.world.service.answer(
            ANN.bare,
            AGENT,
            InputAnswer(
                task=task,
                input=asked.input.id,
                revision=asked.input.revision,
                params=AnswerParams(json=given),
            ),
        )
        done = await ended(running, task)
        assert done.result is not None
        assert [(one.name, one.text) for one in done.result.outputs] == [
            ("log", "mixed it, painted"),
            ("output", "red True"),
        ]
        assert worker.lines().count("mix") == before + 1  # a step runs once


async def test_what_needs_the_service_is_refused_by_name(served: Served) -> None:
    async with served() as running:
        refused = await refusal(running, "start_tasks")
        assert "context.start, which is not possible on a worker" in (refused.text or "")
        refused = await refusal(running, "ask_without_durability")
        assert "declare it with durable=True" in (refused.text or "")


async def test_a_model_is_asked_through_the_service(served: Served) -> None:
    async def model(_call: object, _task: str, question: ModelQuestion) -> str:
        assert question.prompt == "Say a word."
        return '{"word": "Hm"}'

    async with served() as running:
        running.world.ask_model = model
        assert text(await running.world.run("think")) == "Hm"
