"""A turn of many rounds is summed up while it runs, and keeps its task."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from component.agent import compaction, prompt
from component.agent.conversations import Conversations
from component.conversations.lines import Said, Summary
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRefusedError, ModelRequest
from tests.component.agent.world import (
    ROMEO,
    World,
    call,
    contexts,
    message,
    says,
    words,
)

pytestmark = pytest.mark.anyio

TASK = "Look at all 200 shelves, and tell me which of them hold a blue book."
ROUNDS = 200
SEVERAL = 60
"""So many that the turn is summed up."""


class Worker:
    """A model that looks at one shelf after another, and depends on the prompt for its state."""

    def __init__(self, world: World, rounds: int = ROUNDS) -> None:
        self.requests: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self.sums_up = True
        self._world = world
        self.rounds = rounds

    def think(self, request: ModelRequest) -> Completion:
        if request.messages[0].text in (compaction.SUMMARISE, compaction.SUMMARISE_WORK):
            self.summaries.append(request)
            if not self.sums_up:
                raise ModelRefusedError("no")
            return says("Shelves were looked at; those after them are left.")
        self.requests.append(request)
        done = len(self._world.shop.made)
        if done == self.rounds:
            return says(f"done: {words(request)[0]}")
        return says("", call("look", f'{{"shelf":{done}}}', f"c{done}"))


def working(path: Path, **loop: Any) -> tuple[World, Worker]:
    """An agent with a context of 16,384 tokens, whose tool returns about 500 tokens each time."""
    world = World(path, max_iterations=ROUNDS + 10, **loop)
    world.brain.context_tokens = 16_384
    world.shop.result = lambda _name, arguments: f"shelf {arguments}: " + "a green book, " * 140
    worker = Worker(world)
    world.brain.think = worker.think
    return world, worker


def size(request: ModelRequest) -> int:
    texts = [one.text for one in request.messages]
    texts += [one.name + one.arguments for each in request.messages for one in each.tool_calls]
    return sum(len(text) // 4 + 1 for text in texts)


async def summary_of(conversations: Conversations, world: World) -> Summary:
    found = await world.sessions.read(SessionKey("assistant", ROMEO), tokens=10**9)
    assert found.summary is not None
    return found.summary


@pytest.mark.parametrize("sums_up", [True, False])
async def test_two_hundred_rounds_in_16k_tokens_keep_their_task(
    tmp_path: Path, sums_up: bool
) -> None:
    world, worker = working(tmp_path)
    worker.sums_up = sums_up
    async with world.life() as conversations:
        await conversations.received(message("m1", TASK))
        await world.ear.hears(1)
        await world.settled()
        summary = await summary_of(conversations, world)
    assert world.ear.bodies[0] == f"done: {TASK}"
    assert len(world.shop.made) == ROUNDS
    assert all(words(request)[0] == TASK for request in worker.requests), "the task is verbatim"
    assert max(map(size, worker.requests)) < 16_384
    # What was done is named, and what is not shown any more is said not to be.
    left = len([one for one in worker.requests[-1].messages if one.role == "tool"])
    assert f"[Calls of tools in this turn so far: look ({ROUNDS - left}).]" in summary.content
    assert ("shelves were looked at" in summary.content.casefold()) is sums_up
    assert (compaction.NOT_SUMMARISED in summary.content) is not sums_up
    assert summary.taints == ("person",)
    # It is rare: each time half of the context is free again.
    assert len(worker.summaries) <= ROUNDS // 10
    changed = [
        later
        for earlier, later in itertools.pairwise(worker.requests)
        if later.messages[: len(earlier.messages)] != earlier.messages
    ]
    assert len(changed) == len(worker.summaries)


async def test_the_notes_on_the_person_are_also_shown_after_a_summary(tmp_path: Path) -> None:
    world, worker = working(tmp_path)
    world.profile = type(world.profile)(agent="assistant", user="Likes tea.")
    async with world.life() as conversations:
        await conversations.received(message("m0", "hello"))
        worker.rounds = 0
        await world.ear.hears(1)
        worker.rounds = SEVERAL
        await conversations.received(message("m1", TASK))
        await world.ear.hears(2)
        summary = await summary_of(conversations, world)
    assert "Likes tea." in contexts(worker.requests[0])[0]
    assert "Likes tea." in summary.context
    assert summary.notes == prompt.notes_digest(world.profile)
    for request in worker.requests:
        assert sum(one.text.count("Likes tea.") for one in request.messages) == 1


async def test_messages_that_join_a_long_turn_stay_word_for_word(tmp_path: Path) -> None:
    world, worker = working(tmp_path)

    async def joining(request: ModelRequest) -> Completion:
        if len(worker.requests) == 3 and not joined:
            joined.append("m2")
            await world.conversations.received(message("m2", "and the red ones"))
        return worker.think(request)

    joined: list[str] = []
    worker.rounds = SEVERAL
    world.brain.think = joining
    async with world.life() as conversations:
        await conversations.received(message("m1", TASK))
        await world.ear.hears(1)
        assert words(worker.requests[-1]) == [TASK, "and the red ones"]
        requests = (await summary_of(conversations, world)).requests
    assert [line.turn for line in requests] == ["m1", "m2"]
    assert all(isinstance(line, Said) for line in requests)


async def test_a_long_turn_continues_unchanged_after_a_kill(tmp_path: Path) -> None:
    """After a kill, only the lines exist."""
    world, worker = working(tmp_path)
    world.death.at = None
    lives = 0
    while not world.ear.said:
        lives += 1
        world.death.points, world.death.dead = 0, False
        world.death.at = 400
        try:
            async with world.life() as conversations:
                if lives == 1:
                    await conversations.received(message("m1", TASK))
                await world.ear.hears(1)
        except BaseExceptionGroup:
            assert world.death.dead
    assert lives > 3
    assert world.ear.bodies[0] == f"done: {TASK}"
    assert [made[3] for made in world.shop.made] == [f'{{"shelf":{n}}}' for n in range(ROUNDS)]
    changed = [
        later
        for earlier, later in itertools.pairwise(worker.requests)
        if later.messages[: len(earlier.messages)] != earlier.messages
    ]
    assert len(changed) <= len(worker.summaries)


async def test_a_kill_at_any_point_of_a_summarised_turn(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    at = 1 + (anyio_backend_name == "asyncio")  # each takes other points
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        world, worker = working(folder)
        world.brain.context_tokens = 5_000
        worker.rounds = 14
        world.death.at = at
        try:
            async with world.life() as conversations:
                await conversations.received(message("m1", TASK))
                await world.ear.hears(1)
        except BaseExceptionGroup:
            assert world.death.dead, at
        killed = world.death.dead
        world.death.at, world.death.dead = None, False
        if killed:
            async with world.life() as conversations:
                if not await world.rows() and not world.ear.said:
                    await conversations.received(message("m1", TASK))  # it was not acknowledged
                await world.ear.hears(1)
                await world.settled()
        assert {reply.text for reply in world.ear.said} == {f"done: {TASK}"}, at
        made = [made[3] for made in world.shop.made]
        assert made == [f'{{"shelf":{number}}}' for number in range(14)], at
        assert all(words(request)[0] == TASK for request in worker.requests), at
        assert worker.summaries
        if not killed:
            assert at > 100, "there are many points to be killed at"
            return
        at += 8
