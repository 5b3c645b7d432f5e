"""What was written in a room lately is remembered, at most 50 messages and 16 kB."""

from hypothesis import given
from hypothesis import strategies as st

from component.agent.requests import Overheard
from component.features.rooms.ring import BYTES, MESSAGES, Heard, Ring
from tests.profiles import examples


def heard(text: str, nick: str = "Juliet", author: str = "id:juliet", number: int = 1) -> Heard:
    return Heard(author, nick, text, float(number), [f"m{number}"], f"s{number}")


def filled(*texts: str) -> Ring:
    ring = Ring()
    for number, text in enumerate(texts, 1):
        ring.add(heard(text, number=number))
    return ring


def taken(ring: Ring, number: int = 99) -> list[str]:
    request = heard("FluuxBot?", number=number)
    ring.add(request)
    return [each.text for each in ring.take(request)]


def test_a_request_gets_what_was_written_before_it_once() -> None:
    ring = filled("one", "two")
    request = heard("FluuxBot?", number=3)
    ring.add(request)
    ring.add(heard("after", number=4))
    expected = (Overheard("Juliet", "one", 1.0, "s1"), Overheard("Juliet", "two", 2.0, "s2"))
    assert ring.take(request) == expected
    assert taken(ring) == ["after"]
    assert taken(ring) == []


def test_messages_before_an_answer_of_the_agent_are_known() -> None:
    ring = filled("one")
    ring.given()
    ring.add(heard("two", number=2))
    assert taken(ring) == ["two"]


def test_a_correction_replaces_the_text_and_a_retraction_removes_it() -> None:
    ring = filled("one", "two")
    first = ring.find("id:juliet", "Capulet", "m1")
    assert first is not None
    ring.revise(first, "eins")
    second = ring.find("id:juliet", "Juliet", "s2")
    assert second is not None
    ring.revise(second, "")
    assert taken(ring) == ["eins"]


def test_only_the_author_finds_a_message() -> None:
    ring = filled("one")
    assert ring.find("id:romeo", "Juliet", "m1") is None
    assert ring.find("", "Juliet", "m1") is None
    ring.add(heard("from the history", author="", number=7))
    assert ring.find("id:romeo", "Romeo", "m7") is None
    assert ring.find("id:juliet", "Juliet", "m7") is not None


def test_a_moderator_removes_a_message_by_the_id_of_the_room() -> None:
    ring = filled("one", "two")
    assert ring.moderate("m1") is None
    assert ring.moderate("") is None
    assert ring.moderate("s1") is not None
    assert taken(ring) == ["two"]


def test_a_message_that_comes_again_in_the_history_is_known() -> None:
    ring = filled("one")
    assert ring.has(heard("one", author=""))
    assert not ring.has(heard("two", number=2))
    assert ring.has(Heard("", "Juliet", "one", 1.0, ["m1"]))
    assert not ring.has(Heard("", "Romeo", "one", 1.0, ["m1"]))


def test_a_long_message_is_cut_so_that_others_remain() -> None:
    ring = filled("one", "\U0001f42d" * 10_000, "three")
    one, long, three = taken(ring)
    assert (one, three) == ("one", "three")
    assert len(long.encode()) <= 4_096
    assert long.endswith("\u2026")


@examples(30, 1000)
@given(st.lists(st.one_of(st.text(max_size=3_000), st.integers(0, 60)), max_size=80))
def test_it_never_has_more_than_it_may(steps: list[str | int]) -> None:
    ring, sizes = Ring(), []
    for number, step in enumerate(steps, 1):
        if isinstance(step, str):
            ring.add(heard(step or "x", number=number))
        elif (found := ring.find("id:juliet", "Juliet", f"m{step}")) is not None:
            ring.revise(found, "y" * step)
        sizes.append(sum(len(each.text.encode()) for each in ring._heard))
        assert len(ring) <= MESSAGES
        assert sizes[-1] == ring._bytes <= BYTES
