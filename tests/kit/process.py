"""The simulated process of a service, which can be killed at any step of its event loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import trio

_process: Final[ContextVar["Process"]] = ContextVar("process")


class KilledError(Exception):
    """The process was killed, so this has no outcome; what it tries again and again ends, too."""


class Process:
    """What lives from the start of a service to its end.

    Attributes:
        is_alive: whether it was not killed. What code does after that is not to be seen outside.
    """

    def __init__(self) -> None:
        self.is_alive = True

    def enter(self) -> None:
        """Let the current task, and all that it starts, be those of this process."""
        _process.set(self)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let the current task be of this process in a `with` block."""
        token = _process.set(self)
        try:
            yield
        finally:
            _process.reset(token)


def current_process() -> Process:
    """Return the process of the current task."""
    return _process.get()


def find_process() -> Process | None:
    """Return the process of the current task; None if that is of no service."""
    return _process.get(None)


class StepCounter(trio.abc.Instrument):
    """Calls a function before the task steps of a process have reached a number.

    Args:
        process: whose steps count.
        steps: how many there are before the call.
        call: is called once, in the middle of the scheduler; it must not wait.
    """

    def __init__(self, process: Process, steps: int, call: Callable[[], None]) -> None:
        self._process, self._left, self._call = process, steps, call
        trio.lowlevel.add_instrument(self)
        self._is_in_place = True

    def before_task_step(self, task: Any) -> None:
        """See `trio.abc.Instrument`."""
        if task.context.get(_process) is not self._process:
            return
        self._left -= 1
        if self._left <= 0 and self._is_in_place:
            self.remove()
            self._call()

    def remove(self) -> None:
        """Count no more."""
        if self._is_in_place:
            self._is_in_place = False
            trio.lowlevel.remove_instrument(self)
