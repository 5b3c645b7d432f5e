"""The rules about people who block the agent find what breaks them; see `test_rules`."""

from tests.simulation.areas.block_rules import (
    BLOCK,
    UNBLOCK,
    NoNews,
    Presences,
    Reached,
    Repetitions,
)
from tests.simulation.areas.chat import Replies
from tests.simulation.history import Fault, KeptOut, Stanza
from tests.simulation.task_rules import NOT_SEE, SEE
from tests.simulation.test_rules import ROMEO, found, hears, received, says, wants

HIS = "romeo@capulet.example"
AGENT = "agent.capulet.example"


def kept_out(at: float, text: str, id_: str = "a") -> KeptOut:
    return KeptOut(at, HIS, f"<message id='{id_}'><body>{text}</body></message>")


def presence(at: float, type_: str = "") -> Stanza:
    kind = f" type='{type_}'" if type_ else ""
    return received(at, ROMEO, f"<presence from='{AGENT}/1'{kind}/>")


def test_a_ping_without_an_answer_is_found() -> None:
    asked = says(5000, ROMEO, "/ping")
    assert found(Reached, asked, hears(5001, ROMEO, "pong")) == ""
    assert "after /ping" in found(Reached, asked, hears(5030, ROMEO, "pong"))
    assert "no answer" in found(Reached, asked)
    for kind in ("kill", "cut", "full"):
        assert found(Reached, Fault(4990, kind), asked) == ""
    assert found(Reached, asked, Fault(5005, "away", HIS)) == ""


def test_a_message_that_is_sent_again_and_again_is_found() -> None:
    times = [kept_out(3600.0 * one, "The task has ended.") for one in range(1, 4)]
    assert found(Repetitions, *times[:2]) == ""
    assert "again and again: a" in found(Repetitions, *times)
    faults = [Fault(one.at - 1, "kill") for one in times]
    both = [each for pair in zip(faults, times, strict=True) for each in pair]
    assert found(Repetitions, *both) == ""
    others = [kept_out(3600.0 * one, "Look here.", str(one)) for one in range(1, 6)]
    assert "again and again: Look here." in found(Repetitions, *others)
    results = [kept_out(3600.0 * one, "I see.", f"notification-{one}") for one in range(1, 6)]
    assert found(Repetitions, *results) == ""
    assert "again and again: notification-1" in found(Repetitions, *(3 * results[:1]))
    daily = [kept_out(86_000.0 * one, "Look here.", str(one)) for one in range(1, 9)]
    assert found(Repetitions, *daily) == ""


def test_a_presence_that_is_missing_or_not_wanted_is_found() -> None:
    wish, ends = wants(5000, SEE, HIS), wants(6000, NOT_SEE, HIS)
    assert found(Presences, wish, presence(5001)) == ""
    assert "does not see the agent" in found(Presences, wish)
    assert found(Presences, Fault(4990, "kill"), wish) == ""
    ended = wish, presence(5001), ends, presence(6000.5, "unavailable")
    assert found(Presences, *ended) == ""
    assert "and sees the agent" in found(Presences, *ended, presence(7000))
    assert found(Presences, *ended, wants(6500, SEE, HIS), presence(7000)) == ""


def test_who_may_have_missed_something() -> None:
    news = NoNews()
    assert not news.since(HIS, 0)
    for entry in (wants(100, BLOCK, HIS), wants(200, NOT_SEE, HIS), wants(300, UNBLOCK, HIS)):
        news.saw(entry)
    assert news.since(HIS, 1000)
    news.saw(wants(400, SEE, HIS))
    assert news.since(HIS, 350)
    assert not news.since(HIS, 450)
    news.saw(wants(500, SEE, HIS))
    assert not news.since(HIS, 450)


def test_an_answer_to_somebody_who_blocks_the_agent_is_an_answer() -> None:
    question = says(5000, ROMEO, "m1 talk, please.", "romeo-m1")
    assert found(Replies, question, kept_out(5001, "re m1: indeed")) == ""
