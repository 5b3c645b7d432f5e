"""The event loop of tests with the kit."""

import pytest
from trio.testing import MockClock


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Trio with a clock that jumps to the next deadline when all tasks wait."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.fixture
def real_time() -> tuple[str, dict[str, object]]:
    """Trio with a clock that passes as usual, for tests that wait for a process.

    from tests.kit.loop import real_time as anyio_backend
    """
    return "trio", {"clock": MockClock(rate=1.0)}
