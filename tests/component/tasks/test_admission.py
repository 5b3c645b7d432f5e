"""The executor: order of admission, repetitions by every name, and what leaves nothing behind."""

import gc
import inspect
import itertools
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import msgspec
import pytest

from component.policy import PeerRule, Policy
from component.skills import Skill, SkillError, skill
from component.store.database import Database
from component.tasks.replay import ReplayCache
from component.tasks.request import request_from
from tests.component.link.router.wire import AGENT
from tests.component.world import ALICE, BOB, NOW, World
from tests.waiting import eventually
from xep.binding import encode
from xep.disco import Feature, InfoQuery
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Accepted, Earlier, Execute, Param, Params, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
AT = JID.parse(AGENT)
Answer = Result | Accepted
Asking = Awaitable[Answer] | Answer


@skill(inline=True, destructive=True)
def erase(target: str = "") -> str:
    return "erased"


@skill(name="queued", queue="mail", read_only=True)
async def queued() -> str:
    return "sent"


async def done(asking: Asking) -> Answer:
    return await asking if inspect.isawaitable(asking) else asking


async def run(world: World, execute: Execute, id_: str = "1", from_: str = ALICE) -> Answer:
    who = JID.parse(from_)
    return await done(
        world.service.execute(
            request_from(execute, requester=who, principal=who.bare, target=AT, stanza_id=id_)
        )
    )


async def in_session(world: World, execute: Execute, session: str, from_: str = ALICE) -> Answer:
    who = JID.parse(from_)
    request = request_from(execute, requester=who, principal=who.bare, target=AT)
    request = msgspec.structs.replace(request, session=session, origin="command")
    return await done(world.service.execute(request))


async def refused(asking: Awaitable[Answer]) -> type[Any]:
    """The first application condition of the error."""
    with pytest.raises(StanzaError) as caught:
        await asking
    return type(caught.value.application[0])


class Counted:
    """A skill of a kind that says how often it has run, or fails each time in another way."""

    def __init__(self, kind: str = "inline", *, repeatable: bool = True, fails: bool = False):
        self.ran = 0

        def body() -> str:
            self.ran += 1
            if fails:
                raise ValueError(f"for the {self.ran}. time")
            return str(self.ran)

        marks: dict[str, Any] = {"read_only": True} if repeatable else {"destructive": False}
        if kind == "async":

            @skill(name="it", **marks)
            async def it(a: str = "", b: str = "", words: list[str] = []) -> str:  # noqa: B006
                return body()

        else:

            @skill(name="it", inline=kind == "inline", **marks)
            def it(a: str = "", b: str = "", words: list[str] = []) -> str:  # noqa: B006
                return body()

        self.skill: Skill = it


