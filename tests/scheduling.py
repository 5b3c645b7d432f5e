"""Which process of a run has which tests."""

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SHARED: Final = "tests/servers/"
"""All tests of the shared servers are in one process, so that there is one of each server."""
APART: Final = "tests/simulation/test_simulation.py::"
"""Each of these tests takes seconds and shares nothing, so any process may have it."""


class ByFile(LoadScopeScheduling):
    """Keeps the tests of a file together, and those of `SHARED`, but not those of `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART):
            return nodeid
        return SHARED if nodeid.startswith(SHARED) else nodeid.partition("::")[0]
