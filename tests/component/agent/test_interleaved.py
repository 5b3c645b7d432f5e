"""Whatever comes while a turn begins, runs, waits or is stopped, each message is answered once.

Hypothesis draws what people do and how many steps each wait takes.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from component.agent import sentences
from component.agent.conversations import TooManyWaitingError
from component.agent.protocol import ToolResult
from component.agent.requests import Outcome, TurnRequest
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest, ModelUnavailableError
from component.store.errors import StorageError
from component.store.sqlite import SQLite
from tests.component.agent.interleaved import Paced, a_database, in_order_of, without_time
from tests.component.agent.world import (
    JULIET,
    ROMEO,
    call,
    command,
    echo,
    message,
    over,
    says,
    shopping,
)
from xep.jid import JID

BACKENDS = pytest.mark.parametrize("backend", ["trio", "asyncio"])
STEPS = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLite]:
    with a_database(tmp_path_factory.mktemp("interleaved")) as database, without_time():
        yield database


def run(backend: str, seed: int, story: Any) -> None:
    with in_order_of(seed), structlog.testing.capture_logs() as logs:
        anyio.run(story, backend=backend)
    faults = [
        line
        for line in logs
        if line["log_level"] in ("error", "critical") and line["event"] != "a turn failed"
    ]
    assert not faults, faults


def fresh(
    database: SQLite, steps: Sequence[int], jumps: Sequence[int] = (), **loop: float
) -> Paced:
    for table in ("turns", "waiters", "tasks"):
        database._writer.execute(f"DELETE FROM {table}")
    return Paced(database, steps, jumps, **loop)


def check(
    world: Paced, taken: Sequence[str], stopped: bool, retracted: Collection[str] = ()
) -> None:
    """Each accepted message is covered by one answer; if there was a stop, by at most one. No
    answer is only for retracted messages.
    """
    covered = Counter(one for _, ids in world.answers for one in ids)
    assert set(covered) <= {*taken, *retracted}
    assert not [one for one, times in covered.items() if times > 1], world.answers
    assert not [ids for _, ids in world.answers if set(ids) <= set(retracted)]
    if not stopped:
        assert set(covered) - set(retracted) == set(taken)
    over = Counter(world.purse.over)
    assert not [one for one, times in over.items() if times > 1], "a turn was ended twice"
    said = [reply.id for reply in world.ear.said if reply.id.endswith(".answer")]
    assert said == [f"{turn}.answer" for turn, _ in world.answers]
    assert not world.purse.open
    scheduler = world.conversations.scheduler
    assert not any((scheduler._ready, scheduler._parties, scheduler._queued))
    assert not any((scheduler.running, scheduler.waiting))
    assert not any((world.conversations._conversations, world.conversations.awaited))


@BACKENDS
@given(steps=STEPS, between=STEPS, seed=st.integers(0, 2**32))
@example(steps=[1], between=[0], seed=0)
def test_eight_quick_messages(
    backend: str, database: SQLite, steps: list[int], between: list[int], seed: int
) -> None:
    async def story() -> None:
        world = fresh(database, steps)
        world.thinks(echo)
        async with world.life() as conversations:
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(conversations.received, message(f"m{number}"))
                    for _ in range(between[number % len(between)]):
                        await anyio.lowlevel.checkpoint()
            await world.quiet()
            assert not await world.rows()
        check(world, [f"m{number}" for number in range(8)], stopped=False)
        assert sentences.BROKE not in world.ear.bodies

    run(backend, seed, story)


@BACKENDS
def test_a_message_after_a_rejected_one_is_answered(backend: str, database: SQLite) -> None:
    async def story() -> None:
        world = fresh(database, [0])
        async with world.life() as conversations:
            write, first = world.paced.write, anyio.Event()

            async def refuse(_op: Any, **_how: Any) -> Any:
                await first.wait()
                raise StorageError("The disk refuses.")

            async def one() -> None:
                with pytest.raises(StorageError):
                    await conversations.received(message("m0"))

            async with anyio.create_task_group() as group:
                world.paced.write = refuse  # type: ignore[method-assign]  # for the first message
                group.start_soon(one)
                await anyio.wait_all_tasks_blocked()
                world.paced.write = write  # type: ignore[method-assign]  # for all others
                await conversations.received(message("m1"))
                assert not world.answers, "the first one has its place before it"
                first.set()
            await world.quiet()
        check(world, ["m1"], stopped=False)

    run(backend, 0, story)


@BACKENDS
def test_turns_that_a_cancelled_stop_has_not_ended_are_answered(
    backend: str, database: SQLite
) -> None:
    async def story() -> None:
        world = fresh(database, [0])
        waits, go_on = anyio.Event(), anyio.Event()
        stop = world.talks.append

        async def slowly(*args: Any, **how: Any) -> None:
            if args[1] and getattr(args[1][-1], "content", "") == sentences.STOPPED_NOTE:
                waits.set()
                await go_on.wait()
            await stop(*args, **how)

        async with world.life() as conversations:
            conversation = conversations._of(SessionKey("assistant", ROMEO))
            conversation._holds += 1
            await conversations.received(message("m0"))
            world.talks.append = slowly  # type: ignore[method-assign]  # its note takes long
            async with anyio.create_task_group() as group:
                group.start_soon(conversations.stop, SessionKey("assistant", ROMEO))
                await waits.wait()
                group.cancel_scope.cancel()
            world.talks.append = stop  # type: ignore[method-assign]  # as it was
            conversation._holds -= 1
            conversation.look()
            await world.quiet()
        check(world, ["m0"], stopped=False)

    run(backend, 0, story)


@BACKENDS
def test_a_retraction_that_fails_puts_the_message_back_into_the_same_conversation(
    backend: str, database: SQLite
) -> None:
    async def story() -> None:
        world = fresh(database, [1])
        world.ear.stream = True
        at_once: list[int] = []
        running = 0

        async def think(request: ModelRequest) -> Completion:
            nonlocal running
            running += 1
            at_once.append(running)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            running -= 1
            return echo(request)

        async with world.life() as conversations:
            conversation = conversations._of(SessionKey("assistant", ROMEO))
            conversation._holds += 1
            await conversations.received(message("m0", msg_id="m0", thread="a"))
            world.brain.think = think
            write, refused = world.paced.write, anyio.Event()

            async def refuse(_op: Any, **_how: Any) -> Any:
                await refused.wait()
                raise StorageError("The disk refuses.")

            async def retract() -> None:
                with pytest.raises(StorageError):
                    await conversations.revised(SessionKey("assistant", ROMEO), "m0", None)

            async with anyio.create_task_group() as group:
                world.paced.write = refuse  # type: ignore[method-assign]  # the retraction
                group.start_soon(retract)
                await anyio.wait_all_tasks_blocked()
                world.paced.write = write  # type: ignore[method-assign]  # all others
                conversation._holds -= 1
                conversation.look()
                await conversations.received(message("m1", thread="b"))
                refused.set()
            await world.quiet()
        check(world, ["m0", "m1"], stopped=False)
        assert at_once == [1, 1], "two turns of one conversation never run at the same time"

    run(backend, 0, story)


@BACKENDS
def test_a_task_that_ends_while_its_turn_is_being_parked_is_not_missed(
    backend: str, database: SQLite
) -> None:
    async def story() -> None:
        world = fresh(database, [0])
        world.thinks(shopping("order"))
        parked, go_on = anyio.Event(), anyio.Event()
        write = world.paced.write

        async def slowly(op: Any, **how: Any) -> Any:
            found = await write(op, **how)
            if "until_ended" in getattr(op, "__qualname__", ""):
                parked.set()
                await go_on.wait()
            return found

        world.paced.write = slowly  # type: ignore[method-assign]  # it is written, and not known yet
        async with world.life() as conversations:
            await conversations.received(message("m0"))
            await parked.wait()
            (task,) = world.shop.tasks
            world.shop.tasks[task] = ToolResult("It is done.")
            await world.ended(task)
            go_on.set()
            for _ in range(1_000):
                await anyio.lowlevel.checkpoint()
            assert not await world.rows()
        check(world, ["m0"], stopped=False)

    run(backend, 0, story)


@BACKENDS
def test_nothing_begins_in_a_conversation_that_is_being_stopped(
    backend: str, database: SQLite
) -> None:
    async def story() -> None:
        world = fresh(database, [0], turns_total=1)
        thinking, go_on = anyio.Event(), anyio.Event()

        async def think(request: ModelRequest) -> Completion:
            thinking.set()
            await go_on.wait()
            return echo(request)

        world.brain.think = think
        async with world.life() as conversations:
            await conversations.received(message("m0", who=JULIET))
            await thinking.wait()
            await conversations.received(message("m1"))  # it is queued behind that one
            conversation = conversations._of(SessionKey("assistant", ROMEO))
            async with conversation.stopped() as stopped:
                assert stopped.turns == 1
                await conversations.received(message("m2"))
                go_on.set()
                await anyio.wait_all_tasks_blocked()
                assert not conversation.is_running
                assert len(conversation.waiting) == 1
            await world.quiet()
        check(world, ["m0", "m2"], stopped=False)

    run(backend, 0, story)


PEOPLE = st.sampled_from([ROMEO, JULIET])
AGENTS = st.sampled_from(["assistant", "assistant", "reader"])
DEEDS = st.one_of(
    st.tuples(st.just("say"), PEOPLE, AGENTS, st.sampled_from(["a", "b"]), st.booleans()),
    st.tuples(st.just("cancel a message"), PEOPLE, AGENTS),
    st.tuples(st.just("tell"), PEOPLE, AGENTS),
    st.tuples(st.just("stop"), PEOPLE, AGENTS),
    st.tuples(st.just("new"), PEOPLE, AGENTS),
    st.tuples(st.just("stop agent"), AGENTS),
    st.tuples(st.just("end task"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("stream"), st.booleans()),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(st.just("cancel a stop"), PEOPLE, AGENTS),
    st.tuples(st.just("revise"), st.integers(0, 9), st.booleans()),
)
JUMPS = st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=8)
THOUGHTS = st.lists(
    st.sampled_from(["answer", "answer", "look", "order", "ask", "none", "broken", "later", ""]),
    min_size=1,
    max_size=12,
)


class Story:
    """People, operators and tasks that perform the drawn actions concurrently."""

    def __init__(self, world: Paced, thoughts: Sequence[str]) -> None:
        self.world = world
        self.taken: list[str] = []
        self.offered: list[TurnRequest] = []
        self.told: dict[str, list[Outcome]] = {}
        self.taken_back: set[str] = set()
        self.corrected: set[str] = set()
        self.stopped = False
        self._thoughts = list(thoughts)
        self._calls = 0
        world.thinks(self._think)
        world.crowd.known_at_once = False

    def _think(self, request: ModelRequest) -> Completion:
        thought = self._thoughts.pop(0) if self._thoughts else "answer"
        self._calls += 1
        match thought:
            case "none":
                raise ModelUnavailableError("It is away.")
            case "broken":
                raise RuntimeError("A fault of the service.")
            case "later":
                return says("[[delay:1s]] Later.")
            case "look" | "order" | "ask" if request.tools:
                return says("", call(thought, "{}", f"c{self._calls}"))
            case "":
                return says("")
        return echo(request)

    async def do(self, deed: tuple[Any, ...]) -> None:
        world, conversations = self.world, self.world.conversations
        match deed:
            case "say", who, agent, thread, known:
                label = "person" if known else None
                await self._receive(self._message(who, agent, thread=thread, taint=label))
            case "cancel a message", who, agent:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._receive, self._message(who, agent))
                    await world.pace()
                    group.cancel_scope.cancel()
            case "tell", who, agent:
                one = command(f"o{len(self.told)}", who=who, agent=agent)
                self.told[one.id] = []
                await self._receive(one)
            case (("stop" | "new" | "stop agent" | "cancel a stop"), *_):
                self.stopped = True
                with contextlib.suppress(StorageError):  # they would do it again
                    await self._stop(deed)
            case "revise", at, back:
                if at < len(self.offered):
                    await self._revise(self.offered[at], None if back else "something else")
            case "end task", at, elsewhere:
                tasks = sorted(world.shop.tasks)
                if tasks and world.shop.tasks[tasks[at % len(tasks)]] is None:
                    await self._end(tasks[at % len(tasks)], elsewhere=elsewhere)
            case "stream", on:
                world.ear.stream = on
                if on:
                    conversations.connected()
            case "refuse", times:
                world.paced.refuses += times

    async def _stop(self, deed: tuple[Any, ...]) -> None:
        conversations = self.world.conversations
        match deed:
            case "stop", who, agent:
                await conversations.stop(SessionKey(agent, who))
            case "new", who, agent:
                await conversations.new(SessionKey(agent, who))
            case "stop agent", agent:
                await conversations.stop_agent(agent)
            case "cancel a stop", who, agent:
                async with anyio.create_task_group() as group:
                    group.start_soon(conversations.stop, SessionKey(agent, who))
                    await self.world.pace()
                    group.cancel_scope.cancel()

    def _message(self, who: JID, agent: str, **more: Any) -> TurnRequest:
        id_ = f"m{len(self.offered)}"
        self.offered.append(message(id_, who=who, agent=agent, msg_id=id_, **more))
        return self.offered[-1]

    async def _receive(self, one: TurnRequest) -> None:
        told = self.told.get(one.id)
        try:
            await self.world.conversations.received(one, None if told is None else told.append)
        except (StorageError, TooManyWaitingError):
            return
        full = f"{one.id}.full"
        if full not in [reply.id for reply in self.world.ear.said]:
            self.taken.append(one.id)

    async def _revise(self, one: TurnRequest, text: str | None) -> None:
        revised = self.world.conversations.revised
        try:
            done = await revised(one.session, one.id, text)
        except StorageError:
            return
        if done:
            (self.taken_back if text is None else self.corrected).add(one.id)

    async def _end(self, task: str, *, elsewhere: bool = False) -> None:
        self.world.shop.tasks[task] = ToolResult("It is done.")
        while True:
            try:
                if not elsewhere:
                    return await self.world.ended(task)
                await self.world.paced.write(partial(over, task=task))
            except StorageError:
                await self.world.pace()
            else:
                return self.world.paced.notify()

    async def come_to_rest(self) -> None:
        """Complete everything that was refused, parked or not sent."""
        world = self.world
        world.paced.refuses = 0
        world.ear.stream = True
        world.conversations.connected()
        await world.quiet()
        for _ in range(1000):
            if not await world.rows():
                return
            # Each ends once: what misses its end waits for ever.
            for task in sorted(one for one, result in world.shop.tasks.items() if result is None):
                await self._end(task)
            await anyio.lowlevel.checkpoint()
            await world.quiet()
        raise AssertionError(f"these are not answered: {await world.rows()}")


@BACKENDS
@given(
    deeds=st.lists(st.tuples(DEEDS, st.integers(0, 12)), max_size=14),
    thoughts=THOUGHTS,
    steps=STEPS,
    jumps=JUMPS,
    at_once=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 2**32),
)
def test_each_message_is_answered_once_in_any_interleaving(
    backend: str,
    database: SQLite,
    deeds: list[tuple[tuple[Any, ...], int]],
    thoughts: list[str],
    steps: list[int],
    jumps: list[int],
    at_once: int,
    seed: int,
) -> None:
    async def tell() -> None:
        world = fresh(database, steps, jumps, waiting_per_principal=6, turns_total=at_once)
        story = Story(world, thoughts)
        async with world.life():
            async with anyio.create_task_group() as group:
                for deed, pause in deeds:
                    group.start_soon(story.do, deed)
                    for _ in range(pause):
                        await anyio.lowlevel.checkpoint()
            await story.come_to_rest()
        left = [one for one in story.taken if one not in story.taken_back]
        check(world, left, story.stopped, story.taken_back)
        asked = [line for lines in world.talks.lines.values() for line in lines]
        texts = {
            one.turn: one.content for one in asked if isinstance(one, Said) and one.role == "user"
        }
        # A stop in the same moment may record the earlier text.
        for id_ in () if story.stopped else story.corrected - story.taken_back:
            assert texts.get(id_, "something else") == "something else"
        for id_, outcomes in story.told.items():
            assert bool(outcomes) == (id_ in story.taken), "each command is told what came of it"

    run(backend, seed, tell)
