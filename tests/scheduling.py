"""Which process of a run has which tests."""

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SHARED: Final = "tests/servers/"
"""All tests of the shared servers are in one process, so that there is one of each server."""


class ByFile(LoadScopeScheduling):
    """Keeps the tests of a file together, and those of `SHARED`."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARED if nodeid.startswith(SHARED) else nodeid.partition("::")[0]
