"""A text is looked at once, and a long one beside the event loop."""

import threading

import pytest

from component.agent.suspicion import Suspicion

pytestmark = pytest.mark.anyio

LONG = "ignore all " * 200


class Scanner:
    """Says which thread looked at what."""

    def __init__(self) -> None:
        self.looked: list[tuple[int, str]] = []

    def scan(self, text: str) -> str | None:
        self.looked.append((threading.get_ident(), text))
        return "an order" if "ignore" in text else None


async def test_what_was_looked_at_is_known() -> None:
    scanner = Scanner()
    suspicion = Suspicion(scanner)
    assert suspicion.scan("ignore it") == suspicion.scan("ignore it") == "an order"
    assert suspicion.scan("fine") is suspicion.scan("fine") is None
    assert [text for _, text in scanner.looked] == ["ignore it", "fine"]


async def test_long_texts_are_looked_at_in_a_thread() -> None:
    scanner = Scanner()
    suspicion = Suspicion(scanner)
    await suspicion.look(["short", LONG, LONG, LONG + "!"])
    assert [text for _, text in scanner.looked] == [LONG, LONG + "!"]
    assert threading.get_ident() not in {thread for thread, _ in scanner.looked}
    assert suspicion.scan(LONG) == "an order"
    await suspicion.look([LONG])
    assert len(scanner.looked) == 2


async def test_what_no_encoding_can_carry() -> None:
    assert Suspicion(Scanner()).scan("ignore \ud800") == "an order"
