"""Turns that wait for a task, a person, the time of their answer, or a stream."""

from pathlib import Path

import anyio
import pytest

from component.agent import sentences
from component.agent.protocol import Away, ToolResult, Waiting
from component.agent.requests import Reply
from component.app.schema import SCHEMA
from component.conversations.lines import Note, Resulted
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from component.store import Storage, StorageError
from tests.component.agent.world import (
    JULIET,
    ROMEO,
    World,
    answered,
    call,
    message,
    over,
    says,
    shopping,
    words,
)
from tests.waiting import eventually

HIS = SessionKey("assistant", ROMEO)

pytestmark = pytest.mark.anyio
TASK = "task-m1-c0-order"


async def test_a_turn_waits_as_rows_and_continues(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "an order"))
        await world.ear.hears(1)
        assert world.ear.bodies == [sentences.STILL_AT_IT]
        assert not conversations.activity(HIS).running
        assert conversations.activity(HIS).parked == 1
        world.shop.tasks[TASK] = ToolResult("it is here")
        await world.ended(TASK)
        await world.ear.hears(2)
        assert world.ear.bodies[1] == "re: an order: it is here"
        await world.settled()
        assert conversations.activity(HIS).parked == 0
        # Told again, it is nobody's.
        await world.ended(TASK)
    assert len(world.ear.said) == 2
    assert len(world.shop.made) == 1


