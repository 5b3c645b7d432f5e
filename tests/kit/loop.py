"""The event loop of tests with the kit."""

import pytest
from trio.testing import MockClock


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Trio with a clock that jumps to the next deadline when all tasks wait."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}
