"""Running skills: what a call returns, and each way it can end badly."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
import pytest

from component.skills import (
    Context,
    InvalidParam,
    Output,
    Skill,
    SkillError,
    SkillFailed,
    SkillResult,
    SkillTimeout,
    call,
    call_inline,
    prepare,
    skill,
)
from component.skills.calling import Threads, ThreadShare, _Job
from component.skills.operations import PlainHost
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.anyio


def context_of(name: str, reports: list[tuple[float, str]] | None = None) -> Context:
    async def report(fraction: float, text: str) -> None:
        assert reports is not None
        reports.append((fraction, text))

    return Context(
        principal="ann@a.example", sender="ann@a.example/x", skill=name, host=PlainHost(report)
    )


async def run(
    made: Skill,
    *texts: tuple[str, str],
    share: ThreadShare | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
    context: Context | None = None,
) -> SkillResult:
    return await call(
        made,
        prepare(made, texts),
        context or context_of(made.name),
        share or Threads(4, 4).share("ann"),
        timeout=timeout,
    )


def returning(value: Any) -> Skill:
    @skill(inline=True)
    def give() -> Any:
        return value

    return give


class Pair(msgspec.Struct):
    a: int
    b: str


@pytest.mark.parametrize(
    ("value", "outputs"),
    [
        ("text", (Output("text", "text/plain"),)),
        ("", (Output("", "text/plain"),)),
        (None, ()),
        (7, (Output("7", "application/json"),)),
        (True, (Output("true", "application/json"),)),
        ([], (Output("[]", "application/json"),)),
        ({"é": [1.5]}, (Output('{"é":[1.5]}', "application/json"),)),
        (Pair(1, "b"), (Output('{"a":1,"b":"b"}', "application/json"),)),
        (Output("<p/>", "text/html", "page"), (Output("<p/>", "text/html", "page"),)),
        ((Output("1"), Output("2", name="b")), (Output("1"), Output("2", name="b"))),
        ([Output("1")], (Output("1"),)),
        (SkillResult((Output("1"),)), (Output("1"),)),
    ],
)
def test_what_is_returned_becomes_outputs(value: Any, outputs: tuple[Output, ...]) -> None:
    made = returning(value)
    result = call_inline(made, prepare(made))
    assert result.outputs == outputs
    assert not result.is_error
    assert result.duration > 0


def _nested() -> list[Any]:
    top: list[Any] = []
    for _ in range(100_000):
        top = [top]
    return top


@pytest.mark.parametrize(
    "value",
    [b"1", bytearray(b"1"), object(), {1 + 2j}, _nested()],
    ids=["bytes", "bytearray", "object", "complex", "deep"],
)
def test_what_no_reply_can_carry_is_the_skills_failure(value: Any) -> None:
    made = returning(value)
    with pytest.raises(SkillFailed):
        call_inline(made, prepare(made))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x01b", "a\ufffdb"),
        ("a\ud800b", "a\ufffdb"),
        (["a\x01", "\ufffe"], '["a\\u0001","\\ufffe"]'),
        ({"k\ud800": ("\udfff", 1, float("nan"))}, '{"k\ufffd":["\ufffd",1,null]}'),
        (Output("\x0b", name="\x1f"), "\ufffd"),
        ((Output("\uffff", "application/ld+json"),), "\\uffff"),
        (SkillResult((Output("\ud800"),)), "\ufffd"),
    ],
)
def test_outputs_replace_or_escape_characters_that_xml_forbids(value: Any, text: str) -> None:
    made = returning(value)
    (output,) = call_inline(made, prepare(made)).outputs
    assert output.text == text
    assert output.name in (None, "\ufffd")


def test_a_refusal_is_made_fit_too() -> None:
    made = raising(SkillError("no\x00"), "inline")
    (output,) = call_inline(made, prepare(made)).outputs
    assert output.text == "no\ufffd"


def test_a_result_may_say_no_itself() -> None:
    made = returning(SkillResult((Output("no"),), is_error=True))
    assert call_inline(made, prepare(made)).is_error


def raising(error: BaseException, kind: str) -> Skill:
    def plain() -> str:
        raise error

    async def later() -> str:
        await anyio.lowlevel.checkpoint()
        raise error

    if kind == "async":
        return skill(name="raising")(later)
    return skill(name="raising", inline=kind == "inline")(plain)


kinds = pytest.mark.parametrize("kind", ["inline", "thread", "async"])


@kinds
async def test_a_skill_error_becomes_a_result_marked_as_an_error(kind: str) -> None:
    result = await run(raising(SkillError("not today"), kind))
    assert result.is_error
    assert result.outputs == (Output("not today"),)


@kinds
@pytest.mark.parametrize(
    "error",
    [ValueError("secret"), TimeoutError(), SystemExit(3), ExceptionGroup("g", [KeyError()])],
)
async def test_a_skill_that_breaks_tells_the_log_and_not_the_caller(
    kind: str, error: BaseException
) -> None:
    with pytest.raises(SkillFailed) as caught:
        await run(raising(error, kind))
    assert "secret" not in str(caught.value)
    assert "raising" in str(caught.value)
    assert caught.value.__cause__ is error


@kinds
async def test_a_skill_may_refuse_a_parameter_itself(kind: str) -> None:
    with pytest.raises(InvalidParam, match="zone: unheard of"):
        await run(raising(InvalidParam("zone", "unheard of"), kind))


async def test_each_kind_runs_where_it_should() -> None:
    here = threading.get_ident()

    @skill(inline=True)
    def inline() -> bool:
        return threading.get_ident() == here

    @skill
    def plain() -> bool:
        return threading.get_ident() == here

    @skill
    async def later() -> bool:
        await anyio.lowlevel.checkpoint()
        return threading.get_ident() == here

    answers = [(await run(made)).outputs[0].text for made in (inline, plain, later)]
    assert answers == ["true", "false", "true"]


async def test_arguments_reach_the_parameters_they_are_named_for() -> None:
    @skill(inline=True)
    def f(a: int, b: str = "b", *, c: bool = True) -> str:
        return f"{a} {b} {c}"

    @skill(inline=True)
    def g(a: int, who: Context, b: str = "b") -> str:
        return f"{a} {who.principal} {who.sender} {who.skill} {b}"

    assert (await run(f, ("c", "0"), ("a", "1"))).outputs[0].text == "1 b False"
    assert (await run(g, ("a", "1"))).outputs[0].text == ("1 ann@a.example ann@a.example/x g b")


def test_an_inline_skill_that_wants_a_context_is_not_run_without() -> None:
    @skill(inline=True)
    def who(context: Context) -> str:
        return context.principal

    with pytest.raises(SkillFailed):
        call_inline(who, prepare(who))


async def test_progress_is_reported_from_coroutines_and_threads() -> None:
    @skill
    async def later(context: Context) -> None:
        await context.progress(0.5, "half")

    @skill
    def plain(context: Context) -> None:
        anyio.from_thread.run(context.progress, 1, "done")

    reports: list[tuple[float, str]] = []
    await run(later, context=context_of("later", reports))
    await run(plain, context=context_of("plain", reports))
    assert reports == [(0.5, "half"), (1, "done")]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
async def test_progress_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        await context_of("x").progress(fraction)


async def test_progress_nobody_listens_to_is_no_error() -> None:
    quiet = Context(principal="a@b", sender="a@b/c", skill="x")
    await quiet.progress(1)
    assert quiet.remaining() is None


async def test_the_skill_knows_how_long_it_has() -> None:
    @skill(timeout=50)
    async def ask(context: Context) -> float | None:
        return context.remaining()

    assert 0 < float((await run(ask)).outputs[0].text) <= 50
    assert 0 < float((await run(ask, timeout=20)).outputs[0].text) <= 20
    assert 20 < float((await run(ask, timeout=90)).outputs[0].text) <= 50


async def test_a_coroutine_that_takes_too_long_is_stopped() -> None:
    stopped = anyio.Event()

    @skill(timeout=0.01)
    async def stay() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    with pytest.raises(SkillTimeout, match=r"stay did not finish within 0\.01 seconds") as caught:
        await run(stay)
    assert stopped.is_set()
    assert caught.value.seconds == 0.01


async def test_a_thread_given_up_keeps_its_place_until_it_ends() -> None:
    gate = threading.Event()

    @skill
    def stay() -> None:
        gate.wait(10)

    @skill
    def quick() -> str:
        return "ran"

    share = Threads(1, 1).share("ann")
    try:
        with pytest.raises(SkillTimeout):
            await run(stay, share=share, timeout=0.5)
        with pytest.raises(SkillTimeout):
            await run(quick, share=share, timeout=0.01)
    finally:
        gate.set()
    assert (await run(quick, share=share)).outputs[0].text == "ran"
    with anyio.fail_after(LIMIT_S):
        await share.acquire()


async def test_cancelled_before_it_began_nothing_runs_and_no_place_is_lost() -> None:
    ran: list[int] = []

    @skill
    def note() -> None:
        ran.append(1)

    share = Threads(1, 1).share("ann")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run(note, share=share)
    assert scope.cancelled_caught
    with anyio.fail_after(LIMIT_S):
        await share.acquire()
    assert not ran


async def test_work_given_up_while_it_waits_for_its_thread_is_not_begun() -> None:
    ran: list[int] = []
    share = Threads(1, 1).share("ann")
    job = _Job(lambda: ran.append(1), share)
    await share.acquire()
    job.leave()
    assert job.run() is None
    assert not ran
    with anyio.fail_after(LIMIT_S):
        await share.acquire()


def test_a_shorter_time_is_never_made_longer() -> None:
    context = context_of("x")
    context.shorten(20)
    context.shorten(90)
    remaining = context.remaining()
    assert remaining is not None
    assert remaining <= 20


async def test_cancelling_the_caller_is_not_a_time_out() -> None:
    @skill
    async def stay() -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.01) as scope:
        await run(stay)
    assert scope.cancelled_caught
