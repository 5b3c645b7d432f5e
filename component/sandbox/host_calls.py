"""Runs the functions of the service that one call in a confined child asks for.

What is recorded (steps, questions, timers, answers of models) is identified by its order, unless
the child says that it is in a branch. So recorded functions outside branches run in the task of the
call, one after another, and all others in tasks of their own. A step asks twice: the answer to
the first request is to do the work; the second says how it ended, which is recorded before the
child gets the result.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from component.sandbox.messages import (
    LONGEST_LINE,
    Ask,
    Begin,
    Described,
    Failure,
    FrameError,
    FromChild,
    LogLine,
    RecordedFunction,
    Reply,
    Result,
    StepEnded,
    ToChild,
    Wanted,
    Withdraw,
)
from component.skills.context import Context
from component.skills.errors import Denied, SkillError, StepFailed, UsageError, printable
from component.skills.host import HostFunctions
from component.skills.operations import AskPrincipal, PublishPart, RunStep, Sleep, Work
from xep.binding.json_bounds import decoded_json

Outcome: TypeAlias = Described | Result | Failure

MOST_ASKS: Final = 10_000
"""The maximum number of host functions that one call may use."""
MOST_AT_ONCE: Final = 64
"""The maximum number of those that run at the same time."""
_LONGEST_QUESTION: Final = 2_000
_LONGEST_KEY: Final = 200
_LONGEST_TIME_S: Final = 366 * 86_400.0


class StepWorkError(Exception):
    """The work of a step raised another exception than SkillError, in the child."""


class ContextHost:
    """Performs what a child asks for with the Context of the call, and checks it: a child is not
    trusted. What is not declared ends the call.
    """

    def __init__(self, context: Context, functions: HostFunctions) -> None:
        self.log = functions.log
        self._context = context
        self._functions = functions

    async def perform(self, what: Wanted, work: Work[Any]) -> Any:
        """Perform a host function or an operation, and return its result; `work` is that of a step.

        Raises HostError, SkillError, Denied, StepFailed, UsageError or ValueError with a reason for
        the child. Any other exception ends the call.
        """
        context = self._context
        if isinstance(what, RecordedFunction):
            _check_key(what.key)
        match what:
            case PublishPart():
                return await context.output(what.name, what.text, what.media_type, last=what.last)
            case RunStep():
                _check_key(what.name)
                value: object = None if not what.input else decoded_json(what.input)
                return await context.step(
                    what.name, work, Any, repeatable=what.repeatable, key=what.key, input=value
                )
            case Sleep():
                _check_time(what.seconds)
                return await context.sleep(what.seconds, key=what.key)
            case AskPrincipal():
                if what.expires_s is not None:
                    _check_time(what.expires_s)
                # The person sees whose question it is: nobody trusts this skill.
                question = f"{self._functions.skill}: {what.question[:_LONGEST_QUESTION]}"
                wanted = msgspec.convert(decoded_json(what.schema), dict[str, Any])
                return await context.ask(question, wanted, expires_s=what.expires_s, key=what.key)
        return await self._functions.perform(what)


class HostCalls:
    """The host functions of one call.

    Args:
        host: performs them; None where there is no call.
        read: returns the next message of the child that is not a line for the log.
    """

    def __init__(
        self,
        host: ContextHost | None,
        read: Callable[[], Awaitable[FromChild]],
        write: Callable[[ToChild], Awaitable[None]],
    ) -> None:
        self._host = host
        self._read = read
        self._write = write
        self._writing = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._waiting, self._queue = anyio.create_memory_object_stream[Ask | StepEnded](
            math.inf  # what is in it is bounded by the functions that run at once
        )
        self._running: dict[int, anyio.CancelScope] = {}
        self._steps: dict[int, anyio.Event] = {}
        self._ended: dict[int, StepEnded] = {}
        self._end: Outcome | BaseException | None = None

    async def run(self, first: Ask) -> Outcome:
        """Run host functions until the call ends, and return its outcome.

        Raises what ends the call, FrameError for too many of them, and what `read` and `write`
        raise.
        """
        with self._waiting, self._queue:
            async with anyio.create_task_group() as group:
                group.start_soon(self._guarded, partial(self._read_all, first, group))
                with self._scope:
                    await self._guarded(partial(self._serve, None))
                group.cancel_scope.cancel()
        if isinstance(self._end, BaseException):
            raise self._end
        assert self._end is not None, "it is set before the scope is cancelled"
        return self._end

    async def _guarded(self, work: Callable[[], Awaitable[object]]) -> None:
        """Let what work raises end the call; a task group would wrap it."""
        try:
            await work()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - also Parked; raised by `run`
            self._finish(error)

    def _finish(self, end: Outcome | BaseException) -> None:
        if self._end is None:
            self._end = end
        self._scope.cancel()

    async def _read_all(self, message: FromChild, group: anyio.abc.TaskGroup) -> None:
        """Distribute what the child asks for."""
        asks = 0
        while True:
            match message:
                case Described() | Result() | Failure():
                    self._finish(message)
                    return
                case StepEnded():
                    self._step_ended(message)
                case Withdraw():
                    scope = self._running.get(message.id)
                    if scope is not None:
                        scope.cancel()
                case Ask(what=what) if isinstance(what, RecordedFunction) and not message.branch:
                    self._add(message)
                    self._waiting.send_nowait(message)
                case LogLine():
                    raise AssertionError("`read` returns none")
                case ask:
                    self._add(ask)
                    group.start_soon(self._guarded, partial(self._run, ask))
            asks += 1
            if asks > MOST_ASKS:
                raise FrameError(f"it asks the service more than {MOST_ASKS:,} times")
            message = await self._read()

    def _add(self, ask: Ask) -> None:
        if ask.id in self._running or len(self._running) >= MOST_AT_ONCE:
            raise FrameError(f"it asks the service for more than {MOST_AT_ONCE} things at once")
        self._running[ask.id] = anyio.CancelScope()

    def _step_ended(self, message: StepEnded) -> None:
        event = self._steps.get(message.id)
        if event is not None:
            self._ended[message.id] = message
            event.set()
        elif message.id in self._running:
            self._waiting.send_nowait(message)

    async def _serve(self, step: int | None) -> StepEnded:
        """Run what is recorded, in order, until a step ends."""
        while True:
            message = await self._queue.receive()
            if not isinstance(message, StepEnded):
                await self._run(message)
            elif message.id == step:
                return message

    async def _run(self, ask: Ask) -> None:
        try:
            with self._running[ask.id]:
                if self._host is None:
                    await self._send(Reply(ask.id, error="there is no call"))
                else:
                    running = self._host.perform(ask.what, partial(self._work, ask))
                    await self._send(await _reply(ask.id, running))
        finally:
            del self._running[ask.id]

    async def _work(self, ask: Ask, key: str) -> Any:
        """Have the child do the work of a step, and return its value."""
        try:
            if ask.branch:
                event = self._steps[ask.id] = anyio.Event()
                await self._send(Begin(ask.id, key))
                await event.wait()
                ended = self._ended.pop(ask.id)
            else:
                await self._send(Begin(ask.id, key))
                ended = await self._serve(ask.id)
        finally:
            self._steps.pop(ask.id, None)
        if ended.error is None:
            try:
                return decoded_json(ended.value)
            except ValueError as error:
                raise StepWorkError(f"its result is not JSON that can be read: {error}") from error
        reason = printable(ended.error, LONGEST_LINE)
        match ended.kind:
            case "refused":
                raise SkillError(reason)
            case "usage":
                raise UsageError(reason)
        raise StepWorkError(reason)

    async def _send(self, message: ToChild) -> None:
        async with self._writing:
            await self._write(message)


async def _reply(number: int, running: Awaitable[Any]) -> Reply:
    """Return the reply of a host function. Raises what ends the call."""
    try:
        return Reply(number, msgspec.Raw(msgspec.msgpack.encode(await running)))
    except (SkillError, Denied, StepFailed, UsageError, ValueError) as error:
        if isinstance(error, FrameError):
            raise
        return Reply.of_error(number, error)


def _check_key(key: str | int | None) -> None:
    """Raise ValueError for the name or key of a step that no journal can have."""
    if len(str(key)) > _LONGEST_KEY:
        raise ValueError(f"the name or key of a step has more than {_LONGEST_KEY} characters")


def _check_time(seconds: float) -> None:
    if not 0 <= seconds <= _LONGEST_TIME_S:
        raise ValueError(f"{seconds} is not a time from 0 to {_LONGEST_TIME_S:,.0f} seconds")