async def rows(world: World) -> list[int]:
    """The number of tasks, events, replay records, questions and steps."""

    def count(database: Database) -> list[int]:
        return [
            int(database.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
            for table in ("tasks", "events", "replay", "inputs", "journal")
        ]

    return await world.storage.read(count)


# -- the order of admission (RPL-001) ------------------------------------------------------------

CHANGES: dict[type[Any], dict[str, Any]] = {
    errors.Malformed: {"context": "no identifier"},
    errors.UnknownSkill: {"skill": "never-was"},
    errors.Conflict: {"thread": "of another request"},  # and the identifier of the first
    errors.HopsExceeded: {
        "delegation": Delegation(
            origin=JID.parse("carol@c.example"), max_hops=0, via=(JID.parse(ALICE).bare,)
        )
    },
    errors.UnknownTask: {"earlier": (Earlier(task="9f"),)},
    errors.ModeUnavailable: {"skill": "queued", "mode": "inline"},
    errors.DeadlineExpired: {"deadline": LONG_AGO},
    errors.InvalidParam: {"params": (Param(name="nosuch"),)},
    errors.ConfirmationUnavailable: {"skill": "erase"},
    errors.Retry: {},  # new work is not taken on
}
"""What makes a request fail at each step, in the order of the steps."""


@pytest.mark.parametrize("named", [True, False])
async def test_a_request_that_fails_at_several_steps_gets_the_error_of_the_first(
    named: bool,
) -> None:
    async def peer(_to: JID, _from: JID, /) -> InfoQuery:
        return InfoQuery(features=(Feature(var="urn:fluux:agent:0"),))

    world = World([Counted().skill, erase, queued], info=peer)
    world.policy = Policy(
        allowed_domains=["*"], peers=[PeerRule("elsewhere", "agent.elsewhere.example")]
    )
    # Without a name another content is another request.
    changes_of = {k: v for k, v in CHANGES.items() if named or k is not errors.Conflict}
    fresh = itertools.count(2)
    async with world.running():
        first = Execute(skill="it", request="first" if named else None)
        await run(world, first, "1")
        await run(world, Execute(skill="it", mode="async"), "task")
        # Who is no person is not known before the first request that needs one.
        accepted = await run(world, Execute(skill="erase"), "erase")
        assert isinstance(accepted, Accepted)
        assert (await world.ended(accepted.task)).state == "rejected"
        await _until_idle(world)
        before = await rows(world)
        told = len(world.told.sent)
        for one, other in itertools.combinations_with_replacement(changes_of, 2):
            # What is asked for first wins over a later step's change of the same field.
            changes = CHANGES[other] | CHANGES[one]
            number = str(1 if errors.Conflict in (one, other) else next(fresh))
            name = ("first" if number == "1" else f"r{number}") if named else None
            asked = msgspec.structs.replace(first, request=name, **changes)
            world.intake.paused = errors.Retry in (one, other)
            assert await refused(run(world, asked, number)) is one, (one, other)
        # Nothing of it has been left behind (RPL-003).
        assert (await rows(world), len(world.told.sent)) == (before, told)
        world.intake.paused = False
        assert isinstance(await run(world, first, "1"), Result)


@pytest.mark.parametrize("deadline", [NOW, NOW - timedelta(microseconds=1)])
@pytest.mark.parametrize("mode", ["auto", "inline", "async"])
async def test_a_deadline_is_reached_at_its_very_instant(mode: Any, deadline: datetime) -> None:
    counted = Counted()
    world = World([counted.skill], now=lambda: NOW)
    async with world.running():
        asked = Execute(skill="it", mode=mode, deadline=deadline)
        assert await refused(run(world, asked)) is errors.DeadlineExpired
    assert counted.ran == 0


async def test_before_that_instant_it_runs() -> None:
    world = World([Counted().skill], now=lambda: NOW)
    asked = Execute(skill="it", deadline=NOW + timedelta(microseconds=1))
    assert isinstance(await run(world, asked), Result)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        " ",
        "a b",
        "a/b",
        "ä",
        "a\n",
        "x" * 129,
        "session 1",
        "\N{FULLWIDTH LATIN SMALL LETTER A}",
    ],
)
async def test_what_is_no_identifier_is_malformed(bad: str) -> None:
    """COM-017, for each that a request can hold."""
    counted = Counted()
    world = World([counted.skill])
    good = "Az09._~-" + "x" * 120
    async with world.running():
        for asked in (
            Execute(skill="it", request=bad),
            Execute(skill="it", context=bad),
            Execute(skill="it", earlier=(Earlier(task=good), Earlier(task=bad))),
        ):
            assert await refused(run(world, asked)) is errors.Malformed
            assert await refused(in_session(world, asked, "s")) is errors.Malformed
        assert counted.ran == 0
        assert isinstance(await run(world, Execute(skill="it", request=good, context=good)), Result)


@pytest.mark.parametrize(
    ("confirm", "condition"), [("always", errors.ConfirmationUnavailable), ("never", None)]
)
async def test_who_has_to_wait_for_a_person_cannot_be_answered_inline(
    confirm: Any, condition: type[Any] | None
) -> None:
    """EXE-020; and where the policy says that a person need not be asked, nobody has to wait."""
    world = World([Counted().skill, erase], confirm=confirm)
    async with world.running():
        for number, name in enumerate(("it", "erase")):
            asking = run(world, Execute(skill=name, mode="inline"), str(number))
            if condition is None:
                assert isinstance(await asking, Result)
            else:
                assert await refused(asking) is condition
        assert (await rows(world))[0] == 0
    assert world.told.sent == []


