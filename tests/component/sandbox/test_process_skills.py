"""Skills of a module that is not trusted: what crosses to the child, and what a child costs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog

from component.sandbox.process_skills import ChildPool, ProcessSkills
from component.sandbox.profile import Limits, Profile
from component.skill_directories.host_functions import Functions
from component.skills import (
    CapabilityMissing,
    Context,
    InvalidParam,
    SkillFailed,
    SkillLoadError,
    SkillResult,
    SkillTimeout,
    SkillUnavailable,
    call,
)
from component.skills.calling import Threads
from component.skills.host import HostError, HostFunctions, HttpRequest, HttpResponse
from component.skills.operations import AskModel, PlainHost
from tests.component.sandbox import module_of_skills
from tests.component.sandbox.plain_functions import plain_functions
from tests.component.sandbox.running import Notes

pytestmark = pytest.mark.anyio

MODULE = module_of_skills.__file__
ANN, BEN = "ann@test", "ben@test"


class Service:
    """A service with children, and calls of its skills."""

    def __init__(self, children: ChildPool) -> None:
        self.children = children
        self.progress: list[tuple[float, str]] = []
        self.begun = anyio.Event()
        self.skills = self.of(MODULE)

    def of(
        self, module: str, functions: Functions = plain_functions, **limits: Any
    ) -> ProcessSkills:
        profile = Profile(limits=Limits(**limits))
        return ProcessSkills(self.children, profile, module, functions)

    async def report(self, fraction: float, text: str) -> None:
        self.progress.append((fraction, text))
        self.begun.set()

    def context(self, name: str, principal: str = ANN) -> Context:
        return Context(
            principal=principal,
            sender=f"{principal}/phone",
            skill=name,
            agent="helper",
            host=PlainHost(self.report),
        )

    async def call(
        self, name: str, principal: str = ANN, skills: ProcessSkills | None = None, **arguments: Any
    ) -> SkillResult:
        context = self.context(name, principal)
        return await (skills or self.skills).call(name, arguments, context)

    async def texts(self, name: str, principal: str = ANN, **more: Any) -> list[str]:
        return [output.text for output in (await self.call(name, principal, **more)).outputs]

    async def counted(self, principal: str = ANN) -> tuple[int, int]:
        (text,) = await self.texts("counted", principal)
        count, process = msgspec.json.decode(text)
        return count, process


@asynccontextmanager
async def service(**settings: Any) -> AsyncIterator[Service]:
    children = ChildPool(**settings)
    async with anyio.create_task_group() as group:
        await group.start(children.run)
        yield Service(children)
        group.cancel_scope.cancel()
    assert not len(children)


@pytest.fixture(scope="module")
async def children() -> AsyncIterator[ChildPool]:
    """Children that several tests call."""
    async with service() as one:
        yield one.children


@pytest.fixture
def one(children: ChildPool) -> Service:
    return Service(children)


async def test_describes_and_calls(one: Service) -> None:
    skills = {each.name: each for each in await one.skills.describe()}
    shout = skills["shout"]
    assert shout.description == "Return the text in capitals."
    assert shout.tags == ("text",)
    assert shout.timeout == 30
    assert shout.annotations.read_only
    assert shout.inputs.params[0].description == "What to say."
    assert shout.source == f"process:{MODULE}"
    share = Threads(1, 1).share(ANN)
    result = await call(shout, {"text": "hi"}, one.context("shout"), share)
    assert [output.text for output in result.outputs] == ["HI"]


async def test_a_child_is_kept_and_never_used_for_another_principal() -> None:
    async with service() as one:
        first = await one.counted(ANN)
        assert await one.counted(ANN) == (2, first[1])
        other = await one.counted(BEN)
        assert other[0] == 1
        assert other[1] != first[1]
        assert await one.counted(ANN) == (3, first[1])


async def test_errors_are_those_of_any_skill(one: Service) -> None:
    refused = await one.call("refuse")
    assert refused.is_error
    assert refused.outputs[0].text == "not today"
    with pytest.raises(InvalidParam, match="number: must be even"):
        await one.call("picky", number=3)
    with pytest.raises(InvalidParam, match="number: expected an integer"):
        await one.call("picky", number="x")
    with pytest.raises(SkillFailed):
        await one.call("broken")


async def test_what_a_skill_prints_goes_to_a_pipe_and_its_end_is_logged(one: Service) -> None:
    with structlog.testing.capture_logs() as logs:
        assert await one.texts("prints", lines=2000) == ["[true,true]"]
    (printed,) = [each["text"] for each in logs if each["event"] == "a skill prints"]
    assert len(printed) <= 4000
    assert printed.split() == ["1996", "1997", "1998", "1999"]


async def test_a_skill_that_prints_without_end_fails(one: Service) -> None:
    with pytest.raises(SkillUnavailable, match="prints more than 16,777,216 bytes"):
        await one.call("prints", lines=100_000)


@pytest.mark.ports
async def test_a_child_that_dies_costs_one_call() -> None:
    async with service() as one:
        await one.counted(BEN)
        with pytest.raises(SkillUnavailable, match="status 3") as failed:
            await one.call("dies")
        assert failed.value.begun
        assert await one.texts("shout", text="hi") == ["HI"]
        assert (await one.counted(BEN))[0] == 2


async def test_cancelling_reaches_the_skill_and_keeps_the_child() -> None:
    async with service(most=2, per_principal=1) as one:
        _, process = await one.counted()
        async with anyio.create_task_group() as group:
            group.start_soon(one.call, "waits")
            await one.begun.wait()
            group.cancel_scope.cancel()
        assert one.progress == [(0.5, "waiting")]
        # The only slot of this principal is free when the skill has ended.
        assert await one.counted() == (2, process)


async def test_a_deadline_ends_the_call(one: Service) -> None:
    (waits,) = [each for each in await one.skills.describe() if each.name == "waits"]
    share = Threads(1, 1).share(ANN)
    with pytest.raises(SkillTimeout):
        await call(waits, {}, one.context("waits"), share, timeout=0.5)


async def test_progress_outputs_and_the_caller_cross(one: Service) -> None:
    texts = await one.texts("reports")
    assert texts[0] == f"{ANN} helper {ANN}/phone"
    assert len(texts[1]) == 32
    assert one.progress == [(0.25, "begun")]
    with pytest.raises(SkillFailed):
        await one.call("waits", fraction=7.0)  # Context.progress refuses it


async def test_host_functions_are_those_that_are_declared(one: Service) -> None:
    async def http(request: HttpRequest) -> HttpResponse:
        if "down" in request.url:
            raise HostError("the host is down")
        if "other" in request.url:
            raise CapabilityMissing("asks", "network:other")
        return HttpResponse(200, body=f"{request.method} {request.credential}".encode())

    async def llm(wanted: AskModel) -> str:
        assert msgspec.json.decode(wanted.schema)["type"] == "object"
        return msgspec.json.encode({"a": wanted.prompt}).decode()

    def functions(context: Context) -> HostFunctions:
        plain, notes = plain_functions(context), Notes()
        notes.values.clear()
        handlers = {**plain.handlers, **notes.handlers, HttpRequest: http, AskModel: llm}
        return msgspec.structs.replace(plain, handlers=handlers)

    declared = one.of(MODULE, functions)
    assert await one.texts("asks", skills=declared, url="http://a") == ["200 GET token"]
    failed = await one.texts("asks", skills=declared, url="http://down")
    assert failed == ["failed: the host is down"]
    with pytest.raises(CapabilityMissing, match="network:other"):
        await one.call("asks", skills=declared, url="http://other")
    remembered = await one.texts("remembers", skills=declared, key="k", value="v")
    assert msgspec.json.decode(remembered[0]) == ["v", "k", "None"]
    assert await one.texts("asks_model", skills=declared) == ["How?"]
    with pytest.raises(CapabilityMissing, match="lacks the capability network"):
        await one.call("asks", url="http://a")
    with pytest.raises(CapabilityMissing, match="lacks the capability llm"):
        await one.call("asks_model")


async def test_the_working_directory_is_empty_at_each_call(one: Service) -> None:
    assert await one.texts("leaves") == ["[]"]
    assert await one.texts("leaves") == ["[]"]


async def test_children_are_bounded_and_idle_ones_make_place() -> None:
    async with service(most=1, per_principal=1) as one:
        for principal in (ANN, BEN):
            await one.counted(principal)
            assert len(one.children) == 1


async def test_calls_at_the_same_time_have_a_child_each() -> None:
    async with service(most=3, per_principal=2) as one:
        found: list[tuple[int, int]] = []

        async def count() -> None:
            found.append(await one.counted())

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(count)
        assert len(found) == 6
        assert len({process for _, process in found}) <= 2


async def test_an_idle_child_ends() -> None:
    async with service(idle_s=0.2) as one:
        await one.counted()
        with anyio.fail_after(120):
            while len(one.children):  # noqa: ASYNC110 - nobody is told of it
                await anyio.sleep(0.05)
        assert (await one.counted())[0] == 1


async def test_a_new_version_has_children_of_its_own() -> None:
    async with service() as one:
        _, process = await one.counted()
        newer = ProcessSkills(one.children, Profile(), MODULE, plain_functions, "2")
        await one.skills.close()
        (text,) = await one.texts("counted", skills=newer)
        assert msgspec.json.decode(text)[1] != process


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1", "declares no skills"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
        pytest.param("def f(:", "SyntaxError", marks=pytest.mark.thorough),
    ],
)
async def test_a_module_that_cannot_be_used_says_why(
    tmp_path: Path, one: Service, source: str, reason: str
) -> None:
    module = tmp_path / "module.py"
    module.write_text(source)
    with pytest.raises(SkillLoadError, match=reason):
        await one.of(str(module)).describe()


async def test_without_children_running_there_is_an_error() -> None:
    one = Service(ChildPool())
    with pytest.raises(SkillUnavailable) as failed:
        await one.call("shout", text="hi")
    assert not failed.value.begun
