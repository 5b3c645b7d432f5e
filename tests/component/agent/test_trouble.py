"""Failures of models, budgets, disks and tools: the person gets a sentence, and nothing is lost."""

import itertools
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from component.agent import prompt, sentences
from component.agent.protocol import Away, ToolResult
from component.conversations.lines import Note, Said, Summary
from component.memory_directory.layout import SessionKey
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    Tool,
    UnusableAnswerError,
)
from component.store import StorageError
from tests.component.agent.world import ROMEO, World, call, echo, message, says, shopping, words
from tests.component.models.call_samples import SAMPLES
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
DEEP = '{"a":' * 65 + "1" + "}" * 65


async def one(world: World, body: str = "hi", answers: int = 1) -> None:
    async with world.life() as conversations:
        await conversations.received(message("m1", body))
        await world.ear.hears(answers)
        await world.settled()


def raising(problem: Exception) -> Callable[[ModelRequest], Completion]:
    """Return a model that raises the error for every request."""

    def think(_request: ModelRequest) -> Completion:
        raise problem

    return think


async def test_an_outage_gives_one_sentence_and_keeps_the_message(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = raising(ModelUnavailableError("http://10.0.0.1 cannot be reached"))
    async with world.life() as conversations:
        await conversations.received(message("m1", "remember the milk"))
        await world.ear.hears(1)
        assert world.ear.bodies == [sentences.NO_MODEL]
        await world.settled()
        world.brain.think = lambda request: says(" | ".join(words(request)))
        await conversations.received(message("m2", "are you there"))
        await world.ear.hears(2)
        assert world.ear.bodies[1] == "remember the milk | are you there"
    assert not world.purse.open


async def test_a_short_outage_is_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path)

    def away(request: ModelRequest) -> Completion:
        if len(world.brain.asked) == 1:
            raise ModelUnavailableError("later", retry_after_s=0.01)
        return echo(request)

    world.brain.think = away
    await one(world)
    assert world.ear.bodies == ["re: hi"]


async def test_a_long_outage_is_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = raising(ModelUnavailableError("later", retry_after_s=3600))
    await one(world)
    assert world.ear.bodies == [sentences.NO_MODEL]
    assert len(world.brain.asked) == 1


