"""An agent does not disturb a room, and two programs do not answer each other for ever."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from component.features.rooms.manners import Limits, Manners
from tests.profiles import examples


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def manners(**limits: object) -> tuple[Manners, Clock]:
    clock = Clock()
    return Manners(Limits(**limits), clock), clock  # type: ignore[arg-type]


def ask(it: Manners, who: str = "romeo", *, is_agent: bool = False, waiting: int = 0) -> str | bool:
    verdict = it.ask(who, is_agent=is_agent, waiting=waiting)
    return verdict.sentence or verdict.answers


def test_at_most_ten_messages_a_minute_and_one_sentence_about_it() -> None:
    it, clock = manners(per_occupant=100)
    assert [ask(it) for _ in range(10)] == [True] * 10
    assert "I have written 10 messages" in str(ask(it))
    assert ask(it, "juliet") is False
    clock.now = 59.9
    assert ask(it) is False
    clock.now = 60.0
    assert ask(it) is True


def test_one_occupant_does_not_use_up_what_all_have() -> None:
    it, clock = manners()
    assert [ask(it) for _ in range(5)] == [True] * 5
    assert "You have asked me 5 times" in str(ask(it))
    assert ask(it) is False
    assert ask(it, "juliet") is True
    clock.now = 61.0
    assert ask(it) is True


def test_an_occupant_has_one_waiting_request() -> None:
    it, _ = manners()
    assert "still working" in str(ask(it, waiting=1))
    assert ask(it, waiting=1) is False
    assert ask(it, "juliet", waiting=0) is True


def test_agents_ask_nothing_unless_they_may() -> None:
    it, _ = manners()
    assert [ask(it, is_agent=True) for _ in range(3)] == [False] * 3
    assert ask(it) is True


def test_agents_get_two_answers_in_a_row_until_a_person_writes() -> None:
    it, clock = manners(agents=True)
    asked = [ask(it, f"bot{number}", is_agent=True) for number in range(4)]
    assert asked == [True, True, False, False]
    clock.now = 600.0
    assert ask(it, "bot1", is_agent=True) is False, "time alone does not help"
    it.heard_person()
    assert ask(it, "bot1", is_agent=True) is True


def test_an_agent_gets_no_sentence_that_it_could_answer() -> None:
    it, _ = manners(agents=True, agent_turns=100, per_occupant=1)
    assert ask(it, "bot", is_agent=True) is True
    assert ask(it, "bot", is_agent=True) is False


def test_what_is_said_once_in_a_time_counts_as_a_message() -> None:
    it, clock = manners(answers=2)
    assert it.may_say("no model", 3600)
    assert not it.may_say("no model", 3600)
    assert ask(it) is True
    assert not it.may_say("something else")
    clock.now = 3600.0
    assert it.may_say("no model", 3600)


@examples(40, 1000)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 40), st.booleans()),
        max_size=120,
    )
)
def test_whatever_happens_no_minute_has_more_than_it_may(
    steps: list[tuple[str, bool, int, bool]],
) -> None:
    it, clock = manners(agents=True)
    written: list[float] = []
    agents_in_a_row = 0
    for who, is_agent, seconds, person_speaks in steps:
        clock.now += seconds
        if person_speaks:
            it.heard_person()
            agents_in_a_row = 0
        verdict = it.ask(who, is_agent=is_agent, waiting=0)
        if verdict.answers:
            written.append(clock.now)
            agents_in_a_row += is_agent
        assert agents_in_a_row <= 2
    windows = Counter(sum(start <= each < start + 60 for each in written) for start in written)
    assert max(windows, default=0) <= 10
