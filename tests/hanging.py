"""Ends a process of the tests in which one test runs for too long, and shows where it is.

The option `faulthandler_timeout` of pytest does the same with a new thread for each test, which
takes a tenth of the time of all tests.
"""

import faulthandler
import os
import threading
import time
from collections.abc import Generator
from typing import Final

import pytest

LONGEST_S: Final = float(os.environ.get("TEST_LIMIT_S", "300"))
"""How long one test may run. With 0, as for campaigns, it may run for as long as it likes."""
_LOOK_S: Final = 5.0


class Hanging:
    """A pytest plugin."""

    def __init__(self) -> None:
        self._running: tuple[str, float] | None = None
        self._stderr = os.dup(2)  # that of the process, which pytest does not capture
        threading.Thread(target=self._look, name="hanging", daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note which test runs."""
        self._running = item.nodeid, time.monotonic()
        try:
            return (yield)
        finally:
            self._running = None

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            running = self._running
            if running is not None and time.monotonic() - running[1] > LONGEST_S:
                os.write(self._stderr, f"{running[0]} has run for {LONGEST_S:g} s\n".encode())
                faulthandler.dump_traceback(self._stderr)
                os._exit(1)


def watch(config: pytest.Config) -> None:
    """Watch the tests, unless a person debugs them."""
    if LONGEST_S and not config.option.usepdb:
        config.pluginmanager.register(Hanging())
