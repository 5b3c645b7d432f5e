"""The order of turns: fair to principals, limited, and without starvation."""

import itertools
from collections import deque
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from component.agent.scheduler import Scheduler
from tests.component.agent.world import JULIET, ROMEO
from tests.profiles import examples
from xep.jid import JID

WHO = (ROMEO, JULIET, JID.parse("mercutio@example.org"))


class Group:
    """Collects tasks, and runs them on request."""

    def __init__(self) -> None:
        self.tasks: deque[Any] = deque()

    def start_soon(self, work: Any, *args: Any) -> None:
        self.tasks.append((work, args))

    def run_next(self, at: int = 0) -> None:
        self.tasks.rotate(-at)
        work, args = self.tasks.popleft()
        with pytest.raises(StopIteration):
            work(*args).send(None)


class Actor:
    """A conversation with so many turns; if it is `blocked`, none can begin."""

    def __init__(self, scheduler: Scheduler, principal: JID, begun: list["Actor"]) -> None:
        self.party = str(principal)
        self.turns = 0
        self.running = self.blocked = False
        self._scheduler = scheduler
        self._begun = begun

    @property
    def can_begin(self) -> bool:
        return bool(self.turns) and not self.running and not self.blocked

    def look(self) -> None:
        if self.can_begin:
            self._scheduler.ready(self)

    def begin(self) -> bool:
        if not self.can_begin:
            return False
        self.running = True
        self.turns -= 1
        self._begun.append(self)
        return True

    async def work(self) -> None:
        self.running = False
        self.look()


def world(limit: int) -> tuple[Scheduler, Group, list[Actor]]:
    scheduler, group = Scheduler(limit), Group()
    scheduler.open(group)  # type: ignore[arg-type]  # all of it that is used
    return scheduler, group, []


def test_parties_take_turns_in_rotation() -> None:
    scheduler, group, begun = world(1)
    actors = [Actor(scheduler, ROMEO, begun) for _ in range(4)]
    actors.append(Actor(scheduler, JULIET, begun))
    for actor in actors:
        actor.turns = 1
        actor.look()
    while group.tasks:
        group.run_next()
    assert begun == [actors[0], actors[1], actors[4], actors[2], actors[3]]


def test_turns_begin_only_with_a_task_group() -> None:
    scheduler, begun = Scheduler(9), list[Actor]()
    actors = [Actor(scheduler, who, begun) for who in WHO]
    for actor in actors:
        actor.turns = 1
        actor.look()
    assert not begun
    scheduler.open(Group())  # type: ignore[arg-type]  # all of it that is used
    assert begun == actors


@given(brought=st.lists(st.tuples(st.sampled_from(WHO), st.integers(1, 4)), max_size=12))
def test_between_two_turns_of_a_principal_every_other_principal_has_one(
    brought: list[tuple[JID, int]],
) -> None:
    scheduler, group, begun = world(1)
    for who, count in brought:
        actor = Actor(scheduler, who, begun)
        actor.turns = count
        actor.look()
    while group.tasks:
        group.run_next()
    assert len(begun) == sum(count for _, count in brought)
    order = [JID.parse(actor.party) for actor in begun]
    for who in {who for who, _ in brought}:
        mine = [at for at, one in enumerate(order) if one == who]
        # Before it came another one may have begun already.
        assert all(order[: mine[0]].count(one) <= 2 for one in WHO)
        for before, after in itertools.pairwise(mine):
            assert all(order[before + 1 : after].count(one) <= 1 for one in WHO)


class Machine(RuleBasedStateMachine):
    """Conversations that get turns, are held, and end turns in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Actor] = []
        self.scheduler, self.group, self.begun = world(2)
        self.actors = [Actor(self.scheduler, who, self.begun) for who in WHO for _ in range(2)]
        self.given = 0

    @rule(at=st.integers(0, 5))
    def bring(self, at: int) -> None:
        self.actors[at].turns += 1
        self.given += 1
        self.actors[at].look()

    @rule(at=st.integers(0, 5))
    def take_back(self, at: int) -> None:
        if self.actors[at].turns:
            self.actors[at].turns -= 1
            self.given -= 1

    @rule(at=st.integers(0, 5))
    def hold(self, at: int) -> None:
        self.actors[at].blocked = True

    @rule(at=st.integers(0, 5))
    def release(self, at: int) -> None:
        self.actors[at].blocked = False
        self.actors[at].look()

    @precondition(lambda self: self.group.tasks)
    @rule(at=st.integers(0, 3))
    def end(self, at: int) -> None:
        self.group.run_next(at)

    @invariant()
    def turns_are_bounded_and_none_is_lost(self) -> None:
        running = sum(actor.running for actor in self.actors)
        assert self.scheduler.running == running == len(self.group.tasks) <= 2
        assert self.given == len(self.begun) + sum(actor.turns for actor in self.actors)

    @invariant()
    def a_free_place_is_used(self) -> None:
        assert self.scheduler.running == 2 or not any(one.can_begin for one in self.actors)

    def teardown(self) -> None:
        for actor in self.actors:
            actor.blocked = False
            actor.look()
        while self.group.tasks:
            self.group.run_next()
        assert self.given == len(self.begun)
        assert not any((self.scheduler._ready, self.scheduler._parties, self.scheduler._queued))


TestScheduler = Machine.TestCase
TestScheduler.settings = settings(examples(20), stateful_step_count=40)


@pytest.mark.anyio
async def test_a_cancelled_turn_frees_its_slot() -> None:
    scheduler, begun = Scheduler(1), list[Actor]()

    class Slow(Actor):
        async def work(self) -> None:
            with anyio.CancelScope() as self.scope:
                await anyio.sleep_forever()
            await super().work()

    first, second = Slow(scheduler, ROMEO, begun), Slow(scheduler, JULIET, begun)
    async with anyio.create_task_group() as group:
        scheduler.open(group)
        for actor in (first, second):
            actor.turns = 1
            actor.look()
        await anyio.wait_all_tasks_blocked()
        assert begun == [first]
        first.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert begun == [first, second]
        second.scope.cancel()
