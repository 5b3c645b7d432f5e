"""How loops wait for the next thing that is due in the database."""

from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from component.store import Storage
from tests.kit.loop import anyio_backend

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

LOOK_S: Final = 10.0


class Engine:
    """An engine that only knows how far the wall clock is ahead."""

    place = None
    is_shared = False

    def __init__(self, skew_ms: int | None) -> None:
        self.skew = skew_ms

    def skew_ms(self) -> int | None:
        return self.skew


async def rested(engine: Engine, seconds: float, skew_ms: int | None) -> float:
    """Return for how many simulated seconds `Storage.rest` waits if nobody sets the event."""
    storage = Storage(Path("nowhere"), as_engine(engine))
    began = anyio.current_time()
    with anyio.move_on_after(1000):
        await storage.rest(anyio.Event(), seconds, LOOK_S, skew_ms)
    return anyio.current_time() - began


def as_engine(engine: Engine) -> Any:
    return engine


@pytest.mark.parametrize("skew_ms", [0, 7])
async def test_while_the_clock_is_not_set_it_waits_for_the_whole_time(skew_ms: int) -> None:
    assert await rested(Engine(skew_ms), 95, skew_ms) == pytest.approx(95)


@pytest.mark.parametrize(
    ("now", "before"),
    [
        pytest.param(3, 0, id="the clock was set"),
        pytest.param(0, None, id="there may be more that is due"),
        pytest.param(None, 0, id="the jump does not count yet, or the clock is that of a server"),
        pytest.param(None, None, id="neither is known"),
    ],
)
async def test_otherwise_it_ends_at_the_next_look(now: int | None, before: int | None) -> None:
    assert await rested(Engine(now), 95, before) == pytest.approx(LOOK_S)


async def test_an_event_ends_it_at_once() -> None:
    woken = anyio.Event()
    woken.set()
    began = anyio.current_time()
    await Storage(Path("nowhere"), as_engine(Engine(0))).rest(woken, 95, LOOK_S, 0)
    assert anyio.current_time() == began
