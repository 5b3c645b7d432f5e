"""Processes of a test run end with it, however it ends."""

import contextlib
import os
import signal
import subprocess


class Watchdog:
    """Kills a process group as soon as the test run is gone, by kill -9 included.

    It holds the read end of a pipe, which the kernel closes with us. `group` is the id of the
    group, and of the process that leads it.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -9 "-$1"', "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Stop watching: the group lives on."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def kill_group(self) -> None:
        """Kill what is left of the group now, and stop watching. Reaping is the caller's."""
        self.stop()  # first, or it might kill a later owner of the group's id
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
