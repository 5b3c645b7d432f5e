"""What every test shares: both event loops, the hypothesis budgets, the real servers."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.fixtures import (
    ejabberd_server,
    make_ejabberd,
    make_prosody,
    make_server,
    prosody_server,
    pytest_runtest_makereport,
    xmpp_server,
)

# pytest finds fixtures and hooks by their names in here.
__all__ = [
    "anyio_backend",
    "ejabberd_server",
    "make_ejabberd",
    "make_prosody",
    "make_server",
    "prosody_server",
    "pytest_runtest_makereport",
    "xmpp_server",
]

# `quick` is for every run, `thorough` for campaigns: HYPOTHESIS_PROFILE=thorough (make thorough).
# No deadlines: on a busy machine they only measure the machine.
_SLOW_IS_FINE = (HealthCheck.too_slow,)
settings.register_profile(
    "quick", max_examples=50, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="module", params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run every `pytest.mark.anyio` test on both event loops."""
    return str(request.param)
