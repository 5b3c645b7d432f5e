"""The rule about what people have the agent remember finds what breaks it; see `test_rules`."""

from tests.simulation.areas.memory_rules import Memories
from tests.simulation.history import Entry, Fault, Prompt, Wish
from tests.simulation.test_rules import ROMEO, found, received

HIS = "romeo@capulet.example"


def wish(at: float, text: str) -> Wish:
    return Wish(at, HIS, text)


def has(at: float, value: str, number: int, side: str = "chat") -> list[Entry]:
    """Return a change that is confirmed a second later."""
    begun = wish(at, f"memory tea shall be {value} in {side} k{number}")
    return [begun, wish(at + 1, f"change k{number} is done")]


def finds(value: str, side: str = "chat") -> Wish:
    return wish(99_000, f"memory tea is {value} in {side}")


def test_a_memory_that_is_lost_or_comes_back_is_found() -> None:
    assert found(Memories, *has(0, "value-1", 1), finds("value-1")) == ""
    lost = found(Memories, *has(0, "value-1", 1), finds("nothing"))
    assert "tea of romeo@capulet.example is nothing in chat, and not ['value-1']" in lost
    forgotten = *has(0, "value-1", 1), *has(10, "nothing", 2)
    assert found(Memories, *forgotten, finds("nothing")) == ""
    assert "is value-1" in found(Memories, *forgotten, finds("value-1"))
    assert "is value-1" in found(Memories, *forgotten, finds("value-1", "node"))


def test_a_change_that_nobody_has_confirmed_may_have_been_made() -> None:
    unsure = *has(0, "value-1", 1), wish(10, "memory tea shall be value-2 in chat k2")
    for value in ("value-1", "value-2"):
        assert found(Memories, *unsure, finds(value)) == ""
    assert "is nothing" in found(Memories, *unsure, finds("nothing"))
    returned = received(10, ROMEO, "<message type='error' id='romeo-k2'/>")
    assert "is value-2" in found(Memories, *unsure, returned, finds("value-2"))
    assert "is value-2" in found(
        Memories, *unsure, wish(11, "change k2 has failed"), finds("value-2")
    )


def test_an_account_may_be_seen_late() -> None:
    remote = wish(0, "memories are in accounts")
    soon = *has(0, "value-1", 1, "node"), *has(60, "value-2", 2)
    assert found(Memories, remote, *soon, finds("value-1")) == ""
    assert "is value-1" in found(Memories, *soon, finds("value-1"))
    later = *has(0, "value-1", 1, "node"), *has(9000, "value-2", 2)
    assert "is value-1" in found(Memories, remote, *later, finds("value-1"))
    assert found(Memories, remote, later[0], later[1], Fault(8000, "kill"), *later[2:]) == ""


def test_a_forgotten_memory_in_a_prompt_is_found() -> None:
    forgotten = *has(0, "value-1", 1), *has(10, "nothing", 2)
    assert found(Memories, forgotten[0], forgotten[1], Prompt(5, "value-1: talk")) == ""
    assert "was shown value-1" in found(Memories, *forgotten, Prompt(20, "value-1: talk"))
    assert found(Memories, *forgotten, Prompt(20, "value-7: talk")) == ""
    begun = Prompt(5, "value-1: talk", until=6.0)
    of_turn = forgotten[0], forgotten[1], begun, *forgotten[2:], Prompt(20, "value-1: talk")
    assert found(Memories, *of_turn) == ""
    assert "was shown value-1" in found(Memories, *of_turn, Prompt(200, "value-1: talk"))
