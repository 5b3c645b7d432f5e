"""A context for the tests of skills, without a service. `xmpp_agent.testing` has it for authors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import anyio
import msgspec

from component.skills import calling
from component.skills.context import ChildResult, Context, Work
from component.skills.errors import SkillError, StepFailed, UsageError
from component.skills.model_answers import CAPABILITY, ModelFailed, ModelQuestion
from component.skills.outputs import SkillResult
from component.skills.params import prepare
from component.skills.skill import Skill
from component.skills.threads import Threads

T = TypeVar("T")


class FakeContext(Context):
    """A context for tests. It needs no service: nobody is asked, and nothing is waited for.

    Args:
        answers: what the person answers, in order: values of the fields that are asked for, or an
            exception such as `Denied`.
        model: what the model answers, in order: values that fit the schema, or an exception such
            as `ModelFailed`.
        children: what the skills return that are started, by name: a text, or an exception.
        principal: the bare JID of the caller.
        agent: the name of the agent.

    Attributes:
        progress_reports: fractions and texts, in order.
        artifacts: the text of each artifact that was published, by name.
        steps: the names of the steps that ran, in order.
        questions: the questions to the person, in order.
        prompts: the questions to the model, in order.
        started: names and parameters of the skills that were started, in order.
        slept: the seconds of each wait, in order.
    """

    def __init__(
        self,
        *,
        answers: Sequence[object] = (),
        model: Sequence[object] = (),
        children: Mapping[str, str | Exception] | None = None,
        principal: str = "juliet@example.com",
        agent: str = "assistant",
    ) -> None:
        host = _Host(list(answers), list(model), dict(children or {}))
        super().__init__(
            principal=principal, sender=f"{principal}/test", skill="test", agent=agent, host=host
        )
        self.progress_reports = host.progress_reports
        self.artifacts = host.artifacts
        self.steps = host.steps
        self.questions = host.questions
        self.prompts = host.prompts
        self.started = host.started
        self.slept = host.slept
        self._fake = host

    def of(self, skill: Skill) -> None:
        """Use the context for a skill: what it must declare is checked as in the service."""
        self.skill = skill.name
        self._fake.skill = skill

    @property
    def unused(self) -> int:
        """The number of answers of the person and the model that nobody asked for."""
        return len(self._fake.answers) + len(self._fake.model)


def call(
    skill: Skill, arguments: Mapping[str, Any] | None = None, context: FakeContext | None = None
) -> SkillResult:
    """Call a skill as callers do: the arguments are validated, and SkillError becomes a result.

    Not for async tests, which await the function. Raises InvalidParam, SkillFailed, SkillTimeout.
    """
    return anyio.run(called, skill, arguments or {}, context or FakeContext())


async def called(skill: Skill, arguments: Mapping[str, Any], context: FakeContext) -> SkillResult:
    """Do the same as `call` in an event loop that runs."""
    context.of(skill)
    values = prepare(skill, (), msgspec.json.encode(arguments))
    return await calling.call(skill, values, context, Threads(1, 1).share(context.principal))


class _Host:
    """Implements `component.skills.context.Host`."""

    key = "test"
    resumes = False

    def __init__(
        self, answers: list[object], model: list[object], children: dict[str, str | Exception]
    ) -> None:
        self.answers = answers
        self.model = model
        self._children = children
        self.skill: Skill | None = None
        self.progress_reports: list[tuple[float, str]] = []
        self.artifacts: dict[str, str] = {}
        self.steps: list[str] = []
        self.questions: list[str] = []
        self.prompts: list[str] = []
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.slept: list[float] = []
        self._over: set[str] = set()

    async def progress(self, fraction: float, text: str) -> None:
        self.progress_reports.append((fraction, text))

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        if name in self._over:
            raise ValueError(f"the artifact {name!r} has had its last part")
        self.artifacts[name] = self.artifacts.get(name, "") + text
        if last:
            self._over.add(name)

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - as in Host
        *,
        repeatable: bool,
        key: str | int | None,
        input: object,  # noqa: A002 - as in Host
    ) -> T:
        self._require_steps("step")
        self.steps.append(name)
        try:
            made = await work(f"{self.key} {name} {'' if key is None else key}".strip())
        except SkillError:
            raise
        except Exception as error:
            raise StepFailed(f"The step {name} failed: {error}") from error
        # What a step returns is stored as JSON, and read as its type.
        return msgspec.json.decode(msgspec.json.encode(made), type=type)

    async def ask(
        self, question: str, schema: type[T], expires_s: float | None, *, key: str | int | None
    ) -> T:
        self._require_steps("ask")
        self.questions.append(question)
        answer = _next(self.answers, f"The skill asks {question!r}", "answers")
        return msgspec.convert(msgspec.to_builtins(answer), schema)

    async def sleep(self, seconds: float, *, key: str | int | None) -> None:
        self._require_steps("sleep")
        self.slept.append(seconds)

    async def start(
        self, skill: str, params: Mapping[str, Any], *, delay_s: float, key: str | int | None
    ) -> str:
        self._require_steps("start")
        if skill not in self._children:
            raise AssertionError(f"The skill starts {skill!r}: add it to `children`.")
        self.started.append((skill, dict(params)))
        return f"{len(self.started)}"

    async def wait(
        self, tasks: Sequence[str], *, eager: bool, key: str | int | None
    ) -> list[ChildResult]:
        self._require_steps("wait")
        return [self._child(task) for task in tasks]

    async def wait_for_turn(self, turn: str) -> NoReturn:
        raise AssertionError("Only goals wait for turns.")

    async def llm(self, question: ModelQuestion, *, key: str | int | None) -> str:
        if self.skill is not None and CAPABILITY not in self.skill.capabilities:
            raise UsageError(f'The skill {self.skill.name} must declare capabilities=["llm"].')
        self.prompts.append(question.prompt)
        answer = _next(self.model, f"The skill asks the model {question.prompt!r}", "model")
        text = msgspec.json.encode(answer).decode()
        try:
            question.check(text)
        except ValueError as error:
            raise ModelFailed("invalid", f"The answer does not fit the schema: {error}") from None
        return text

    def _child(self, task: str) -> ChildResult:
        skill, _ = self.started[int(task) - 1]
        outcome = self._children[skill]
        if isinstance(outcome, SkillError):
            return ChildResult(task, "completed", str(outcome), is_error=True)
        if isinstance(outcome, Exception):
            return ChildResult(task, "failed", reason=str(outcome))
        return ChildResult(task, "completed", outcome)

    def _require_steps(self, what: str) -> None:
        skill = self.skill
        if skill is not None and not (skill.durable or skill.annotations.repeatable):
            raise UsageError(
                f"The skill {skill.name} uses context.{what}: declare it durable=True,"
                " read_only=True or idempotent=True."
            )


def _next(script: list[object], what: str, where: str) -> object:
    if not script:
        raise AssertionError(f"{what}, and the test has no answer: add one to `{where}`.")
    answer = script.pop(0)
    if isinstance(answer, BaseException):
        raise answer
    return answer
