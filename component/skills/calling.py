"""Runs skills that are Python functions.

`call_inline` is the fastest: no task, no cancel scope, no await. All others need a cancel scope,
and a plain function also a worker thread, of which there is a limit for all, and a share for each
principal.
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel

from component import system
from component.skills.errors import CALL_ERRORS, InvalidParam, SkillError, SkillFailed, SkillTimeout
from component.skills.outputs import Output, SkillResult
from component.system import perf_counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from component.skills.context import Context
    from component.skills.inputs import Arguments
    from component.skills.skill import Skill

T = TypeVar("T")


def call_inline(skill: Skill, arguments: Arguments, context: Context | None = None) -> SkillResult:
    """Run an inline skill at once. The context is needed only if `skill.wants_context`.

    A SkillError becomes a result with `is_error`. Raises InvalidParam when the skill itself refuses
    a parameter, and SkillFailed for every other error in it.
    """
    started = perf_counter()
    try:
        value = skill.invoke(arguments, context)
        return skill.result(value, perf_counter() - started)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - raised again as another
        return became(skill, exc, started)


def became(skill: Skill, error: BaseException, started: float) -> SkillResult:
    """Return the result for an inline skill's exception, or raise as `call_inline` does."""
    if isinstance(error, SkillError):
        return _refusal(error, started)
    if isinstance(error, InvalidParam):
        raise error
    raise SkillFailed(skill.name) from error


async def call(
    skill: Skill,
    arguments: Arguments,
    context: Context,
    share: ThreadShare,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - narrows the skill's own, and is reported
) -> SkillResult:
    """Run a skill of any kind, for at most its own time-out or the shorter `timeout` in seconds.

    A plain function uses a thread of `share` until its thread has really ended, even if it was
    abandoned, so that slow skills cannot fill the process with threads; waiting for the token
    counts.

    Raises SkillTimeout, SkillUnavailable, CapabilityMissing, and the errors of `call_inline`.
    Cancelling abandons the skill.
    """
    if skill.kind == "inline":
        return call_inline(skill, arguments, context)
    seconds = skill.timeout if timeout is None else min(skill.timeout, timeout)
    context.shorten(seconds)
    started = perf_counter()
    with anyio.move_on_after(seconds):
        try:
            if skill.kind == "async":
                value = await skill.invoke(arguments, context)
            else:
                value = await in_own_thread(partial(skill.invoke, arguments, context), share)
            return skill.result(value, perf_counter() - started)
        except SkillError as exc:
            return _refusal(exc, started)
        except CALL_ERRORS:
            raise
        except (Exception, SystemExit) as exc:
            raise SkillFailed(skill.name) from exc
    raise SkillTimeout(skill.name, seconds)


def _refusal(error: SkillError, started: float) -> SkillResult:
    text = str(error) or "The skill refused and gave no reason."
    return SkillResult((Output(text),), True, perf_counter() - started)


async def in_own_thread(work: Callable[[], T], share: ThreadShare) -> T:
    """Run in a worker thread that holds its token as long as it runs. Cancelling abandons it.

    anyio on asyncio releases the token as soon as a thread is abandoned, trio when the thread ends.
    This function does the latter on both.
    """
    job = _Job(work, share)
    await share.acquire()
    try:
        value: T = await system.in_thread(
            job.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
        return value
    finally:
        job.leave()


class _Job:
    """Work in a thread; the last of waiter and thread releases the token."""

    def __init__(self, work: Callable[[], Any], share: ThreadShare) -> None:
        self._work = work
        self._share = share
        self._lock = threading.Lock()
        self._running = False
        self._left = False

    def run(self) -> Any:
        """Do the work in the thread, unless nobody waits for it any more."""
        with self._lock:
            if self._left:
                return None
            self._running = True
        try:
            return self._work()
        finally:
            self._finish()

    def leave(self) -> None:
        """Stop waiting. Called on the event loop."""
        with self._lock:
            self._left = True
            running = self._running
        if not running:
            self._share.release()

    def _finish(self) -> None:
        with self._lock:
            self._running = False
            if not self._left:
                return
        try:
            from anyio import from_thread  # noqa: PLC0415 - it imports concurrent.futures

            from_thread.run_sync(self._share.release)
        except RuntimeError:
            # The event loop has ended in the meantime, so tokens are no longer counted.
            return


class Threads:
    """Counts worker threads, so that slow skills of one principal leave threads for the others.

    A principal may use as many as are still free, and its share at most. Of the waiting principals,
    the one with the fewest threads is next. A share of more than half of all threads is applied as
    configured.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self._free = total
        self._per_principal = per_principal
        self._dynamic = total >= 2 * per_principal
        self._own: Counter[str] = Counter()
        self._waiting: dict[anyio.Event, str] = {}

    def share(self, principal: str) -> ThreadShare:
        """Return the share of one principal."""
        return ThreadShare(self, principal)

    async def acquire(self, principal: str) -> None:
        """Wait for a thread and take it."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        # No waiting principal may have one now, or it would have been given one.
        if self._may(principal):
            self._take(principal)
            return
        given = anyio.Event()
        self._waiting[given] = principal
        try:
            await given.wait()
        except BaseException:
            if self._waiting.pop(given, None) is None:
                self.release(principal)
            raise

    def release(self, principal: str) -> None:
        """Release a thread."""
        self._free += 1
        self._own[principal] -= 1
        if not self._own[principal]:
            del self._own[principal]
        while able := [
            (self._own[who], event) for event, who in self._waiting.items() if self._may(who)
        ]:
            _, event = min(able, key=itemgetter(0))
            self._take(self._waiting.pop(event))
            event.set()

    def _may(self, principal: str) -> bool:
        own = self._own.get(principal, 0)
        return self._free > (own if self._dynamic else 0) and own < self._per_principal

    def _take(self, principal: str) -> None:
        self._free -= 1
        self._own[principal] += 1


class ThreadShare:
    """The threads of one principal."""

    def __init__(self, threads: Threads, principal: str) -> None:
        self._threads = threads
        self._principal = principal

    async def acquire(self) -> None:
        """Wait for a thread and take it."""
        await self._threads.acquire(self._principal)

    def release(self) -> None:
        """Release the thread."""
        self._threads.release(self._principal)
