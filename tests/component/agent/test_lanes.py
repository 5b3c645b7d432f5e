"""Whose turn it is: in order within a session, fair between principals."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from component.agent.lanes import Lane, Lanes, Turn
from component.memory.lines import SessionKey
from tests.component.agent.world import JULIET, ROMEO, message

KEYS = [SessionKey(agent, who) for agent in ("a", "b") for who in (ROMEO, JULIET)]


def test_principals_take_turns_however_much_one_brings() -> None:
    lanes = Lanes()
    for number in range(3):
        lanes.add(
            SessionKey(f"a{number}", ROMEO),
            Turn(message(f"r{number}", agent=f"a{number}"), stored=True),
        )
    lanes.add(SessionKey("a", JULIET), Turn(message("j", who=JULIET), stored=True))
    begun = []
    while (lane := lanes.begin()) is not None:
        assert lane.running is not None
        begun.append(lane.running.incoming.id)
    assert begun == ["r0", "j", "r1", "r2"]


def test_nothing_is_kept_of_a_session_that_has_nothing_to_do() -> None:
    lanes = Lanes()
    for number in range(100):
        lane = lanes.add(SessionKey(str(number), ROMEO), Turn(message(str(number)), stored=True))
        assert lanes.begin() is lane
        lanes.end(lane)
    assert lanes.all() == []
    assert not any((lanes._ready, lanes._ring, lanes._waiting, lanes._lanes))


class Machine(RuleBasedStateMachine):
    """Against a model of plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.expected: dict[SessionKey, list[Turn]] = defaultdict(list)
        self.running: dict[SessionKey, Lane] = {}
        self.held: dict[SessionKey, list[Lane]] = defaultdict(list)
        self.numbers = 0

    @rule(key=st.sampled_from(KEYS), first=st.booleans(), stored=st.booleans())
    def add(self, key: SessionKey, first: bool, stored: bool) -> None:
        self.numbers += 1
        turn = Turn(message(str(self.numbers)), stored=stored)
        self.lanes.add(key, turn, first=first)
        self.expected[key].insert(0 if first else len(self.expected[key]), turn)

    @rule(key=st.sampled_from(KEYS), at=st.integers(0, 3))
    def store(self, key: SessionKey, at: int) -> None:
        lane = self.lanes.of(key)
        if lane is not None and at < len(self.expected[key]):
            self.expected[key][at].stored = True
            self.lanes.look(lane)

    @rule(key=st.sampled_from(KEYS), at=st.integers(0, 3))
    def remove(self, key: SessionKey, at: int) -> None:
        lane = self.lanes.of(key)
        if lane is not None and at < len(self.expected[key]):
            turn = self.expected[key].pop(at)
            assert self.lanes.remove(lane, turn)
            assert not self.lanes.remove(lane, turn)

    @rule(key=st.sampled_from(KEYS))
    def hold(self, key: SessionKey) -> None:
        self.held[key].append(self.lanes.hold(key))

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in KEYS if self.held[key]]))
        self.lanes.release(self.held[key].pop())

    def may_begin(self, key: SessionKey) -> bool:
        waiting = self.expected[key]
        free = key not in self.running and not self.held[key]
        return free and bool(waiting) and waiting[0].stored

    @rule()
    def begin(self) -> None:
        lane = self.lanes.begin()
        if lane is None:
            assert not any(self.may_begin(key) for key in KEYS)
            return
        assert self.may_begin(lane.key)
        assert lane.running is self.expected[lane.key].pop(0)
        self.running[lane.key] = lane

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in KEYS if key in self.running]))
        self.lanes.end(self.running.pop(key))

    @invariant()
    def counts(self) -> None:
        assert self.lanes.running == len(self.running)
        for who in (ROMEO, JULIET):
            waiting = sum(len(self.expected[key]) for key in KEYS if key.who == who)
            assert self.lanes.waiting(who) == waiting
        there = {lane.key for lane in self.lanes.all()}
        assert there == {
            key for key in KEYS if self.expected[key] or key in self.running or self.held[key]
        }


TestLanes = Machine.TestCase
TestLanes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
