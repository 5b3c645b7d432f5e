"""Whatever comes while a turn begins, runs, waits or is stopped, each message is answered once.

Hypothesis draws what people do and how many steps each wait takes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from component.agent import sentences
from component.agent.protocol import Incoming, ToolResult
from component.memory.lines import SessionKey
from component.models.protocol import Completion, ModelRequest, ModelUnavailableError
from component.storage.errors import StorageError
from component.storage.sqlite import SQLite
from tests.component.agent.interleaved import Paced, a_database, in_order_of, without_time
from tests.component.agent.world import JULIET, ROMEO, call, echo, message, says

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
        if line["log_level"] in ("error", "critical") and line["event"] != "a turn broke"
    ]
    assert not faults, faults


def fresh(database: SQLite, steps: Sequence[int], **loop: float) -> Paced:
    database._writer.execute("DELETE FROM turns")
    return Paced(database, steps, **loop)


def check(world: Paced, taken: Sequence[str], stopped: bool) -> None:
    """Each message that was taken is covered by one answer; if there was a stop, by one at most."""
    covered = Counter(one for _, ids in world.answers for one in ids)
    assert set(covered) <= set(taken)
    assert not [one for one, times in covered.items() if times > 1], world.answers
    if not stopped:
        assert set(covered) == set(taken)
    over = Counter(world.over)
    assert not [one for one, times in over.items() if times > 1], "a turn was ended twice"
    said = [reply.id for reply in world.ear.said if reply.id.endswith(".answer")]
    assert said == [f"{turn}.answer" for turn, _ in world.answers]
    assert not world.purse.open
    assert not any(vars(world.conversations._lanes)[name] for name in ("_ready", "_ring"))
    assert world.conversations._lanes.running == 0


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
def test_a_message_behind_one_that_is_not_taken_is_answered(backend: str, database: SQLite) -> None:
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
def test_what_a_stop_has_not_ended_when_it_is_cancelled_is_answered(
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
            lane = conversations._lanes.hold(SessionKey("assistant", ROMEO))
            await conversations.received(message("m0"))
            world.talks.append = slowly  # type: ignore[method-assign]  # its note takes long
            async with anyio.create_task_group() as group:
                group.start_soon(conversations.stop, "assistant", ROMEO)
                await waits.wait()
                group.cancel_scope.cancel()
            world.talks.append = stop  # type: ignore[method-assign]  # as it was
            conversations._lanes.release(lane)
            await world.quiet()
        check(world, ["m0"], stopped=False)

    run(backend, 0, story)


WHO = {"romeo": ROMEO, "juliet": JULIET}
DEEDS = st.one_of(
    st.tuples(st.just("say"), st.sampled_from(sorted(WHO)), st.sampled_from(["a", "b"])),
    st.tuples(st.just("stop"), st.sampled_from(sorted(WHO))),
    st.tuples(st.just("new"), st.sampled_from(sorted(WHO))),
    st.tuples(st.just("stop agent")),
    st.tuples(st.just("end task"), st.integers(0, 5)),
    st.tuples(st.just("stream"), st.booleans()),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(st.just("cancel a stop"), st.sampled_from(sorted(WHO))),
)
THOUGHTS = st.lists(
    st.sampled_from(["answer", "answer", "look", "order", "ask", "none", "broken", "later", ""]),
    min_size=1,
    max_size=12,
)


class Story:
    """People and tasks that do what was drawn, each deed beside the others."""

    def __init__(self, world: Paced, thoughts: Sequence[str]) -> None:
        self.world = world
        self.taken: list[str] = []
        self.offered: list[Incoming] = []
        self.stopped = False
        self._thoughts = list(thoughts)
        self._calls = 0
        world.thinks(self._think)

    def _think(self, request: ModelRequest) -> Completion:
        thought = self._thoughts.pop(0) if self._thoughts else "answer"
        self._calls += 1
        match thought:
            case "none":
                raise ModelUnavailableError("It is away.")
            case "broken":
                raise RuntimeError("A mistake of ours.")
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
            case "say", who, thread:
                one = message(f"m{len(self.offered)}", who=WHO[who], thread=thread)
                self.offered.append(one)
                await self._receive(one)
            case "stop", who:
                self.stopped = True
                await conversations.stop("assistant", WHO[who])
            case "new", who:
                self.stopped = True
                await conversations.new("assistant", WHO[who])
            case ("stop agent",):
                self.stopped = True
                await conversations.stop_agent("assistant")
            case "cancel a stop", who:
                self.stopped = True
                async with anyio.create_task_group() as group:
                    group.start_soon(conversations.stop, "assistant", WHO[who])
                    await world.pace()
                    group.cancel_scope.cancel()
            case "end task", at:
                tasks = sorted(world.shop.tasks)
                if tasks:
                    await self._end(tasks[at % len(tasks)])
            case "stream", on:
                world.ear.stream = on
                if on:
                    conversations.connected()
            case "refuse", times:
                world.paced.refuses += times

    async def _receive(self, one: Incoming) -> None:
        try:
            await self.world.conversations.received(one)
        except StorageError:
            return
        full = f"{one.id}.full"
        if one.id not in self.taken and full not in [reply.id for reply in self.world.ear.said]:
            self.taken.append(one.id)

    async def _end(self, task: str) -> None:
        self.world.shop.tasks[task] = ToolResult("It is done.")
        while True:
            try:
                return await self.world.conversations.ended(task)
            except StorageError:
                await self.world.pace()

    async def come_to_rest(self) -> None:
        """Let all that was refused, parked or unsaid go on to its end."""
        world = self.world
        world.paced.refuses = 0
        world.ear.stream = True
        world.conversations.connected()
        await world.quiet()
        for _ in range(1000):
            if not await world.rows():
                return
            for task in sorted(world.shop.tasks):
                await self._end(task)
            await anyio.lowlevel.checkpoint()
            await world.quiet()
        raise AssertionError(f"these are not answered: {await world.rows()}")


@BACKENDS
@given(
    deeds=st.lists(st.tuples(DEEDS, st.integers(0, 12)), max_size=14),
    thoughts=THOUGHTS,
    steps=STEPS,
    seed=st.integers(0, 2**32),
)
def test_whatever_comes_in_between_each_message_is_answered_once(
    backend: str,
    database: SQLite,
    deeds: list[tuple[tuple[Any, ...], int]],
    thoughts: list[str],
    steps: list[int],
    seed: int,
) -> None:
    async def tell() -> None:
        world = fresh(database, steps)
        story = Story(world, thoughts)
        async with world.life():
            async with anyio.create_task_group() as group:
                for deed, pause in deeds:
                    group.start_soon(story.do, deed)
                    for _ in range(pause):
                        await anyio.lowlevel.checkpoint()
            await story.come_to_rest()
        check(world, story.taken, story.stopped)

    run(backend, seed, tell)
