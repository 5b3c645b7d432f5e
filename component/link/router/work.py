"""Handlers that suspend: each runs in its own task, within the share of its principal.

A request gets its one reply even if its handler fails, takes too long or is cancelled; a message is
then bounced to its sender.
"""

import math
from collections.abc import Awaitable, Collection
from typing import Any

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.link.router.replies import Replies
from component.link.router.route_resolver import Sender
from component.link.router.table import ReplyPayload
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.router")

_TOO_SLOW = (
    "Your message could not be handled in time. It may have had an effect: check that before you"
    " send it again."
)
_STOPPED = (
    "The service stopped before it had handled your message. It may have had an effect: check that"
    " before you send it again."
)
_FULL = "the service has reached its maximum number of requests; try again later"


class Shares(msgspec.Struct, frozen=True):
    """How many requests may be in progress at once.

    Attributes:
        per_principal: the maximum of one principal.
        total: the maximum of all together.
        reserved: the part of `total` that only admins can use.
    """

    per_principal: int = 64
    total: int = 1024
    reserved: int = 0


class AdmissionGate:
    """Counts the requests in progress. A request that is answered at once is never counted.

    A principal may have as many as are still free, and its share at most (dynamic thresholds: the
    fewer are free, the fewer one principal may have). So the principals with most requests are
    refused first, and a principal with none is admitted even if others use all they can get.

    Args:
        shares: the limits.
        admins: bare addresses that may use the reserved part too.

    Attributes:
        total: the number of requests in progress.
    """

    def __init__(self, shares: Shares, admins: Collection[str] = ()) -> None:
        self.limit(shares, admins)
        self._under_way: dict[str, int] = {}
        self.total = 0

    def limit(self, shares: Shares, admins: Collection[str]) -> None:
        """Apply these limits to the requests that come."""
        self._shares = shares
        self._admins = frozenset(admins)

    def refusal(self, principal: str) -> str | None:
        """Return why another request of ``principal`` is refused now; None if it is admitted."""
        shares = self._shares
        own = self._under_way.get(principal, 0)
        if own >= shares.per_principal:
            return (
                f"you have {shares.per_principal} requests in progress, the maximum for one"
                " address; wait for an answer to one of them"
            )
        free = shares.total - self.total
        if principal in self._admins:
            return None if free > 0 else _FULL
        free -= shares.reserved
        if own < free:
            return None
        if own:
            return (
                f"the service is busy, and {own} of the requests in progress are yours; wait for an"
                " answer to one of them"
            )
        return _FULL

    def enter(self, principal: str) -> None:
        """Count a request that starts."""
        self.total += 1
        self._under_way[principal] = self._under_way.get(principal, 0) + 1

    def leave(self, principal: str) -> None:
        """Count a request that has been answered."""
        self.total -= 1
        left = self._under_way[principal] - 1
        if left:
            self._under_way[principal] = left
        else:
            del self._under_way[principal]


class RunningHandlers:
    """The running handlers.

    Args:
        admission: counts them.
        replies: sends their answers.
        timeout_s: seconds after which a handler that still runs is cancelled.

    Attributes:
        draining: whether new requests are rejected.
    """

    def __init__(self, admission: AdmissionGate, replies: Replies, timeout_s: float) -> None:
        self._admission = admission
        self._replies = replies
        self._timeout_s = timeout_s
        self.draining = False
        self._tasks: TaskGroup | None = None
        self._idle = anyio.Event()
        self._ended = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run the tasks until cancelled; requests that are cancelled are still answered."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self.draining = True  # no task can be started any more
            self._ended.set()

    async def drain(self, timeout_s: float) -> int:
        """Wait until all are answered; after ``timeout_s`` seconds cancel the rest, and return
        their number.
        """
        self.draining = True
        if self._admission.total:
            with anyio.move_on_after(timeout_s):
                await self._idle.wait()
        left = self._admission.total
        if left and self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            await self._ended.wait()
        return left

    def start(self, stanza: Incoming, sender: Sender, working: Awaitable[ReplyPayload]) -> None:
        """Wait for the handler of a stanza in its own task. An IQ is answered with what it returns;
        a message is bounced to its sender if its handler fails or does not end in time.
        """
        assert self._tasks is not None, "received() before run()"
        self._admission.enter(sender.principal_text)
        self._tasks.start_soon(self._finish, stanza, sender, working)

    def failed(self, stanza: Incoming, error: BaseException) -> StanzaError:
        """Log a failure of a handler, and return the error for the sender."""
        if (temporary := self._replies.faults.temporary(error)) is not None:
            return temporary
        _log.error("a handler failed", kind=stanza.kind, sender=stanza.sender, exc_info=error)
        return self._replies.faults.internal(stanza.sole_child if stanza.kind == "iq" else "")

    async def _finish(
        self, stanza: Incoming, sender: Sender, working: Awaitable[ReplyPayload]
    ) -> None:
        replies, is_request = self._replies, stanza.kind == "iq"
        refuse = replies.error if is_request else replies.bounce
        try:
            with anyio.move_on_after(self._timeout_s):
                answer = await working
                if is_request:
                    replies.result(stanza, answer)
                return
            if not is_request:
                _log.warning("a handler took too long", kind=stanza.kind, sender=stanza.sender)
            text = "the work exceeded its time limit" if is_request else _TOO_SLOW
            refuse(stanza, StanzaError("remote-server-timeout", text))
        except StanzaError as error:
            refuse(stanza, error)
        except BaseException as error:  # noqa: BLE001 - cancelled or broken, its sender hears of it
            if not _is_stopped(error):
                refuse(stanza, self.failed(stanza, error))
            else:
                text = "the service stopped before the work ended" if is_request else _STOPPED
                refuse(stanza, StanzaError("recipient-unavailable", text))
            _raise_fatal(error)
        finally:
            self._admission.leave(sender.principal_text)
            if self._admission.total == 0:
                self._idle.set()
                self._idle = anyio.Event()
            replies.outbox.send_now()


def discard(working: Awaitable[Any]) -> None:
    """Close an awaitable that nobody has awaited."""
    close = getattr(working, "close", None)
    if close is not None:
        close()


def _is_stopped(error: BaseException) -> bool:
    """Return whether a handler raised this error because the service stops: its task is cancelled,
    or trio raised the interrupt from the keyboard in it. On asyncio a handler can also raise the
    cancellation of something else that it waited for.
    """
    if isinstance(error, Exception):
        return False
    is_cancelled = anyio.current_effective_deadline() == -math.inf
    return is_cancelled or isinstance(error, KeyboardInterrupt)


def _raise_fatal(error: BaseException) -> None:
    """Raise the parts of ``error`` that must end the process; the rest has been answered and ends
    here.

    A cancellation ends here too. The task is at its end, so passing it on has no use, and it could
    end the router: together with another error of the handler, or because it was meant for
    something else.
    """
    harmless = (Exception, anyio.get_cancelled_exc_class())
    if isinstance(error, BaseExceptionGroup):
        _, fatal = error.split(harmless)
        if fatal is not None:
            raise fatal
    elif not isinstance(error, harmless):
        raise error
