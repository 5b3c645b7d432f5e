"""Which process of a run has which tests."""

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SHARED: Final = "tests/servers/"
"""The tests of the shared servers are in two processes, so that there are few servers: in one
process they would take longer than all others.
"""
_SECOND: Final = "tests/servers/test_p"
"""Where the second half of them begins, in the order of their names."""
APART: Final = "tests/simulation/test_simulation.py::"
"""Each of these tests takes seconds and shares nothing, so any process may have it."""


class ByFile(LoadScopeScheduling):
    """Keeps the tests of a file together, and each half of `SHARED`, but not those of `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART):
            return nodeid
        if nodeid.startswith(SHARED):
            return _SECOND if nodeid >= _SECOND else SHARED
        return nodeid.partition("::")[0]
