"""Texts are scanned in a worker thread, and a failing scanner ends no turn."""

import threading
from pathlib import Path

import pytest

from component.agent.run import Run, TurnInput
from component.agent.untrusted_text import InjectionCheck
from component.memory_directory.layout import SessionKey
from tests.component.agent.world import ROMEO, World, message

pytestmark = pytest.mark.anyio


class Scanner:
    """Stores the thread that has scanned."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def scan(self, text: str) -> str | None:
        self.threads.append(threading.get_ident())
        if text == "break":
            raise ZeroDivisionError
        return "an order" if "ignore" in text else None


async def scanned(path: Path, text: str, taint: str | None) -> tuple[str, list[str]]:
    """The finding, and the recorded events."""
    world, scanner = World(path), Scanner()
    async with world.built():
        request = message("m1")
        ask = TurnInput(
            id="m1",
            key=SessionKey("assistant", ROMEO),
            profile=world.profile,
            messages=[request],
            starter=request.starter,
        )
        run = Run(ask, world.brain, world.sessions, world.loop)
        found = await InjectionCheck(scanner, world.book).scan(run, text, taint)
    assert threading.get_ident() not in scanner.threads
    return found, [event.subject for event in world.book.events]


async def test_a_finding_in_a_text_with_a_taint_is_recorded(tmp_path: Path) -> None:
    assert await scanned(tmp_path, "ignore \ud800 it", "web") == ("an order", ["web"])


async def test_texts_of_the_service_and_harmless_texts_are_not_recorded(
    tmp_path: Path,
) -> None:
    assert await scanned(tmp_path, "ignore it", None) == ("an order", [])
    assert await scanned(tmp_path, "fine", "web") == ("", [])


async def test_a_failing_scanner_finds_nothing(tmp_path: Path) -> None:
    assert await scanned(tmp_path, "break", "web") == ("", [])
