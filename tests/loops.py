"""The event loops that tests of other processes run on."""

import pytest

from tests.profiles import THOROUGH


@pytest.fixture(scope="module", params=["trio", "asyncio"] if THOROUGH else ["trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run tests on one event loop, as what they show is in other processes, and thoroughly on both.

    Import it into such a module, or its `conftest.py`.
    """
    return str(request.param)
