"""Work that suspends: a task for each handler that cannot answer at once.

Whatever becomes of it, a request among it gets its one reply.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.router.admission import AdmissionGate
from component.router.replies import Replies
from component.router.senders import Sender
from component.router.table import Answer
from xep.fluux_agent import errors
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.router")


class Work:
    """What is under way, and its end.

    Args:
        admission: counts it.
        replies: answers it.
        flush: sends what was answered.
        timeout_s: seconds after which a handler that still runs is cancelled.

    Attributes:
        draining: whether nothing new is to be taken on.
    """

    def __init__(
        self,
        admission: AdmissionGate,
        replies: Replies,
        flush: Callable[[], None],
        timeout_s: float,
    ) -> None:
        self._admission = admission
        self._replies = replies
        self._flush = flush
        self._timeout_s = timeout_s
        self.draining = False
        self._tasks: TaskGroup | None = None
        self._idle = anyio.Event()
        self._ended = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the tasks until cancelled; what is cancelled is still answered."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self.draining = True  # nobody is left to take on what suspends
            self._ended.set()

    async def drain(self, timeout_s: float) -> int:
        """Wait until all is answered; after so many seconds the rest is cancelled, and counted."""
        self.draining = True
        if self._admission.total:
            with anyio.move_on_after(timeout_s):
                await self._idle.wait()
        left = self._admission.total
        if left and self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            await self._ended.wait()
        return left

    def request(self, stanza: Incoming, sender: Sender, working: Awaitable[Answer]) -> None:
        """Answer an IQ with what is worked out."""
        self._spawn(self._finish_request, stanza, sender, working)

    def silent(self, stanza: Incoming, sender: Sender, working: Awaitable[None]) -> None:
        """Let work on a message or a presence end; nobody hears of it."""
        self._spawn(self._finish_silent, stanza, sender, working)

    def _spawn(
        self, finish: Any, stanza: Incoming, sender: Sender, working: Awaitable[Any]
    ) -> None:
        assert self._tasks is not None, "received() before run()"
        self._admission.enter(sender.principal_text)
        self._tasks.start_soon(finish, stanza, sender, working)

    async def _finish_request(
        self, stanza: Incoming, sender: Sender, working: Awaitable[Answer]
    ) -> None:
        try:
            with anyio.move_on_after(self._timeout_s):
                self._replies.result(stanza, await working)
                return
            text = "the work took longer than it may"
            self._replies.error(stanza, StanzaError("remote-server-timeout", text))
        except StanzaError as error:
            self._replies.error(stanza, error)
        except BaseException as error:  # noqa: BLE001 - cancelled or broken, it must be answered
            if isinstance(error, Exception) or not _is_cancelled():
                self._replies.error(stanza, failed(stanza, error))
            else:
                text = "the service stopped before the end"
                self._replies.error(stanza, StanzaError("recipient-unavailable", text))
            _raise_fatal(error)
        finally:
            self._left(sender)

    async def _finish_silent(
        self, stanza: Incoming, sender: Sender, working: Awaitable[None]
    ) -> None:
        try:
            with anyio.fail_after(self._timeout_s):
                await working
        except BaseException as error:  # noqa: BLE001 - a handler's fault stays its own
            if isinstance(error, Exception) or not _is_cancelled():
                _log.exception("a handler failed", kind=stanza.kind, sender=stanza.sender)
            _raise_fatal(error)
        finally:
            self._left(sender)

    def _left(self, sender: Sender) -> None:
        self._admission.leave(sender.principal_text)
        if self._admission.total == 0:
            self._idle.set()
            self._idle = anyio.Event()
        self._flush()


def discard(working: Awaitable[Any]) -> None:
    """Do without an awaitable that nobody has awaited."""
    close = getattr(working, "close", None)
    if close is not None:
        close()


def _is_cancelled() -> bool:
    """Whether this task is cancelled. On asyncio a handler can also raise the cancellation of
    something else that it waited for.
    """
    return anyio.current_effective_deadline() == -math.inf


def _raise_fatal(error: BaseException) -> None:
    """Raise of ``error`` what is to end the process; all else has been answered and ends here.

    A cancellation ends here too. To pass it on gains nothing, the task being at its end, and could
    end the router: with what a handler raised beside it, or because it was not meant for us.
    """
    harmless = (Exception, anyio.get_cancelled_exc_class())
    if isinstance(error, BaseExceptionGroup):
        _, fatal = error.split(harmless)
        if fatal is not None:
            raise fatal
    elif not isinstance(error, harmless):
        raise error


def failed(stanza: Incoming, error: BaseException) -> StanzaError:
    """Log a fault of a handler's, and make the error that its sender gets."""
    _log.error("a handler failed", kind="iq", sender=stanza.sender, exc_info=error)
    return errors.internal()