# -- repetitions ---------------------------------------------------------------------------------

KINDS = [
    ("inline", True),
    ("thread", True),
    ("async", True),
    ("inline", False),
    ("thread", False),
    ("async", False),
]
each_name = pytest.mark.parametrize("request_", [None, "mine"])


IN_GATE = {
    ("inline", False, None),
    ("thread", True, "mine"),
    ("async", True, None),
    ("thread", False, "mine"),
}


@pytest.mark.parametrize(
    ("kind", "repeatable", "request_"),
    [
        pytest.param(*each, marks=() if each in IN_GATE else pytest.mark.thorough)
        for each in ((*kind, name) for kind in KINDS for name in (None, "mine"))
    ],
)
async def test_an_error_is_recorded_once_work_has_begun(
    kind: str, repeatable: bool, request_: str | None
) -> None:
    """RPL-013."""
    counted = Counted(kind, repeatable=repeatable, fails=True)
    world = World([counted.skill])
    async with world.running():
        for _ in range(3):
            assert await refused(run(world, Execute(skill="it", request=request_))) is (
                errors.Internal
            )
        assert counted.ran == 1
        other = Execute(skill="it", request=request_, thread="other")
        # Without a name another content is another request.
        expected = errors.Internal if request_ is None else errors.Conflict
        assert await refused(run(world, other)) is expected
        assert counted.ran == (2 if request_ is None else 1)


@pytest.mark.parametrize("length", [1, 10_000], ids=["small", "large"])
async def test_a_repetition_that_only_the_disk_remembers_is_answered_before_its_deadline_is_judged(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplayCache, "put", lambda *_: None)  # as after a restart
    counted, clock = Counted("async", repeatable=False), [NOW]
    world = World([counted.skill], now=lambda: clock[0])
    far = datetime(2100, 1, 1, tzinfo=UTC)
    params = (Param(name="a", text="x" * length),)
    execute = Execute(skill="it", request="named", deadline=far, params=params)
    async with world.running():
        first = await run(world, execute)
        clock[0] = far + timedelta(days=1)
        assert said(await run(world, execute)) == said(first)
        assert counted.ran == 1


@pytest.mark.parametrize("length", [1, 10_000], ids=["small", "large"])
async def test_a_repetition_in_memory_is_answered_before_its_deadline_is_judged(
    length: int,
) -> None:
    counted, clock = Counted(), [NOW]
    world = World([counted.skill], now=lambda: clock[0])
    params = (Param(name="a", text="x" * length),)
    execute = Execute(skill="it", deadline=NOW + timedelta(seconds=1), params=params)
    async with world.running():
        first = await run(world, execute)
        clock[0] = NOW + timedelta(seconds=2)
        assert said(await run(world, execute)) == said(first)
        assert counted.ran == 1


