"""Execution: a skill by name, its parameters, its result, and every way it can fail."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from xml.etree import ElementTree as ET

import anyio
import msgspec
import pytest

from component.policy import Rule
from component.skills import (
    Context,
    InvalidParam,
    Output,
    Skill,
    SkillError,
    SkillResult,
    skill,
)
from component.store import StorageError
from component.store.database import Database
from tests.component.link.router.wire import AGENT, condition, error_of, iq, until
from tests.component.world import ALICE, BOB, NOW, World, all_skills, result, xml
from xep.disco import Feature, InfoQuery
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Earlier, Execute, Param, Params, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

WORLD = World(all_skills())
LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def execute(skill: str, json: Any = None, **texts: str | list[str]) -> Execute:
    """Texts by name; ``json`` is what goes in as JSON."""
    params = [
        Param(name=name, text=text)
        for name, given in texts.items()
        for text in ([given] if isinstance(given, str) else given)
    ]
    raw = None if json is None else Params(json=msgspec.Raw(msgspec.json.encode(json)))
    return Execute(skill=skill, params=tuple(params), json_params=raw)


def run(asked: Execute, world: World = WORLD, from_: str = ALICE) -> Result:
    """The result of an inline skill."""
    return result(Result, world.ask(asked, type_="set", from_=from_))


def refused(asked: Execute | str, world: World = WORLD) -> StanzaError:
    """The error with which an execution is refused at once."""
    return error_of(world.ask(asked, type_="set"))


def output(answer: Result) -> tuple[str, str]:
    (only,) = answer.outputs
    return only.type, only.text


async def finished(world: World, asked: Execute, from_: str = ALICE) -> Result:
    async with world.running():
        return result(Result, await world.asked(asked, from_=from_))


async def failed(world: World, asked: Execute) -> StanzaError:
    async with world.running():
        return error_of(await world.asked(asked))


# -- results -------------------------------------------------------------------------------------


def test_an_inline_skill_is_answered_at_once() -> None:
    answer = run(execute("echo", text="  verbatim\n<&> "))
    assert (answer.skill, answer.is_error) == ("echo", False)
    assert output(answer) == ("text/plain", "  verbatim\n<&> ")
    assert answer.usage is not None
    assert answer.usage.duration_ms is not None


@pytest.mark.parametrize("mode", ["auto", "inline"])
def test_both_modes_that_answer_in_place_are_served(mode: Any) -> None:
    asked = msgspec.structs.replace(execute("echo", text="x"), mode=mode)
    assert output(run(asked)) == ("text/plain", "x")


def test_the_draft_is_accepted_as_it_was_printed() -> None:
    printed = (
        "<execute xmlns='urn:fluux:agent:0#execute' skill='echo'><param name='text'>Bonjour</param>"
        "</execute>"
    )
    assert output(result(Result, WORLD.ask(printed, type_="set"))) == ("text/plain", "Bonjour")


def test_texts_are_converted_by_the_schema() -> None:
    assert output(run(execute("conformance.add", a=" 2 ", b="-5"))) == ("application/json", "-3")
    answer = run(
        execute(
            "conformance.types",
            {"point": {"x": 1, "y": 2}},
            colour="green",
            flag="1",
            ratio="1e3",
            words=["one", "two"],
        )
    )
    assert msgspec.json.decode(output(answer)[1]) == {
        "colour": "green",
        "flag": True,
        "ratio": 1000.0,
        "words": ["one", "two"],
        "note": None,
        "point": {"x": 1, "y": 2},
    }


def test_parameters_can_all_be_json() -> None:
    assert output(run(execute("conformance.add", {"a": 2, "b": 3}))) == ("application/json", "5")


def test_outputs_have_names_and_types() -> None:
    @skill(inline=True, read_only=True)
    def several() -> SkillResult:
        return SkillResult(
            (Output("one"), Output("{}", "application/json"), Output("three", name="last"))
        )

    answer = run(execute("several"), World([several]))
    assert [(o.name, o.type, o.text) for o in answer.outputs] == [
        ("output", "text/plain", "one"),
        ("output-2", "application/json", "{}"),
        ("last", "text/plain", "three"),
    ]


def test_a_skill_may_give_nothing() -> None:
    @skill(inline=True, read_only=True)
    def nothing() -> None:
        pass

    assert run(execute("nothing"), World([nothing])).outputs == ()


def test_a_skill_that_says_no_has_run() -> None:
    answer = run(execute("conformance.fail", message="not today"))
    assert answer.is_error
    assert output(answer) == ("text/plain", "not today")


def _plain(body: Callable[[], Any]) -> Skill:
    @skill(name="it", read_only=True)
    def it() -> Any:
        return body()

    return it


def _async(body: Callable[[], Any]) -> Skill:
    @skill(name="it", read_only=True)
    async def it() -> Any:
        await anyio.lowlevel.checkpoint()
        return body()

    return it


def _inline(body: Callable[[], Any]) -> Skill:
    @skill(name="it", read_only=True, inline=True)
    def it() -> Any:
        return body()

    return it


each_kind = pytest.mark.parametrize("kind", [_plain, _async, _inline])
Kind = Callable[[Callable[[], Any]], Skill]


@each_kind
async def test_every_kind_of_skill_runs(kind: Kind) -> None:
    answer = await finished(World([kind(lambda: {"a": 1})]), execute("it"))
    assert (answer.is_error, output(answer)) == (False, ("application/json", '{"a":1}'))


@each_kind
async def test_every_kind_of_skill_may_say_no(kind: Kind) -> None:
    def no() -> None:
        raise SkillError("no")

    answer = await finished(World([kind(no)]), execute("it"))
    assert (answer.is_error, output(answer)) == (True, ("text/plain", "no"))


@each_kind
@pytest.mark.parametrize(
    "what", [ValueError("secret"), SystemExit("secret"), StanzaError("gone", "secret"), object()]
)
async def test_a_skill_that_breaks_says_nothing_of_how(kind: Kind, what: object) -> None:
    def breaks() -> object:
        if isinstance(what, BaseException):
            raise what
        return what  # which no reply can carry

    world = World([kind(breaks)])
    error = await failed(world, execute("it"))
    assert (error.condition, error.type) == ("internal-server-error", "cancel")
    assert error.application == (errors.Internal(),)
    assert "secret" not in world.bench.output.sent[0]
    assert "Traceback" not in world.bench.output.sent[0]


@each_kind
@pytest.mark.parametrize("bad", ["\x00", "\x01", "\ud800", "\ufffe"])
async def test_what_xml_cannot_carry_is_replaced_in_a_result(kind: Kind, bad: str) -> None:
    answer = await finished(World([kind(lambda: f"a{bad}b")]), execute("it"))
    assert output(answer) == ("text/plain", "a\ufffdb")


def test_a_control_character_that_came_as_json_goes_back_as_the_replacement_character() -> None:
    assert output(run(execute("echo", {"text": "a\x01b"}))) == ("text/plain", "a\ufffdb")


@each_kind
async def test_a_result_too_big_is_refused(kind: Kind) -> None:
    world = World([kind(lambda: "é" * 600)], max_stanza_bytes=1_000)
    error = await failed(world, execute("it"))
    assert error.condition == "policy-violation"
    assert error.application == (errors.TooBig(limit=1_000),)


async def test_a_plain_skill_runs_in_a_thread_and_gives_it_back() -> None:
    threads: list[int] = []
    world = World([_plain(lambda: threads.append(threading.get_ident()))])
    async with world.running():
        for _ in range(10):  # more than there are threads
            await world.asked(execute("it"))
    assert len(threads) == 10
    assert threading.get_ident() not in threads


async def test_slow_skills_of_one_leave_threads_for_the_others() -> None:
    begun: list[str] = []
    go = threading.Event()

    @skill(read_only=True)
    def slow(context: Context) -> None:
        begun.append(context.principal)
        if context.principal == "alice@a.example":
            go.wait(60)

    world = World([slow])
    async with world.running():
        for n in range(20):
            world.bench.receive(
                iq(xml(execute("slow")), type_="set", id_=str(n), from_=ALICE, to=AGENT)
            )
        world.bench.receive(iq(xml(execute("slow")), type_="set", id_="bob", from_=BOB, to=AGENT))
        try:
            await until(lambda: world.bench.output.sent)
            assert world.bench.replies[0].get("id") == "bob"
        finally:
            go.set()
        await world.bench.settled()
    assert begun.count("alice@a.example") == 20
    assert len(world.bench.output.sent) == 21


@pytest.mark.parametrize("kind", ["inline", "thread", "async"])
async def test_a_skill_that_wants_to_know_is_told_who_asks(kind: str) -> None:
    if kind == "async":

        @skill(name="who", read_only=True)
        async def who_async(context: Context) -> list[str]:
            return [context.principal, context.sender, context.skill]

        chosen: Skill = who_async
    else:

        @skill(name="who", read_only=True, inline=kind == "inline")
        def who(context: Context) -> list[str]:
            return [context.principal, context.sender, context.skill]

        chosen = who
    answer = await finished(World([chosen]), execute("who"), from_=BOB)
    assert msgspec.json.decode(output(answer)[1]) == ["bob@b.example", BOB, "who"]


# -- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "name", "reason"),
    [
        (execute("conformance.add", a="x", b="1"), "a", "a: expected an integer"),
        (execute("conformance.add", a="1"), "b", "b: is required"),
        (execute("conformance.add", a="1", b="1", c="1"), "c", "c: no such parameter"),
        (execute("conformance.add", a=["1", "2"], b="1"), "a", "a: was given more than once"),
        (
            execute("conformance.add", {"a": 1}, a="1", b="1"),
            "a",
            "a: was given both as text and in JSON",
        ),
        (execute("conformance.add", {"a": 1, "b": 1.5}), "b", "b: expected an integer"),
        (
            execute("conformance.types", {"point": {"x": 1}}, colour="red", flag="1", ratio="1"),
            "point",
            "point.y: is required",
        ),
        (execute("conformance.add", {"a\0": 1}), "a\N{REPLACEMENT CHARACTER}", None),
        (execute("time", zone="Nowhere"), "zone", None),
    ],
)
def test_what_does_not_fit_is_named(asked: Execute, name: str, reason: str | None) -> None:
    error = refused(asked)
    assert (error.condition, error.type) == ("bad-request", "modify")
    assert error.application == (errors.InvalidParam(name=name),)
    if reason is not None:
        assert error.text.startswith(reason)


@pytest.mark.parametrize("json", ["[1]", "7", '"a"', "null"])
def test_json_must_be_an_object(json: str) -> None:
    asked = Execute(skill="conformance.add", json_params=Params(json=msgspec.Raw(json.encode())))
    error = refused(asked)
    assert (error.condition, error.application) == ("bad-request", (errors.Malformed(),))


@pytest.mark.parametrize(
    "inside",
    [
        "<params type='application/json'>{</params>",
        "<params type='application/json'/>",
        "<params type='text/plain'>{}</params>",
        "<params type='application/json'>" + "[" * 20_000 + "</params>",
        "<params>{}</params><params>{}</params>",
        "<param>1</param>",
    ],
)
def test_what_cannot_be_read_is_malformed(inside: str) -> None:
    xml = f"<execute xmlns='urn:fluux:agent:0#execute' skill='echo'>{inside}</execute>"
    error = refused(xml)
    assert (error.condition, error.application) == ("bad-request", (errors.Malformed(),))


async def test_a_skill_may_refuse_a_parameter_itself_wherever_it_runs() -> None:
    def refuses() -> None:
        raise InvalidParam("text", "not this one")

    for kind in (_plain, _async, _inline):
        error = await failed(World([kind(refuses)]), execute("it"))
        assert error.application == (errors.InvalidParam(name="text"),)
        assert error.text == "text: not this one"


def test_a_bound_of_the_schema_holds() -> None:
    @skill(inline=True, read_only=True)
    def few(count: Annotated[int, msgspec.Meta(ge=1, le=3)]) -> int:
        return count

    world = World([few])
    assert output(run(execute("few", count="3"), world)) == ("application/json", "3")
    assert refused(execute("few", count="4"), world).application == (
        errors.InvalidParam(name="count"),
    )


# -- what is refused -----------------------------------------------------------------------------


def test_what_is_not_for_the_asker_is_not_there() -> None:
    @skill(inline=True, read_only=True)
    def closed(number: int) -> int:
        return number

    @skill(inline=True, read_only=True, hidden=True)
    def unseen(number: int) -> int:
        return number

    world = World([closed, unseen], rules=[Rule(("closed",), allowed_domains=("b.example",))])
    for name in ("closed", "unseen", "never-was"):
        # Nothing is learned from its parameters, its mode or a deadline either.
        for asked in (
            execute(name),
            execute(name, number="x"),
            execute(name, number="1"),
            Execute(skill=name, mode="async"),
            Execute(skill=name, deadline=NOW - timedelta(days=1)),
        ):
            error = error_of(world.ask(asked, type_="set", id_="1"))
            assert (error.condition, error.application) == (
                "item-not-found",
                (errors.UnknownSkill(),),
            )
    assert len(set(world.bench.output.sent)) == 1
    assert output(run(execute("closed", number="1"), world, BOB)) == ("application/json", "1")


def test_only_requests_to_do_something_are_served() -> None:
    assert condition(WORLD.ask(execute("echo", text="x"), type_="get")) == "service-unavailable"


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("deadline", [NOW, NOW - timedelta(microseconds=1), LONG_AGO])
def test_past_its_deadline_nothing_runs(deadline: datetime) -> None:
    ran: list[int] = []
    world = World([_inline(lambda: ran.append(1))], now=lambda: NOW)
    error = refused(Execute(skill="it", deadline=deadline), world)
    assert (error.condition, error.application) == ("not-acceptable", (errors.DeadlineExpired(),))
    assert ran == []


@each_kind
async def test_before_its_deadline_it_runs(kind: Kind) -> None:
    asked = Execute(skill="it", deadline=NOW + timedelta(days=1_000_000))
    assert output(await finished(World([kind(lambda: "x")]), asked)) == ("text/plain", "x")


async def test_a_deadline_that_passes_meanwhile_ends_the_work() -> None:
    @skill(read_only=True)
    async def endless() -> None:
        await anyio.sleep_forever()

    # It has not been reached on admission, and has when the work is under way.
    asked = Execute(skill="endless", deadline=datetime.now(UTC))
    error = await failed(World([endless], now=lambda: LONG_AGO), asked)
    assert (error.condition, error.application) == ("not-acceptable", (errors.DeadlineExpired(),))


@pytest.mark.parametrize(
    ("marks", "type_"),
    [
        ({"read_only": True}, "wait"),
        ({"idempotent": True}, "wait"),
        ({}, "cancel"),
    ],
)
@pytest.mark.parametrize("limit", ["service", "skill"])
async def test_what_takes_too_long_may_be_repeated_only_if_it_may(
    marks: dict[str, bool], type_: str, limit: str
) -> None:
    own_s = 0.000_001 if limit == "skill" else 60

    @skill(
        read_only=marks.get("read_only", False),
        idempotent=marks.get("idempotent", False),
        destructive=False,
        timeout=own_s,
    )
    async def endless() -> None:
        await anyio.sleep_forever()

    world = World([endless], inline_s=0.000_001 if limit == "service" else 60)
    # A deadline that is still far off is not to blame.
    asked = Execute(
        skill="endless",
        mode="inline" if limit == "service" else "auto",
        deadline=datetime.now(UTC) + timedelta(days=1),
    )
    error = await failed(world, asked)
    assert (error.condition, error.type) == ("remote-server-timeout", type_)
    assert error.application == (errors.Timeout(),)


async def test_a_thread_that_is_given_up_keeps_its_place_until_it_ends() -> None:
    begun, go = threading.Event(), threading.Event()

    def waits() -> None:
        begun.set()
        go.wait(60)

    world = World([_plain(waits)])
    try:
        async with world.running():
            world.bench.receive(iq(xml(execute("it")), type_="set", from_=ALICE))
            await until(begun.is_set)
            assert await world.bench.router.drain(0) == 1
        assert condition(world.bench.replies[0]) == "recipient-unavailable"
        # The run is gone too, with the world, and its thread is not.
        assert world.threads._own == {"alice@a.example": 1}
    finally:
        go.set()
    await until(lambda: not world.threads._own)


# -- tasks ---------------------------------------------------------------------------------------


def accepted(reply: ET.Element) -> Accepted:
    """What is said of a task that has been taken on."""
    return result(Accepted, reply)


@each_kind
async def test_what_is_asked_for_as_a_task_is_accepted_and_done(kind: Kind) -> None:
    world = World([kind(lambda: "x")])
    async with world.running():
        said = accepted(await world.asked(Execute(skill="it", mode="async", thread="t")))
        assert (said.revision, said.state) == (0, "accepted")
        task = await world.ended(said.task)
    assert (task.state, task.skill, task.thread) == ("completed", "it", "t")
    assert task.result is not None
    assert output(task.result) == ("text/plain", "x")


@each_kind
async def test_a_task_whose_skill_breaks_fails_and_says_nothing_of_how(kind: Kind) -> None:
    def breaks() -> None:
        raise ValueError("secret")

    world = World([kind(breaks)])
    async with world.running():
        task = await world.ended(
            accepted(await world.asked(Execute(skill="it", mode="async"))).task
        )
    assert (task.state, task.result) == ("failed", None)
    assert task.failure is not None
    assert task.failure.conditions == (errors.Internal(),)
    assert not any("secret" in sent for sent in (*world.told.sent, *world.bench.output.sent))


async def test_an_answer_says_accepted_before_any_event_is_told() -> None:
    world = World([_inline(lambda: "x")])
    order = world.told.sent = world.bench.output.sent
    async with world.running():
        world.bench.receive(
            iq(xml(Execute(skill="it", mode="async")), type_="set", from_=ALICE, to=AGENT)
        )
        await until(lambda: any("state='completed'" in sent for sent in order))
    assert order[0].startswith("<iq ")
    assert all(sent.startswith("<message ") for sent in order[1:])


async def test_parameters_are_looked_at_before_a_task_is_made() -> None:
    world = World(all_skills())
    async with world.running():
        asked = Execute(skill="conformance.add", mode="async", params=(Param(name="a", text="x"),))
        assert error_of(await world.asked(asked)).application == (errors.InvalidParam(name="a"),)
        assert await tasks_of(world) == 0


async def tasks_of(world: World) -> int:
    """How many tasks there are."""

    def count(database: Database) -> int:
        (found,) = database.execute("SELECT count(*) FROM tasks").fetchall()
        return int(found[0])

    return await world.storage.read(count)


async def test_what_takes_longer_than_an_iq_becomes_a_task() -> None:
    go = anyio.Event()

    @skill(read_only=True)
    async def slow() -> str:
        await go.wait()
        return "at last"

    world = World([slow], inline_s=0.000_001)
    async with world.running():
        said = accepted(await world.asked(Execute(skill="slow")))
        assert (said.revision, said.state) == (0, "accepted")
        go.set()
        task = await world.ended(said.task)
    assert task.result is not None
    assert output(task.result) == ("text/plain", "at last")


async def test_work_goes_on_from_earlier_tasks_of_the_same_principal_only() -> None:
    world = World([_inline(lambda: "x")])
    async with world.running():
        earlier = accepted(await world.asked(Execute(skill="it", mode="async"))).task
        onward = Execute(skill="it", earlier=(Earlier(task=earlier),))
        assert output(result(Result, await world.asked(onward))) == ("text/plain", "x")
        for asked, from_ in (
            (onward, BOB),
            (Execute(skill="it", earlier=(Earlier(task="9f"),)), ALICE),
            (Execute(skill="it", earlier=(Earlier(task=earlier), Earlier(task="9f"))), ALICE),
        ):
            error = error_of(await world.asked(asked, from_=from_))
            assert (error.condition, error.application) == (
                "item-not-found",
                (errors.UnknownTask(),),
            )
        assert await tasks_of(world) == 1


@pytest.mark.parametrize("mode", ["auto", "async"])
@pytest.mark.parametrize("value", ["approve", "deny"])
async def test_what_destroys_waits_for_the_word_of_a_person(mode: Any, value: Any) -> None:
    ran: list[str] = []

    @skill(inline=True, destructive=True)
    def erase(target: str) -> str:
        ran.append(target)
        return "erased"

    world = World([erase])
    async with world.running():
        asked = msgspec.structs.replace(execute("erase", target="all of it"), mode=mode)
        said = accepted(await world.asked(asked))
        # Accepted before anybody has said who is a person.
        assert (said.revision, said.state) == (0, "accepted")
        await world.reached(said.task, "input-required")
        (question,) = await world.service.open_questions(JID.parse(ALICE).bare, JID.parse(AGENT))
        assert (question.task, question.asked) == (said.task, (JID.parse(ALICE).bare,))
        assert ran == []
        # Bob was not asked, so for him there is nothing to decide.
        decision = Decision(id=question.id, value=value)
        error = error_of(await world.asked(decision, from_=BOB))
        assert error.application == (errors.UnknownConfirmation(),)
        assert (await world.asked(decision)).get("type") == "result"
        task = await world.ended(said.task)
    if value == "approve":
        assert (task.state, ran) == ("completed", ["all of it"])
    else:
        assert (task.state, ran) == ("failed", [])
        assert task.failure is not None
        assert task.failure.conditions == (errors.Denied(),)


async def test_nobody_is_asked_about_what_cannot_run() -> None:
    world = World(all_skills())
    async with world.running():
        error = error_of(await world.asked(execute("conformance.erase")))
        assert error.application == (errors.InvalidParam(name="target"),)
        asked = msgspec.structs.replace(execute("conformance.erase", target="x"), mode="inline")
        error = error_of(await world.asked(asked))
        assert (error.condition, error.application) == (
            "not-allowed",
            (errors.ConfirmationUnavailable(),),
        )
        error = error_of(await world.asked(execute("conformance.erase", target="x\n" * 10_000)))
        assert (error.condition, error.application) == (
            "policy-violation",
            (errors.TooBig(limit=16_384),),
        )
        assert "too long to be shown" in error.text
        assert await tasks_of(world) == 0
        assert await world.service.open_questions(JID.parse(ALICE).bare, JID.parse(AGENT)) == []
    assert world.told.sent == []


async def test_a_peer_is_not_asked_in_place_of_a_person() -> None:
    async def peer(_to: JID, _from: JID, /) -> InfoQuery:
        return InfoQuery(features=(Feature(var="urn:fluux:agent:0"),))

    world = World(all_skills(), info=peer)
    async with world.running():
        asked = execute("conformance.erase", target="x")
        said = accepted(await world.asked(asked))
        task = await world.ended(said.task)
        assert task.state == "rejected"
        assert task.failure is not None
        assert task.failure.conditions == (errors.ConfirmationUnavailable(),)
        # From then on it is known.
        error = error_of(await world.asked(asked))
        assert (error.condition, error.application) == (
            "not-allowed",
            (errors.ConfirmationUnavailable(),),
        )
        assert await world.service.open_questions(JID.parse(ALICE).bare, JID.parse(AGENT)) == []


@each_kind
@pytest.mark.parametrize("mode", ["auto", "async"])
async def test_the_same_request_again_has_the_same_answer_and_runs_once(
    kind: Kind, mode: Any
) -> None:
    ran: list[int] = []

    def counted() -> str:
        ran.append(1)
        return str(len(ran))

    world = World([kind(counted)])
    async with world.running():
        for asked, id_ in (
            (Execute(skill="it", mode=mode), "by-iq"),
            (Execute(skill="it", mode=mode, request="by-name"), None),
        ):
            before = len(ran)
            first = await world.asked(asked, id_=id_)
            if mode == "async":
                await world.ended(accepted(first).task)
            again = await world.asked(asked, id_=id_)
            assert ET.tostring(again[0]) == ET.tostring(first[0])
            assert len(ran) == before + 1
            other = msgspec.structs.replace(asked, context="another")
            if asked.request is None:  # then it is another request
                second = await world.asked(other, id_=id_)
                if mode == "async":
                    await world.ended(accepted(second).task)
                assert len(ran) == before + 2
                continue
            error = error_of(await world.asked(other, id_=id_))
            assert (error.condition, error.application) == ("conflict", (errors.Conflict(),))
            assert len(ran) == before + 1


async def test_a_database_that_refuses_is_to_be_asked_again_and_nothing_has_run() -> None:
    ran: list[int] = []

    @skill(name="it", destructive=False)
    async def it() -> None:
        ran.append(1)

    world = World([it])

    async def refuses(*_: Any, **__: Any) -> Any:
        raise StorageError("/secret/agent.db: the disk is full")

    async with world.running():
        assert (await world.asked(Execute(skill="it"))).get("type") == "result"
        world.storage.write = refuses  # type: ignore[method-assign]
        for mode in ("auto", "async"):
            asked = Execute(skill="it", mode=mode)
            error = error_of(await world.asked(asked))
            assert (error.condition, error.type) == ("resource-constraint", "wait")
            assert error.application == (errors.Retry(after=5),)
            assert "secret" not in error.text
    assert ran == [1]


@each_kind
async def test_another_version_than_the_caller_has_read_does_not_run(kind: Kind) -> None:
    world = World([kind(lambda: "done")])
    async with world.running():
        read = Execute(skill="it", version="1.0.0", request="r-1")
        assert output(result(Result, await world.asked(read)))[1] == "done"
        error = error_of(await world.asked(Execute(skill="it", version="0.9.0")))
        assert (error.condition, error.application) == ("item-not-found", (errors.UnknownSkill(),))
        assert "version 1.0.0 now" in error.text
        # The version is a part of the content.
        other = Execute(skill="it", request="r-1")
        assert error_of(await world.asked(other)).condition == "conflict"