async def test_a_question_is_sent_without_a_notice(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await parked(world)
        assert world.ear.said == []
        assert world.ear.writing[-1] is False
        results = [line for line in await world.lines() if isinstance(line, Resulted)]
        assert results[0].task == "task-m1-c0-ask"
        assert "waits for the person" in results[0].content


async def test_no_notice_follows_a_question_in_the_same_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask", "order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
        world.shop.tasks["task-m1-c0-ask"] = ToolResult("yes")
        await world.ended("task-m1-c0-ask")
        await eventually(lambda: "task-m1-c1-order" in world.shop.tasks)
        await parked(world)
        world.shop.tasks["task-m1-c1-order"] = ToolResult("here")
        await world.ended("task-m1-c1-order")
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: go: yes; here"]


async def test_no_notice_follows_a_question_of_another_turn_that_is_open(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
        world.brain.think = shopping("order")
        await conversations.received(message("m2", "an order"))
        await parked(world, 2)
        world.shop.tasks["task-m2-c0-order"] = ToolResult("here")
        await world.ended("task-m2-c0-order")
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: an order: here"]


async def test_an_answer_that_repeats_what_was_said_meanwhile_is_the_result(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
        world.brain.think = lambda _: says("I'm done.")
        await conversations.received(message("m2", "are you done?"))
        await world.ear.hears(1)
        world.shop.tasks["task-m1-c0-ask"] = ToolResult("The order has number 7.")
        await world.ended("task-m1-c0-ask")
        await world.ear.hears(2)
        assert world.ear.bodies == ["I'm done.", "The order has number 7."]


async def test_an_answer_that_repeats_the_words_beside_a_call_is_the_result(tmp_path: Path) -> None:
    world = World(tmp_path)
    calls = iter([says("I'll buy it.", call("buy", "{}", "c0-buy")), says("I'll buy it")])
    world.brain.think = lambda _: next(calls)
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["buy is done"]


@pytest.mark.parametrize("result", ['{"number": 7}', ""])
async def test_a_result_that_is_no_text_for_people_replaces_nothing(
    tmp_path: Path, result: str
) -> None:
    world = World(tmp_path)
    world.shop.result = lambda _name, _arguments: result
    calls = iter([says("Done.", call("buy", "{}", "c0-buy")), says("Done.")])
    world.brain.think = lambda _: next(calls)
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["Done."]


async def test_the_same_answer_to_two_messages_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        for number in (1, 2):
            calls = iter([says("", call("buy", "{}", f"c{number}-buy")), says("No.")])
            world.brain.think = lambda _, calls=calls: next(calls)  # type: ignore[misc]
            await conversations.received(message(f"m{number}", "go"))
            await world.ear.hears(number)
        assert world.ear.bodies == ["No.", "No."]


async def parked(world: World, count: int = 1) -> None:
    await eventually(lambda: world.conversations.activity(HIS).parked >= count)


async def test_the_outcome_of_a_task_that_ended_while_nothing_ran_is_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask", "buy")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
    world.shop.tasks["task-m1-c0-ask"] = ToolResult("yes")
    async with world.life():
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: go: yes; buy is done"]
        await world.settled()


async def test_a_turn_waits_for_a_running_task_across_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
    async with world.life() as conversations:
        await parked(world)
        before = len(await world.lines())
        world.shop.tasks[TASK] = ToolResult("yes")
        await world.ended(TASK)
        await world.ear.hears(2)
        assert before == 3, "nothing was written for having looked"
    assert world.ear.bodies == [sentences.STILL_AT_IT, "re: go: yes"]


async def test_a_task_that_ends_before_it_is_waited_for_is_not_missed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    shop_call = world.shop.call

    async def and_over(*args: object) -> ToolResult | Waiting:
        result = await shop_call(*args)  # type: ignore[arg-type]
        if isinstance(result, Waiting):
            world.shop.tasks[result.task] = ToolResult("at once")
            await world.ended(result.task)
        return result

    world.shop.call = and_over  # type: ignore[method-assign]
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: go: at once"]


async def test_a_late_result_comes_after_the_messages_in_between(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "an order"))
        await parked(world)
        world.brain.think = lambda request: says("meanwhile")
        await conversations.received(message("m2", "how are you"))
        await world.ear.hears(2)
        waits = [one for one in world.brain.asked[-1].messages if one.role == "tool"]
        assert waits[0].text == sentences.GOES_ON.format(task=TASK)
        world.brain.think = lambda request: says("late: " + request.messages[-1].text)
        world.shop.tasks[TASK] = ToolResult("it is here")
        await world.ended(TASK)
        await world.ear.hears(3)
        last = world.brain.asked[-1].messages
        roles = [one.role for one in last[1:]]
        assert roles == ["user", "assistant", "tool", "user", "assistant", "user", "system"]
        assert last[3].text == sentences.GOES_ON.format(task=TASK)
        assert "not from the person" in last[-2].text
        assert 'from="a tool">\nit is here\n</data-' in last[-2].text
        assert "(order) have just ended" in last[-1].text
        assert "an order" in last[-1].text
        assert answered(world.ear.said[2]) == "m1"
        assert isinstance((await world.lines())[-2], Note)


async def test_a_late_result_names_all_messages_of_its_turn(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def order_for_both(request: ModelRequest) -> Completion:
        if len(words(request)) < 2:
            await anyio.sleep_forever()  # until the second message joins, and the call is repeated
        return shopping("order")(request)

    world.brain.think = order_for_both
    async with world.life() as conversations:
        await conversations.received(message("m1", "some tea"))
        await conversations.received(message("m2", "and milk"))
        await parked(world)
        world.brain.think = lambda request: says("meanwhile")
        await conversations.received(message("m3", "how are you"))
        await world.ear.hears(2)
        world.brain.think = lambda request: says("late: " + request.messages[-1].text)
        world.shop.tasks[TASK] = ToolResult("it is here")
        await world.ended(TASK)
        await world.ear.hears(3)
    assert 'The requests were "some tea" and "and milk".' in world.brain.asked[-1].messages[-1].text


async def test_the_other_calls_of_the_round_are_finished(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda request: (
        says("done")
        if len([one for one in request.messages if one.role == "tool"]) == 3
        else says("", call("look"), call("order"), call("ask"))
    )
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await parked(world)
        assert sorted(made[2] for made in world.shop.made) == ["ask", "look", "order"]
        world.shop.tasks["task-m1-c-order"] = ToolResult("one")
        await world.ended("task-m1-c-order")
        await parked(world)
        assert len(world.brain.asked) == 1, "the other one is not over yet"
        world.shop.tasks["task-m1-c-ask"] = ToolResult("two")
        await world.ended("task-m1-c-ask")
        await world.ear.hears(1)
        assert world.ear.bodies == ["done"]


async def test_a_delayed_answer_is_sent_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda request: says("[[delay:200ms]] There you are.")
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await parked(world)
        assert world.ear.said == []
    async with world.life():
        await world.ear.hears(1)
        await world.settled()
    assert world.ear.bodies == ["There you are."]
    assert len(world.brain.asked) == 1


async def test_a_storage_failure_delays_a_due_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.agent.conversation.FIRST_WAIT_S", 0.01)
    world = World(tmp_path)
    world.brain.think = lambda request: says("[[delay:1s]] There you are.")
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await parked(world)
        read, refused = world.storage.read, 0

        async def refuses(*args: object, **kwargs: object) -> object:
            nonlocal refused
            if refused < 3:
                refused += 1
                raise StorageError("the database is locked")
            return await read(*args, **kwargs)  # type: ignore[arg-type]

        world.storage.read = refuses  # type: ignore[method-assign, assignment]
        await world.ear.hears(1)
        assert refused == 3
        await world.settled()
    assert world.ear.bodies == ["There you are."]


async def test_tasks_of_a_removed_agent_are_given_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
    (task,) = world.shop.tasks
    world.away = Away("There is no such agent.")
    async with world.life():
        await world.ear.hears(1)
        await world.settled()
    assert world.ear.bodies == ["There is no such agent."]
    assert world.shop.given_up == [task], "nobody is asked any more"


async def test_silence_is_kept_in_the_history(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda request: says("[[silent]]")
    async with world.life() as conversations:
        await conversations.received(message("m1", "thanks"))
        await world.settled()
        assert world.ear.said == []
        assert (await world.lines())[-1].content == "[[silent]]"  # type: ignore[union-attr]


async def test_answers_wait_for_a_stream(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ear.stream = False
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await conversations.received(message("m2", "two", who=JULIET))
        await eventually(
            lambda: (
                len(world.brain.asked) >= 2
                and not any(
                    conversations.activity(SessionKey("assistant", who)).running
                    for who in (ROMEO, JULIET)
                )
            )
        )
        assert len(await world.rows()) == 2
        world.ear.stream = True
        conversations.connected()
        assert sorted(world.ear.bodies) == ["re: one", "re: two"]
        await world.settled()


async def test_unsent_answers_are_sent_by_the_next_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ear.stream = False
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await eventually(lambda: world.brain.asked and not conversations.activity(HIS).running)
    world.ear.stream = True
    async with world.life():
        await world.ear.hears(1)
        await world.settled()
    assert world.ear.bodies == ["re: one"]
    assert len(world.brain.asked) == 1


async def test_a_parked_turn_continues_after_many_other_messages(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.history_tokens = 200
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "an order"))
        await parked(world)
        world.brain.think = lambda request: says("meanwhile")
        for number in range(12):
            await conversations.received(message(f"n{number}", "x" * 200))
            await world.ear.hears(number + 2)
        found = await world.sessions.read(HIS, tokens=400)
        assert all(line.turn != "m1" for line in found.lines), "its beginning is far above"
        summed = [one.messages[1].text for one in world.brain.asked if not one.tools]
        assert not any("an order" in content for content in summed), "what is not over is not"
        world.shop.tasks[TASK] = ToolResult("it is here")
        await world.ended(TASK)
        await world.ear.hears(14)
        last = world.brain.asked[-1].messages
        assert words(world.brain.asked[-1])[0] == "an order"
        assert "it is here" in last[-2].text
        assert len(world.shop.made) == 1
        await world.settled()


@pytest.mark.parametrize("finishes", [True, False])
async def test_a_paused_agent_finishes_parked_turns_and_a_killed_one_does_not(
    tmp_path: Path, finishes: bool
) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1", "go"))
        await parked(world)
        world.away = Away("I am away.", begun=world.profile if finishes else None)
        (task,) = world.shop.tasks
        world.shop.tasks[task] = ToolResult("yes")
        await world.ended(task)
        await world.ear.hears(1)
        await conversations.received(message("m2", "and now?"))
        await world.ear.hears(2)
    first, second = world.ear.bodies
    assert first == ("re: go: yes" if finishes else "I am away.")
    assert second == "I am away."


async def test_an_answer_that_cannot_be_sent_does_not_block_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    say = world.ear.say

    def refuse(reply: Reply) -> bool:
        if reply.text == "re: one":
            raise ValueError("It cannot be written.")
        return say(reply)

    world.ear.say = refuse  # type: ignore[method-assign]  # a voice that breaks
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await conversations.received(message("m2", "two", who=JULIET))
        await world.ear.hears(2)
        await world.settled()
    assert sorted(world.ear.bodies) == sorted([sentences.BROKE, "re: two"])


async def test_a_task_that_ends_on_another_instance_wakes_its_turn(
    tmp_path: Path, migrated_url: str
) -> None:
    world = World(tmp_path)
    world.url = migrated_url
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "an order"))
        await parked(world)
        world.shop.tasks[TASK] = ToolResult("it is here")
        async with Storage.open(SCHEMA, tmp_path / "other", postgres=migrated_url) as other:
            await other.write(lambda db: over(db, TASK))
        await world.settled()
    assert world.ear.bodies[-1] == "re: an order: it is here"


async def test_the_end_of_a_task_on_another_instance_while_nothing_runs_here_is_not_missed(
    tmp_path: Path, migrated_url: str
) -> None:
    world = World(tmp_path)
    world.url = migrated_url
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "an order"))
        await parked(world)
    async with Storage.open(SCHEMA, tmp_path / "other", postgres=migrated_url) as other:
        await other.write(lambda db: over(db, TASK))
    world.shop.tasks[TASK] = ToolResult("it is here")
    async with world.life():
        await world.settled()
    assert world.ear.bodies[-1] == "re: an order: it is here"


async def test_no_row_of_a_parked_turn_remains(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1", "an order"))
        await parked(world)
        world.shop.tasks[TASK] = ToolResult("ordered")
        await world.ended(TASK)
        await world.settled()
        left = await world.storage.read(lambda db: db.execute("SELECT * FROM waiters").fetchall())
    assert left == []