async def test_a_refusal_is_reported_without_internals(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = raising(ModelRefusedError("the key sk-123 is wrong"))
    await one(world)
    assert world.ear.bodies == [sentences.REFUSED]


async def test_an_exhausted_budget_is_reported_once_and_no_model_is_asked(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.purse.left = 10
    await one(world)
    assert world.ear.bodies == ["Your budget for today is used up."]
    assert world.brain.asked == []


async def test_a_budget_that_ends_in_the_middle_ends_the_turn(tmp_path: Path) -> None:
    world = World(tmp_path)

    def think(request: ModelRequest) -> Completion:
        world.purse.left = 0
        return says("", call("look"))

    world.brain.think = think
    await one(world)
    assert world.ear.bodies == ["Your budget for today is used up."]
    assert len(world.shop.made) == 1


async def test_a_failing_model_does_not_affect_others(tmp_path: Path) -> None:
    world = World(tmp_path)

    def broken(request: ModelRequest) -> Completion:
        raise ZeroDivisionError

    world.brain.think = broken
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await world.ear.hears(1)
        assert world.ear.bodies == [sentences.BROKE]
        world.brain.think = echo
        await conversations.received(message("m2", "again"))
        await world.ear.hears(2)
        assert world.ear.bodies[1] == "re: again"
        await world.settled()


async def test_an_agent_that_is_away_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.away = Away("The assistant is paused.")
    await one(world)
    assert world.ear.bodies == ["The assistant is paused."]
    assert world.brain.asked == []


async def test_a_storage_failure_delays_the_turn_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.agent.conversation.FIRST_WAIT_S", 0.01)
    world = World(tmp_path)
    world.brain.think = shopping("buy")
    async with world.life() as conversations:
        append = world.sessions.append
        refused = 0

        async def refuses(*args: object, **kwargs: object) -> None:
            nonlocal refused
            if refused < 4:
                refused += 1
                raise StorageError("the disk is full")
            await append(*args, **kwargs)  # type: ignore[arg-type]

        world.sessions.append = refuses  # type: ignore[method-assign]
        await conversations.received(message("m1", "one"))
        await conversations.received(message("m2", "two", thread="x"))
        await world.ear.hears(3)
        await world.settled()
    assert world.ear.bodies == [sentences.NO_DISK, "re: one: buy is done", "re: two: buy is done"]
    assert len(world.shop.made) == 2


async def test_a_person_with_too_many_waiting_messages_gets_a_message(tmp_path: Path) -> None:
    world = World(tmp_path, waiting_per_principal=2)
    async with world.built() as conversations:
        for number in range(4):
            await conversations.received(message(f"m{number}", thread=str(number)))
        assert world.ear.bodies == [sentences.TOO_MANY.format(count=2)] * 2
        assert await world.rows() == ["m0", "m1"]


async def test_a_known_message_is_not_accepted_twice(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built() as conversations:
        await conversations.received(message("m1"))
        await conversations.received(message("m1"))
        async with anyio.create_task_group() as group:
            await group.start(conversations.run)
            await world.ear.hears(1)
            await world.settled()
            group.cancel_scope.cancel()
    assert len(world.ear.said) == 1


# What models do.


async def test_a_model_that_repeats_itself_is_warned_and_ends_only_at_the_limit(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, same_call=3, max_iterations=7)
    world.brain.think = lambda request: (
        says("", call("look")) if request.tool_choice == "auto" else says("That is all I have.")
    )
    await one(world)
    assert world.ear.bodies == ["That is all I have."]
    assert len(world.shop.made) == 6
    notes = [one.text for one in world.brain.asked[-1].messages[1:] if one.role == "system"]
    assert "You have called look 3 times with the same arguments" in notes[0]
    assert "warned before" in notes[1]
    assert "warning number 3" in notes[2]
    assert notes[-1] == prompt.NO_MORE_TOOLS
    # Each request begins as the one before it, the last one too.
    for earlier, later in itertools.pairwise(world.brain.asked):
        assert later.tools == earlier.tools
        assert later.messages[: len(earlier.messages)] == earlier.messages


async def test_twenty_different_pages_are_not_a_loop(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.shop.result = lambda _name, arguments: f"page {arguments}"
    world.brain.think = shopping(*["look"] * 20)
    await one(world)
    assert len(world.shop.made) == 20
    assert not [m for m in world.brain.asked[-1].messages[1:] if m.role == "system"]


async def test_at_the_limit_the_turn_ends_with_the_available_answer(tmp_path: Path) -> None:
    world = World(tmp_path, max_iterations=4)
    numbers = iter(range(100))

    def think(request: ModelRequest) -> Completion:
        name = ("look", "find", "buy")[len(world.brain.asked) % 3]
        return says("", call(name, f'{{"n":{next(numbers)}}}'))

    world.brain.think = think
    await one(world)
    assert len(world.brain.asked) == 4
    assert [request.tool_choice for request in world.brain.asked] == ["auto"] * 3 + ["none"]
    assert world.brain.asked[3].tools == world.brain.asked[0].tools
    assert len(world.shop.made) == 3
    assert world.ear.bodies == [sentences.NO_ANSWER]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ([says(""), says("found it")], "found it"),
        ([says(" "), says("")], sentences.EMPTY),
        ([says("one, ", finish="length"), says("two")], "one, two"),
        (
            [says("one, ", finish="length"), says("two", finish="length")],
            f"one, two\n{sentences.CUT_OFF}",
        ),
        ([says("", call("buy", '{"a":'), finish="length"), says("ok")], "ok"),
        ([says("", call("buy", '{"a":'), finish="length")] * 2, sentences.NO_ROOM),
        ([says("", finish="content_filter")], sentences.FILTERED),
        ([says("half", call("buy"), finish="content_filter")], "half"),
        ([says("", finish="length"), says("", finish="length")], sentences.REASONED),
    ],
)
async def test_an_empty_or_cut_off_answer_is_requested_once_more(
    tmp_path: Path, script: list[Completion], said: str
) -> None:
    world = World(tmp_path)
    world.brain.think = lambda request: script[len(world.brain.asked) - 1]
    await one(world)
    assert world.ear.bodies == [said]
    assert len(world.brain.asked) == len(script)
    assert world.shop.made == []


async def test_what_cannot_be_called_is_an_error_for_the_model(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda request: (
        says("; ".join(one.text for one in request.messages if one.role == "tool"))
        if any(one.role == "tool" for one in request.messages)
        else says("", call("fly"), call("buy", "[1]"), call("find", DEEP), call("look", "{}"))
    )
    await one(world)
    assert [made[2:] for made in world.shop.made] == [("look", "{}")]
    unknown, malformed, deep, fine = world.ear.bodies[0].split("; ")
    assert unknown.startswith("There is no tool of this name. There are: ask, buy, find, look")
    assert malformed.startswith("The arguments are not a JSON object")
    assert deep.startswith("The arguments are nested deeper than 64, or")
    assert fine == "look is done"
    assert sorted(world.shop.refusals) == ["buy", "find", "fly"]


async def test_an_unusable_answer_is_charged(tmp_path: Path) -> None:
    world = World(tmp_path)

    problem = "It sends more than 128 tool calls in one answer."
    world.brain.think = raising(UnusableAnswerError(problem))
    await one(world)
    assert world.ear.bodies == [sentences.NO_MODEL]
    assert [spent.tokens > 0 for spent in world.purse.spent] == [True]


async def test_a_failing_tool_is_an_error_for_the_model(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def breaks(name: str) -> None:
        raise ZeroDivisionError

    world.shop.during = breaks
    world.brain.think = shopping("buy")
    await one(world)
    assert world.ear.bodies == ["re: hi: The tool is broken; this was written down."]


@pytest.mark.parametrize(
    ("names", "at_once"), [(("look", "find"), 2), (("look", "buy"), 2), (("buy", "buy", "buy"), 1)]
)
async def test_only_calls_with_effects_wait_for_each_other(
    tmp_path: Path, names: tuple[str, ...], at_once: int
) -> None:
    world = World(tmp_path)
    world.brain.think = lambda request: (
        says("done")
        if request.messages[-1].role == "tool"
        else says("", *(call(name, f'{{"n":{at}}}') for at, name in enumerate(names)))
    )
    world.shop.result = lambda name, arguments: f"{name} {arguments}"
    together = anyio.Event()

    async def during(_name: str) -> None:
        if world.shop.at_once == at_once:
            together.set()
        with anyio.fail_after(120):
            await together.wait()

    world.shop.during = during
    await one(world)
    assert world.shop.most_at_once == at_once
    # The results are in the order of the calls.
    results = [one.text for one in world.brain.asked[-1].messages if one.role == "tool"]
    assert results == [f'{name} {{"n":{at}}}' for at, name in enumerate(names)]
    bought = [made[3] for made in world.shop.made if made[2] == "buy"]
    assert bought == sorted(bought)


async def test_calls_without_effects_do_not_wait_for_calls_with_effects(tmp_path: Path) -> None:
    world, looked = World(tmp_path), anyio.Event()

    async def during(name: str) -> None:
        if name == "buy":
            with anyio.fail_after(120):
                await looked.wait()
        else:
            looked.set()

    world.shop.during = during
    world.brain.think = lambda request: (
        says("done") if request.messages[-1].role == "tool" else says("", call("buy"), call("look"))
    )
    await one(world)
    assert world.ear.bodies == ["done"]


async def test_a_storage_failure_stops_later_calls_with_effects(tmp_path: Path) -> None:
    world = World(tmp_path)
    began: list[str] = []

    async def during(name: str) -> None:
        began.append(name)
        if len(began) == 1:
            raise StorageError("the disk is full")

    world.shop.during = during
    world.brain.think = lambda request: (
        says("done")
        if request.messages[-1].role == "tool"
        else says("", call("buy", '{"n":1}'), call("buy", '{"n":2}'))
    )
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await eventually(lambda: began)
        assert began == ["buy"]
        await world.ear.hears(1)
    assert [made[3] for made in world.shop.made] == ['{"n":1}', '{"n":2}']


async def test_a_sentence_of_the_service_is_stored_as_a_notice(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = raising(ModelUnavailableError("gone"))
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await world.ear.hears(1)
        world.brain.think = lambda _: says("It was long", finish="length")
        await conversations.received(message("m2"))
        await world.ear.hears(2)
        world.brain.think = echo
        await conversations.received(message("m3"))
        await world.ear.hears(3)
        last = world.brain.asked[-1].messages
        own = [one.text for one in last if one.role == "assistant"]
        notes = [one.text for one in last[1:] if one.role == "system"]
        final = [line for line in await world.lines() if isinstance(line, Said) and line.final]
    assert world.ear.bodies[0] == sentences.NO_MODEL
    assert world.ear.bodies[1].endswith(f"\n{sentences.CUT_OFF}")
    assert own == [world.ear.bodies[1].removesuffix(f"\n{sentences.CUT_OFF}")]
    assert [sentences.NO_MODEL in notes[0], sentences.CUT_OFF in notes[1]] == [True, True]
    assert [line.notice for line in final] == [sentences.NO_MODEL, sentences.CUT_OFF, ""]


async def test_repeated_ids_of_calls_are_made_unique(tmp_path: Path) -> None:
    world = World(tmp_path)

    def think(request: ModelRequest) -> Completion:
        results = [one.text for one in request.messages if one.role == "tool"]
        if len(results) == 2:
            return says("; ".join(results))
        return says("", call(("look", "buy")[len(results)], "{}", "call-0"))

    world.brain.think = think
    await one(world)
    assert world.ear.bodies == ["look is done; buy is done"]


# Too much to be shown.


async def test_an_overflow_is_recovered_from_with_one_short_notice(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        for number in range(6):
            await conversations.received(message(f"old{number}", f"old {number} " + "x" * 400))
            await world.ear.hears(number + 1)

        def think(request: ModelRequest) -> Completion:
            if request.messages[0].text.startswith("Below, as data"):
                return says("They spoke of old things.")
            if sum(len(one.text) for one in request.messages) > 6000:
                raise ContextOverflowError("too long")
            return says("fits")

        world.brain.think = think
        await conversations.received(message("m1", "now " + "y" * 100))
        await world.ear.hears(8)
        assert world.ear.bodies[6:] == [sentences.SHORTENED, "fits"]
        await world.settled()
        found = await world.sessions.read(SessionKey("assistant", ROMEO), tokens=10**9)
        assert found.summary is not None
        assert found.summary.content == "They spoke of old things."
        assert isinstance(found.lines[0], Said)
        assert found.lines[0].role == "user"
        shown = world.brain.asked[-1].messages
        assert "They spoke of old things." in shown[1].text
        assert words(world.brain.asked[-1])[-1].startswith("now ")
    assert not world.purse.open


async def test_a_turn_that_cannot_be_shortened_ends_with_a_sentence(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = raising(ContextOverflowError("too long"))
    await one(world, answers=2)
    assert world.ear.bodies == [sentences.SHORTENED, sentences.TOO_LONG]
    assert len(world.brain.asked) == 4


async def test_a_conversation_that_is_too_long_is_summarised_without_a_notice(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.history_tokens = 400
    world.shop.taint = "web"
    summed = 0

    def think(request: ModelRequest) -> Completion:
        nonlocal summed
        if request.messages[0].text.startswith("Below, as data"):
            summed += 1
            return says(f"summary {summed}")
        return shopping("look")(request)

    world.brain.think = think
    async with world.life() as conversations:
        for number in range(12):
            await conversations.received(message(f"m{number}", f"message {number} " + "x" * 100))
            await world.ear.hears(number + 1)
        await world.settled()
        assert 1 <= summed <= 6
        assert all(body.startswith("re: message") for body in world.ear.bodies)
        found = await world.sessions.read(SessionKey("assistant", ROMEO), tokens=10**9)
        assert isinstance(found.summary, Summary)
        assert found.summary.taints == ("person", "web")
        assert len(found.lines) < 12 * 4
        tokens = [sum(len(m.text) // 4 for m in r.messages[1:]) for r in world.brain.asked]
        assert max(tokens) < 800


async def test_the_middle_of_long_results_is_removed(tmp_path: Path) -> None:
    world = World(tmp_path, tool_result_tokens=50)
    world.shop.result = lambda name, arguments: "begin " + "x" * 5000 + " end"
    world.brain.think = shopping("look")
    await one(world)
    shown = world.brain.asked[-1].messages[-1].text
    assert shown.startswith("begin ")
    assert shown.endswith(" end")
    assert "characters are left out here" in shown
    assert len(shown) < 250
    assert max(len(line.content) for line in await _lines(world)) > 5000, "the file has it all"


async def _lines(world: World) -> list[Said | Note]:
    async with world.built():
        return [line for line in await world.lines() if hasattr(line, "content")]  # type: ignore[misc]


async def test_an_idle_conversation_is_archived_at_the_next_message(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.idle_mins = 10
    async with world.life() as conversations:
        await conversations.received(message("m1", "old"))
        await world.ear.hears(1)
        await world.settled()
        world.now += 601
        await conversations.received(message("m2", "new"))
        await world.ear.hears(2)
        asked = words(world.brain.asked[-1])
        assert asked == ["new"]
        assert (await world.sessions.status(SessionKey("assistant", ROMEO))).archived == 1


async def test_an_idle_conversation_with_a_parked_turn_is_not_archived(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.idle_mins = 10
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "old"))
        await world.ear.hears(1)
        world.now += 601
        world.brain.think = echo
        await conversations.received(message("m2", "new"))
        await world.ear.hears(2)
        assert (await world.sessions.status(SessionKey("assistant", ROMEO))).archived == 0
        world.brain.think = shopping("order")
        world.shop.tasks["task-m1-c0-order"] = ToolResult("here")
        await world.ended("task-m1-c0-order")
        await world.ear.hears(3)


async def test_nobody_hears_that_a_greeting_is_too_long_because_of_the_tools(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    long = Tool("look", "word " * 5000, msgspec.Raw(b'{"type":"object"}'))
    world.shop.offered = lambda caller: [long]  # type: ignore[method-assign]
    world.brain.think = raising(ContextOverflowError("prompt is too long"))
    await one(world)
    assert world.ear.bodies == [sentences.REFUSED]


@pytest.mark.parametrize("written", SAMPLES.values(), ids=SAMPLES)
async def test_nobody_reads_the_markup_of_a_call(tmp_path: Path, written: str) -> None:
    if written.startswith("{"):
        written = f"<tool_call>{written}"
    script = [says(written), says("found it")]
    world = World(tmp_path)
    world.brain.think = lambda request: script[len(world.brain.asked) - 1]
    await one(world)
    assert world.ear.bodies == ["found it"]
    assert prompt.UNREAD_CALL in world.brain.asked[1].messages[-1].text


async def test_a_text_around_the_markup_of_a_call_is_the_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda _: says(f"Let me look.{SAMPLES['Kimi']}The answer is 5.")
    await one(world)
    assert world.ear.bodies == ["Let me look.\n\nThe answer is 5."]


async def test_an_answer_of_invisible_characters_is_requested_once_more(tmp_path: Path) -> None:
    script = [says("\u200b"), says("found it")]
    world = World(tmp_path)
    world.brain.think = lambda request: script[len(world.brain.asked) - 1]
    await one(world)
    assert world.ear.bodies == ["found it"]
