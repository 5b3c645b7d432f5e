"""What was just answered at once: bounds, the window, conflicts, and any sequence of requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.execution import Recent
from xep.fluux_agent import errors
from xep.fluux_agent.errors import Conflict
from xep.fluux_agent.execute import Execute, Output, Param, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

ALICE = JID.parse("alice@a.example/phone")
AGENT = JID.parse("assistant@agent.example.com")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def key(id_: str, requester: JID = ALICE, target: JID = AGENT) -> tuple[JID, JID, str]:
    return requester, target, id_


def asked(*texts: tuple[str, str]) -> Execute:
    return Execute(skill="it", params=tuple(Param(name=name, text=text) for name, text in texts))


def said(text: str = "x") -> Result:
    return Result(skill="it", outputs=(Output(name="output", text=text),))


def test_a_repetition_has_the_answer_of_the_first_and_everything_else_is_new() -> None:
    recent = Recent(60)
    recent.put(key("1"), asked(), 100, said())
    assert recent.get(key("1"), asked()) == said()
    assert recent.get(key("2"), asked()) is None
    assert recent.get(key("1", JID.parse("alice@a.example/desk")), asked()) is None
    assert recent.get(key("1", target=JID.parse("agent.example.com")), asked()) is None


def test_other_content_is_a_conflict_and_another_order_of_names_is_not() -> None:
    recent = Recent(60)
    recent.put(key("1"), asked(("a", "1"), ("b", "2")), 100, said())
    assert recent.get(key("1"), asked(("b", "2"), ("a", "1"))) == said()
    with pytest.raises(StanzaError) as refused:
        recent.get(key("1"), asked(("a", "2"), ("b", "1")))
    assert (refused.value.condition, refused.value.application) == ("conflict", (Conflict(),))
    # And the first one still stands.
    assert recent.get(key("1"), asked(("a", "1"), ("b", "2"))) == said()


def test_an_error_is_an_answer_too_and_each_time_another_exception() -> None:
    recent = Recent(60)
    recent.put(key("1"), asked(), 100, errors.internal())
    raised = []
    for _ in range(2):
        with pytest.raises(StanzaError) as caught:
            recent.get(key("1"), asked())
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert [error.encode() for error in raised] == [errors.internal().encode()] * 2


def test_the_window_ends() -> None:
    clock = Clock()
    recent = Recent(60, clock=clock)
    recent.put(key("1"), asked(), 100, said())
    clock.now = 59.9
    assert recent.get(key("1"), asked()) == said()
    clock.now = 60.0
    assert recent.get(key("1"), asked(("other", "content"))) is None


def test_what_went_elsewhere_is_known_whatever_its_content() -> None:
    recent = Recent(60)
    recent.went_elsewhere(key("1"))
    assert recent.get(key("1"), asked()) == "elsewhere"
    assert recent.get(key("2"), asked()) is None


def test_many_and_big_answers_are_forgotten_the_oldest_first() -> None:
    recent = Recent(60, entries=10)
    for number in range(100):
        recent.put(key(str(number)), asked(), 100, said())
        assert len(recent) <= 10
        assert recent.get(key(str(number)), asked()) is not None
        # At least half of the bound is kept.
        assert recent.get(key(str(max(0, number - 4))), asked()) is not None
    recent = Recent(60, size=100_000)
    for number in range(100):
        recent.put(key(str(number)), asked(), 100, said("x" * 10_000))
        assert len(recent) * 10_000 <= 100_000
    # One that is too big alone does not push the others out.
    recent.put(key("big"), asked(), 100, said("x" * 100_000))
    assert recent.get(key("big"), asked()) is None
    assert recent.get(key("99"), asked()) is not None


_IDS = st.sampled_from("abcdefgh")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), _IDS, st.integers(0, 1)),
        st.tuples(st.just("elsewhere"), _IDS, st.just(0)),
        st.tuples(st.just("time"), st.just(""), st.integers(1, 40)),
    ),
    max_size=40,
)


@given(steps=_STEPS, entries=st.integers(2, 12))
def test_any_sequence_is_as_if_all_were_remembered_but_for_what_is_forgotten(
    steps: list[tuple[str, str, int]], entries: int
) -> None:
    """It may forget; what it says is never wrong, and never older than the window."""
    clock = Clock()
    recent = Recent(60, entries=entries, clock=clock)
    model: dict[str, tuple[int, str, float] | None] = {}
    order: list[str] = []
    for step, (kind, id_, number) in enumerate(steps):
        if kind == "time":
            clock.now += number
            continue
        if kind == "elsewhere":
            recent.went_elsewhere(key(id_))
            model[id_] = None
            order.append(id_)
            continue
        execute = asked(("n", str(number)))
        known = model.get(id_, "new")
        answer: object
        try:
            answer = recent.get(key(id_), execute)
        except StanzaError as error:
            answer = error
        if isinstance(answer, StanzaError):
            assert answer.condition == "conflict"
            assert isinstance(known, tuple)
            assert known[0] != number
            assert clock.now < known[2]
            continue
        if isinstance(answer, Result):
            assert isinstance(known, tuple)
            assert (known[0], known[1]) == (number, answer.outputs[0].text)
            assert clock.now < known[2]
        elif answer == "elsewhere":
            assert known is None
        else:
            # New, over, or forgotten: and nothing is forgotten while half of the bound is free.
            if known != "new" and not (isinstance(known, tuple) and known[2] <= clock.now):
                assert id_ not in order[-(entries // 2) :]
            recent.put(key(id_), execute, 100, said(str(step)))
            model[id_] = (number, str(step), clock.now + 60)
            order.append(id_)
        assert len(recent) <= entries