@pytest.mark.parametrize("length", [1, 10_000], ids=["small", "large"])
async def test_a_conflict_that_only_the_disk_remembers_is_found_before_the_deadline_is_judged(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request would run without a record of its own."""

    @skill(inline=True, read_only=True)
    def look(a: str) -> str:
        return a

    monkeypatch.setattr(ReplayCache, "put", lambda *_: None)  # as after a restart
    world = World([Counted("async", repeatable=False).skill, look])
    params = (Param(name="a", text="x" * length),)
    async with world.running():
        await run(world, Execute(skill="it", request="named"))
        other = Execute(skill="look", request="named", deadline=LONG_AGO, params=params)
        assert await refused(run(world, other)) is errors.Conflict


async def test_what_was_refused_may_be_mended_under_the_same_identifier() -> None:
    world = World([Counted().skill])
    async with world.running():
        for request in (None, "mine"):
            bad = Execute(skill="it", request=request, params=(Param(name="nosuch"),))
            assert await refused(run(world, bad)) is errors.InvalidParam
            assert isinstance(await run(world, Execute(skill="it", request=request)), Result)


def _json(text: str) -> Params:
    return Params(json=msgspec.Raw(text.encode()))


def _texts(*pairs: tuple[str, str]) -> tuple[Param, ...]:
    return tuple(Param(name=name, text=text) for name, text in pairs)


DEADLINE = datetime(2100, 1, 1, tzinfo=UTC)
SAME: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (
        {"params": _texts(("a", "1"), ("words", "x"), ("words", "y"))},
        {"params": _texts(("words", "x"), ("words", "y"), ("a", "1"))},
    ),
    (
        {"json_params": _json('{"a": "1", "b": "2"}')},
        {"json_params": _json('{"b":"\\u0032",\n"a":"1"}')},
    ),
    ({"deadline": DEADLINE}, {"deadline": DEADLINE.astimezone(timezone(timedelta(hours=5)))}),
)
OTHER: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (
        {"params": _texts(("words", "x"), ("words", "y"))},
        {"params": _texts(("words", "y"), ("words", "x"))},
    ),
    ({"params": _texts(("a", "1"))}, {"json_params": _json('{"a": "1"}')}),
    ({"params": _texts(("a", "1"))}, {"params": _texts(("a", "1 "))}),
    ({}, {"mode": "inline"}),
    ({}, {"mode": "async"}),
    ({}, {"priority": "high"}),
    ({}, {"context": "c"}),
    ({}, {"thread": "t"}),
    ({}, {"earlier": (Earlier(task="9f"),)}),
    ({"deadline": DEADLINE}, {"deadline": DEADLINE + timedelta(microseconds=1)}),
    ({}, {"skill": "erase"}),
)


@each_name
@pytest.mark.parametrize("kind", ["inline", "async"])
async def test_the_same_content_in_other_words_is_the_same_request(
    kind: str, request_: str | None
) -> None:
    counted = Counted(kind)
    world = World([counted.skill])
    async with world.running():
        for number, (first, again) in enumerate(SAME):
            name = None if request_ is None else f"{request_}{number}"
            answers = [
                await run(world, Execute(skill="it", request=name, **how), str(number))
                for how in (first, again)
            ]
            assert answers[0] == answers[1]
        assert counted.ran == len(SAME)


@pytest.mark.parametrize("kind", ["inline", "async"])
@pytest.mark.parametrize("turned", [False, True])
async def test_other_content_under_a_name_is_a_conflict_whichever_came_first(
    kind: str, turned: bool
) -> None:
    """Also where the one is answered at once and the other is durable work."""
    counted = Counted(kind)
    world = World([counted.skill, erase])
    async with world.running():
        for number, pair in enumerate(OTHER):
            one, other = reversed(pair) if turned else pair
            if "earlier" in one:
                continue  # which is refused, and leaves nothing
            name = f"mine{number}"
            executes = [Execute(**({"skill": "it", "request": name} | how)) for how in (one, other)]
            await run(world, executes[0], str(number))
            ran = counted.ran
            assert await refused(run(world, executes[1], str(number))) is errors.Conflict, number
            if executes[0].mode != "async":
                assert counted.ran == ran


@pytest.mark.parametrize("kind", ["inline", "async"])
@pytest.mark.parametrize("turned", [False, True])
async def test_other_content_under_the_id_of_an_iq_is_other_work(kind: str, turned: bool) -> None:
    """RPL-006: a client that counts from 1 after each login gets no answer of yesterday."""
    counted = Counted(kind)
    world = World([counted.skill, erase])
    async with world.running():
        for number, pair in enumerate(OTHER):
            executes = [
                Execute(**({"skill": "it"} | how))
                for how in (reversed(pair) if turned else pair)
                if "earlier" not in how
            ]
            answers = [await run(world, each, str(number)) for each in executes]
            assert len(set(map(encode, answers))) == len(executes), number
            # And each of them is recognised again.
            assert [await run(world, each, str(number)) for each in executes] == answers, number


@pytest.mark.parametrize("kind", ["inline", "thread", "async"])
@pytest.mark.parametrize("repeatable", [True, False])
async def test_different_requests_with_one_id_at_the_same_time_are_both_executed(
    kind: str, repeatable: bool
) -> None:
    counted = Counted(kind, repeatable=repeatable)
    world = World([counted.skill])
    answers: list[Answer] = []
    async with world.running():

        async def ask(thread: str) -> None:
            answers.append(await run(world, Execute(skill="it", thread=thread)))

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, f"t{number % 4}")
    assert counted.ran == 4
    assert len(set(map(encode, answers))) == 4


@pytest.mark.parametrize(("kind", "repeatable"), KINDS)
async def test_after_a_minute_the_same_iq_is_new_work(kind: str, repeatable: bool) -> None:
    """RPL-006, by the clock of the answers in memory and by that of the records on disk."""
    passed = 0.0
    counted = Counted(kind, repeatable=repeatable)
    world = World([counted.skill], cache_clock=lambda: passed)
    named = Execute(skill="it", request="mine", thread="named")
    async with world.running():
        for expected in ("1", "1"):
            assert said(await run(world, Execute(skill="it"))) == expected
        assert said(await run(world, named)) == "2"
        passed = 59.0
        assert said(await run(world, Execute(skill="it"))) == "1"
        passed = 60.0
        await world.storage.write(
            lambda db: db.execute("UPDATE replay SET expires = expires - 60000")
        )
        assert said(await run(world, Execute(skill="it"))) == "3"
        assert said(await run(world, Execute(skill="it"))) == "3"
        assert said(await run(world, named)) == "2"


@pytest.mark.parametrize("asked", [{}, {"request": "mine"}, {"earlier": (Earlier(task="none"),)}])
async def test_a_request_that_ends_before_it_waits_leaves_nothing_behind(
    asked: dict[str, Any],
) -> None:
    counted = Counted("async")
    world = World([counted.skill])
    requester = JID.parse(ALICE)
    request = request_from(
        Execute(skill="it", mode="async", **asked),
        requester=requester,
        principal=requester.bare,
        target=AT,
        stanza_id="1",
    )
    async with world.running():
        await run(world, Execute(skill="it", mode="async"), "before")  # there may be records
        await _until_idle(world)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                waiting = world.service.execute(request)
                assert isinstance(waiting, Coroutine)
                waiting.close()
                gc.collect()
        assert [str(warning.message) for warning in seen] == []
        if "earlier" not in asked:
            assert isinstance(await done(world.service.execute(request)), Accepted)


def said(answer: Answer) -> str:
    assert isinstance(answer, Result)
    return answer.outputs[0].text


async def test_each_caller_and_each_address_has_its_own_identifiers() -> None:
    counted = Counted()
    world = World([counted.skill])
    async with world.running():
        asked = Execute(skill="it", request="mine")
        await run(world, asked, "1")
        await run(world, asked, "2", "alice@a.example/tablet")  # any resource (RPL-005)
        assert counted.ran == 1
        await run(world, asked, "1", BOB)
        assert counted.ran == 2
        # Without a name of its own it is the very stream that counts (RPL-006).
        for from_ in (ALICE, "alice@a.example/tablet", BOB):
            await run(world, Execute(skill="it"), "1", from_)
        assert counted.ran == 5


@pytest.mark.parametrize("kind", ["inline", "async"])
@pytest.mark.parametrize("repeatable", [True, False])
async def test_repetitions_at_the_same_time_run_once(kind: str, repeatable: bool) -> None:
    counted = Counted(kind, repeatable=repeatable)
    world = World([counted.skill])
    answers: list[Answer] = []
    async with world.running():
        # There may be records on disk, so each of them looks there first.
        await run(world, Execute(skill="it", mode="async"), "before")
        await _until_idle(world)
        before = counted.ran

        async def ask() -> None:
            answers.append(await run(world, Execute(skill="it", request="mine")))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask)
    assert counted.ran == before + 1
    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)


async def _until_idle(world: World) -> None:
    await eventually(lambda: any("state='completed'" in sent for sent in world.told.sent))


async def test_a_session_and_a_name_of_the_callers_never_meet() -> None:
    """FAC-006."""
    counted = Counted()
    world = World([counted.skill])
    async with world.running():
        await in_session(world, Execute(skill="it"), "s1")
        await in_session(world, Execute(skill="it"), "s1")
        assert counted.ran == 1
        other = Execute(skill="it", thread="other")
        assert await refused(in_session(world, other, "s1")) is errors.Conflict
        await in_session(world, other, "s2")
        # By the same letters as a name, and as the id of an IQ, it is another request.
        await run(world, Execute(skill="it", request="s1", context="c"), "s1")
        await run(world, Execute(skill="it", context="d"), "s1")
        assert counted.ran == 4
        # And what would be the same key is no identifier.
        trick = Execute(skill="it", request="session s1")
        assert await refused(run(world, trick)) is errors.Malformed


# -- paused --------------------------------------------------------------------------------------


async def test_while_it_is_paused_nothing_new_runs_and_what_was_done_is_answered() -> None:
    counted = Counted()
    world = World([counted.skill], admins=["bob@b.example"])
    requests: list[Callable[..., Awaitable[Answer]]] = [
        lambda tag, who: run(world, Execute(skill="it"), tag, who),
        lambda tag, who: run(world, Execute(skill="it", request=tag), tag, who),
        lambda tag, who: run(world, Execute(skill="it", mode="async"), f"{tag}-task", who),
        lambda tag, who: in_session(world, Execute(skill="it"), tag, who),
    ]
    async with world.running():
        answers = [await ask("before", ALICE) for ask in requests]
        await _until_idle(world)
        world.intake.paused = True
        ran, before = counted.ran, await rows(world)
        for ask, answer in zip(requests, answers, strict=True):
            assert await refused(ask("new", ALICE)) is errors.Retry
            assert await ask("before", ALICE) == answer
        assert (counted.ran, await rows(world)) == (ran, before)
        for ask in requests:
            await ask("new", BOB)
        world.intake.paused = False
        for ask in requests:
            await ask("new", ALICE)


async def test_an_answer_that_says_no_is_an_answer_of_its_own() -> None:
    @skill(read_only=True, inline=True)
    def no() -> None:
        raise SkillError("not today")

    world = World([no])
    first = await run(world, Execute(skill="no"))
    assert isinstance(first, Result)
    assert first.is_error
    assert await run(world, Execute(skill="no")) is first


# -- large parameters ----------------------------------------------------------------------------


async def test_what_is_too_large_to_be_shown_to_a_person_is_not_asked_about() -> None:
    world = World([erase])
    async with world.running():
        fits = Execute(skill="erase", params=(Param(name="target", text="x" * 10_000),))
        assert isinstance(await run(world, fits, "1"), Accepted)

        async def asked() -> bool:
            _, events, _, questions, _ = await rows(world)
            return events == questions == 1

        await eventually(asked)
        before = await rows(world)
        large = Execute(skill="erase", params=(Param(name="target", text="x" * 20_000),))
        with pytest.raises(StanzaError) as caught:
            await run(world, large, "2")
        assert caught.value.condition == "policy-violation"
        assert "at most 16384 bytes" in caught.value.text
        assert await rows(world) == before


async def test_a_request_with_large_json_is_compared_without_rfc_8785(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pure Python takes 70 milliseconds for a stanza of JSON, in which nobody is served."""
    monkeypatch.setitem(sys.modules, "rfc8785", None)
    counted = Counted("async")
    world = World([counted.skill])
    async with world.running():
        for text in (
            rb'{"a": "\n", "words": ["x", "\u0041"]}',
            rb'{"words":["x","A"],"a":"\u000a"}',
        ):
            json = Params(json=msgspec.Raw(text))
            answer = await run(world, Execute(skill="it", request="r", json_params=json))
            assert isinstance(answer, Result)
            assert answer.outputs[0].text == "1"
