"""A context for the tests of skills, without a service. `xmpp_agent.testing` has it for authors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

import anyio
import msgspec

from component.policy.flows import covers
from component.skills import calling
from component.skills.calling import Threads
from component.skills.capabilities import DEFAULT_PORTS
from component.skills.context import Context
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    StepFailed,
    UsageError,
)
from component.skills.host import (
    DeleteMemory,
    Handlers,
    HasCredential,
    HostError,
    HostFunctions,
    HttpRequest,
    HttpResponse,
    ListMemory,
    LogLevel,
    ReadMemory,
    SendMessage,
    WriteMemory,
)
from component.skills.manifest import read_manifest
from component.skills.operations import (
    CAPABILITY,
    METHODS,
    AskModel,
    AskPrincipal,
    ChildResult,
    ConfirmTasks,
    ModelFailed,
    Operation,
    PartialHost,
    PublishPart,
    ReportProgress,
    RunStep,
    Sleep,
    StartTask,
    WaitForTasks,
    Work,
)
from component.skills.outputs import SkillResult
from component.skills.params import prepare
from component.skills.skill import Skill

_OF_DURABLE_SKILLS: Final = (
    *(RunStep, AskPrincipal, Sleep),
    *(StartTask, ConfirmTasks, WaitForTasks),
)

T = TypeVar("T")
Http: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]


class FakeOptions(TypedDict, total=False):
    """What a `FakeContext` can be made of."""

    answers: Sequence[object]
    """What the person answers, in order: values of the fields that are asked for, or an exception
    such as `Denied`."""
    model: Sequence[object]
    """What the model answers, in order: values that fit the schema, or an exception such as
    `ModelFailed`."""
    http: Sequence[object] | Http
    """What servers answer, in order: HttpResponse, values that become JSON, or an exception such as
    `HostError`."""
    memories: Mapping[str, str] | None
    """What the skill remembers at the beginning, by key."""
    credentials: Collection[str]
    """The names of the credentials that have a value."""
    manifest: str | PathLike[str] | None
    """The `skill.toml` whose capabilities the skill has, besides those that its code declares."""
    children: Mapping[str, str | Exception] | None
    """What the skills return that are started, by name: a text, or an exception."""
    now: datetime
    """The time, in UTC: noon of 2026-01-01 unless given."""
    principal: str
    """The bare JID of the caller: `juliet@example.com` unless given."""
    agent: str
    """The name of the agent: `assistant` unless given."""


class FakeContext(Context):
    """A context for tests. It needs no service: nobody is asked, and nothing is waited for.

    It is made of the options that `FakeOptions` lists, all of them optional.

    Attributes:
        progress_reports: fractions and texts, in order.
        artifacts: the text of each artifact that was published, by name.
        steps: the names of the steps that ran, in order.
        questions: the questions to the person, in order.
        prompts: the questions to the model, in order.
        started: names and parameters of the skills that were started, in order.
        slept: the seconds of each wait, in order.
        requests: the HTTP requests, in order.
        memories: what the skill remembers, by key.
        sent: recipients and texts of the messages, in order.
    """

    def __init__(self, **options: Unpack[FakeOptions]) -> None:
        principal = options.get("principal", "juliet@example.com")
        self._fake = fake = _Host(self, options)
        super().__init__(
            principal=principal,
            sender=f"{principal}/test",
            skill="test",
            agent=options.get("agent", "assistant"),
            host=fake,
        )
        self.progress_reports: list[tuple[float, str]] = []
        self.artifacts: dict[str, str] = {}
        self.steps: list[str] = []
        self.questions: list[str] = []
        self.prompts: list[str] = []
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.slept: list[float] = []
        self.requests: list[HttpRequest] = []
        self.memories = dict(options.get("memories") or {})
        self.sent: list[tuple[str, str]] = []
        self._now = options.get("now", datetime(2026, 1, 1, 12, tzinfo=UTC))
        self._generator = Random(0)  # noqa: S311 - a test sees the same numbers in each run
        self.provide(HostFunctions("test", fake.log, fake.functions))

    def now(self) -> datetime:
        """Return the time of the test."""
        return self._now

    def random(self, length: int = 16) -> bytes:
        """Return bytes that are the same in each run of a test."""
        return self._generator.randbytes(length)

    def of(self, skill: Skill) -> None:
        """Use the context for a skill: what it must declare is checked as in the service."""
        self.skill = skill.name
        self._fake.skill = skill
        declared = self._fake.declared = (*skill.capabilities, *self._fake.of_manifest)
        if self.functions is not None:
            kinds = {"", *(each.partition(":")[0] for each in declared)}
            handlers = self.functions.handlers.items()
            permitted = {made: do for made, do in handlers if made.capability in kinds}
            self.provide(HostFunctions(skill.name, self.functions.log, permitted))

    @property
    def unused(self) -> int:
        """The number of answers of the person, the model and servers that nobody asked for."""
        return len(self._fake.answers) + len(self._fake.model) + len(self._fake.http)


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


class _Host(PartialHost):
    """Performs the operations and the host functions of a test, and notes them in its context."""

    key = "test"

    def __init__(self, test: FakeContext, options: FakeOptions) -> None:
        http = options.get("http", ())
        self._test = test
        self.answers = list(options.get("answers", ()))
        self.model = list(options.get("model", ()))
        self.http = [] if callable(http) else list(http)
        self._answer = http if callable(http) else None
        self._children = dict(options.get("children") or {})
        self._credentials = options.get("credentials", ())
        self.of_manifest: Sequence[str] = ()
        if (manifest := options.get("manifest")) is not None:
            read = read_manifest(Path(manifest).read_text("utf-8"))
            self.of_manifest = read.skill.capabilities.texts
        self.skill: Skill | None = None
        self.declared: Sequence[str] = ()
        self._over: set[str] = set()
        self.functions: Handlers = {
            ReportProgress: self.perform,
            HttpRequest: self._request,
            ReadMemory: self._read,
            WriteMemory: self._write,
            DeleteMemory: self._delete,
            ListMemory: self._list,
            HasCredential: self._has_credential,
            SendMessage: self._send,
        }

    async def perform(self, operation: Operation, *local: Any) -> Any:
        """Perform an operation, if the skill is declared so that it may ask for it."""
        skill = self.skill
        if isinstance(operation, _OF_DURABLE_SKILLS) and skill is not None and skill.atomic:
            raise UsageError(
                f"The skill {skill.name} uses context.{METHODS[type(operation)]}: declare it"
                " durable=True, read_only=True or idempotent=True."
            )
        return await super().perform(operation, *local)

    def unsupported(self, method: str) -> UsageError:
        return UsageError(f"A test cannot use context.{method}: only goals wait for turns.")

    async def _do_progress(self, operation: ReportProgress) -> None:
        self._test.progress_reports.append((operation.fraction, operation.text))

    async def _do_output(self, part: PublishPart) -> None:
        if part.name in self._over:
            raise ValueError(f"the artifact {part.name!r} has had its last part")
        self._test.artifacts[part.name] = self._test.artifacts.get(part.name, "") + part.text
        if part.last:
            self._over.add(part.name)

    async def _do_step(self, step: RunStep, work: Work[bytes]) -> bytes:
        self._test.steps.append(step.name)
        try:
            return await work(
                f"{self.key} {step.name} {'' if step.key is None else step.key}".strip()
            )
        except (SkillError, Denied, InvalidParam, UsageError):
            raise
        except Exception as error:
            raise StepFailed(f"The step {step.name} failed: {error}") from error

    async def _do_ask(self, asked: AskPrincipal) -> bytes:
        self._test.questions.append(asked.question)
        answer = _next(self.answers, f"The skill asks {asked.question!r}", "answers")
        return msgspec.json.encode(answer)

    async def _do_sleep(self, operation: Sleep) -> None:
        self._test.slept.append(operation.seconds)

    async def _do_start(self, start: StartTask) -> str:
        if start.skill not in self._children:
            raise AssertionError(f"The skill starts {start.skill!r}: add it to `children`.")
        self._test.started.append((start.skill, msgspec.json.decode(start.params)))
        return f"{len(self._test.started)}"

    async def _do_confirm_tasks(self, operation: ConfirmTasks) -> None:
        pass

    async def _do_wait(self, operation: WaitForTasks) -> bytes:
        found = [self._child(task) for task in operation.tasks]
        first = next((at for at, one in enumerate(found) if one.success), len(found))
        if operation.until == "success":
            left = found[first + 1 :]
            found[first + 1 :] = [
                ChildResult(one.task, "cancelled", skill=one.skill) for one in left
            ]
        return msgspec.json.encode(found)

    async def _do_llm(self, asked: AskModel, check: Callable[[str], object]) -> str:
        if self.skill is not None and CAPABILITY not in self.declared:
            raise CapabilityMissing(self.skill.name, CAPABILITY)
        self._test.prompts.append(asked.prompt)
        answer = _next(self.model, f"The skill asks the model {asked.prompt!r}", "model")
        text = msgspec.json.encode(answer).decode()
        try:
            check(text)
        except ValueError as error:
            raise ModelFailed("invalid", f"The answer does not fit the schema: {error}") from None
        return text

    def _child(self, task: str) -> ChildResult:
        skill, _ = self._test.started[int(task) - 1]
        outcome = self._children[skill]
        if isinstance(outcome, SkillError):
            return ChildResult(task, "completed", str(outcome), is_error=True, skill=skill)
        if isinstance(outcome, Exception):
            return ChildResult(task, "failed", reason=str(outcome), skill=skill)
        return ChildResult(task, "completed", outcome, skill=skill)

    def _check(self, capability: str, shown: str = "") -> None:
        if self.skill is not None and covers(self.declared, (capability,)) is not None:
            raise CapabilityMissing(self.skill.name, shown or capability)

    def log(self, level: LogLevel, text: str) -> None:
        """Nobody reads the log of a test."""

    async def _request(self, request: HttpRequest) -> HttpResponse:
        url = urlsplit(request.url)
        port = url.port or DEFAULT_PORTS.get(url.scheme, 0)
        host = url.hostname or ""
        declared = f"network:{host.replace(':', '%3A')}:{port}:{url.scheme}"
        self._check(declared, f"network:{url.scheme}://{host}:{port}")
        if request.credential:
            self._check(f"credential:{request.credential}")
        if request.credential and request.credential not in self._credentials:
            raise HostError(f"The credential {request.credential} is not set.")
        self._test.requests.append(request)
        if self._answer is not None:
            return await self._answer(request)
        answer = _next(self.http, f"The skill requests {request.url!r}", "http")
        if isinstance(answer, HttpResponse):
            return answer
        kind = (("content-type", "application/json"),)
        return HttpResponse(200, kind, msgspec.json.encode(answer))

    async def _read(self, wanted: ReadMemory) -> str | None:
        return self._test.memories.get(wanted.key)

    async def _write(self, wanted: WriteMemory) -> None:
        self._check("memory:write:skill")
        self._test.memories[wanted.key] = wanted.value

    async def _delete(self, wanted: DeleteMemory) -> None:
        self._check("memory:write:skill")
        self._test.memories.pop(wanted.key, None)

    async def _list(self, wanted: ListMemory) -> list[str]:
        return sorted(key for key in self._test.memories if key.startswith(wanted.prefix))

    async def _has_credential(self, wanted: HasCredential) -> bool:
        self._check(f"credential:{wanted.name}")
        return wanted.name in self._credentials

    async def _send(self, message: SendMessage) -> None:
        self._check(f"xmpp:{message.to}")
        self._test.sent.append((message.to, message.text))


def _next(script: list[object], what: str, where: str) -> object:
    if not script:
        raise AssertionError(f"{what}, and the test has no answer: add one to `{where}`.")
    answer = script.pop(0)
    if isinstance(answer, BaseException):
        raise answer
    return answer
