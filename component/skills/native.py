"""Running skills that are Python functions.

The shortest road is `call_inline`: no task, no cancel scope, no await. Everything else pays for a
cancel scope, and a plain function for a worker thread.
"""

from __future__ import annotations

import threading
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread

from component.skills.errors import InvalidParam, SkillError, SkillFailed, SkillTimeout
from component.skills.outputs import Output, SkillResult

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from component.skills.context import Context
    from component.skills.declare import AnySkill
    from component.skills.threads import ThreadShare


def call_inline(
    skill: AnySkill, arguments: msgspec.Struct, context: Context | None = None
) -> SkillResult:
    """Run an inline skill at once. The context is needed only where `skill.wants_context`.

    A SkillError becomes a result with `is_error`. Raises InvalidParam when the skill refuses a
    parameter itself, and SkillFailed for everything else that goes wrong in it.
    """
    started = perf_counter()
    try:
        value = skill.invoke(arguments, context)
        return skill.result(value, perf_counter() - started)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - raised again as another
        return became(skill, exc, started)


def became(skill: AnySkill, error: BaseException, started: float) -> SkillResult:
    """What an inline skill's exception becomes: a result, or what `call_inline` raises for it."""
    if isinstance(error, SkillError):
        return _refusal(error, started)
    if isinstance(error, InvalidParam):
        raise error
    raise SkillFailed(skill.name) from error


async def call(
    skill: AnySkill,
    arguments: msgspec.Struct,
    context: Context,
    limiter: ThreadShare,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - narrows the skill's own, and is reported
) -> SkillResult:
    """Run a skill of any kind, for at most its own time-out or the shorter `timeout` in seconds.

    A plain function takes one token of `limiter` until its thread is really done, given up or not,
    so that slow skills cannot fill the process with threads; waiting for the token counts.

    Raises SkillTimeout, and what `call_inline` raises. Cancelling gives the skill up.
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
                value = await _in_thread(partial(skill.invoke, arguments, context), limiter)
            return skill.result(value, perf_counter() - started)
        except SkillError as exc:
            return _refusal(exc, started)
        except InvalidParam:
            raise
        except (Exception, SystemExit) as exc:
            raise SkillFailed(skill.name) from exc
    raise SkillTimeout(skill.name, seconds)


def _refusal(error: SkillError, started: float) -> SkillResult:
    text = str(error) or "The skill refused and gave no reason."
    return SkillResult((Output(text),), True, perf_counter() - started)


async def _in_thread(work: Callable[[], Any], limiter: ThreadShare) -> Any:
    """Run in a worker thread that holds its token for as long as it lives.

    anyio on asyncio gives the token back as soon as a thread is abandoned, trio when the thread
    ends. Ours is the latter on both.
    """
    job = _Job(work, limiter)
    await limiter.acquire_on_behalf_of(job)
    try:
        return await anyio.to_thread.run_sync(
            job.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
    finally:
        job.leave()


class _Job:
    """Work in a thread, and who gives its token back: whoever is last, waiter or thread."""

    def __init__(self, work: Callable[[], Any], limiter: ThreadShare) -> None:
        self._work = work
        self._limiter = limiter
        self._lock = threading.Lock()
        self._running = False
        self._left = False

    def run(self) -> Any:
        """Do the work, unless nobody waits for it any more. In the thread."""
        with self._lock:
            if self._left:
                return None
            self._running = True
        try:
            return self._work()
        finally:
            self._finish()

    def leave(self) -> None:
        """Stop waiting. On the event loop."""
        with self._lock:
            self._left = True
            running = self._running
        if not running:
            self._limiter.release_on_behalf_of(self)

    def _finish(self) -> None:
        with self._lock:
            self._running = False
            if not self._left:
                return
        try:
            anyio.from_thread.run_sync(self._limiter.release_on_behalf_of, self)
        except RuntimeError:
            # The event loop has ended meanwhile, and nobody counts tokens any more.
            return
