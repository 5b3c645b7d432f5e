"""What runs inside a confined child: it loads skills, and calls them for the service."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast, get_args

import anyio
import msgspec

from component.policy.taint import Taint
from component.sandbox.durable_parts import DurableParts
from component.sandbox.messages import (
    Ask,
    Begin,
    Call,
    Cancel,
    Describe,
    Described,
    ErrorKind,
    Failure,
    FailureKind,
    Frames,
    FromChild,
    LogLine,
    Reply,
    Result,
    StepEnded,
    ToChild,
    Wanted,
    Withdraw,
    frame,
    read_to_child,
)
from component.skills.calling import call, call_inline
from component.skills.context import Context
from component.skills.description import written
from component.skills.errors import (
    CALL_ERRORS,
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
    StepFailed,
    UsageError,
)
from component.skills.host import Function, HostError, HostFunctions, LogLevel
from component.skills.inputs import Arguments
from component.skills.loading import load_module, skills_of
from component.skills.model_answers import ModelFailed
from component.skills.operations import AskModel, ReportProgress
from component.skills.params import prepare
from component.skills.skill import Skill
from component.skills.threads import Threads

T = TypeVar("T")

_MESSAGE_BYTES: Final = 64 << 20
_PIECE: Final = 1 << 16
_TRACE: Final = 4000
_THREADS: Final = 8


class Guest:
    """Runs calls until the pipe from the service ends.

    Args:
        incoming: the pipe from the service.
        outgoing: the pipe to it.
        module: the name or `.py` file of the module whose skills are called.
    """

    def __init__(self, incoming: int, outgoing: int, module: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._module = module
        self._frames = Frames(_MESSAGE_BYTES)
        self._skills: dict[str, Skill] | None = None
        self._replies: dict[int, _Waiting] = {}
        self._asked = 0

    def run(self) -> None:
        """Run calls. Plain functions run in this thread, without an event loop's help."""
        anyio.run(self._serve)

    async def _serve(self) -> None:
        while True:
            # Nothing else runs between calls, so the thread may block.
            message = self._blocking_read()
            match message:
                case None:
                    return
                case Describe():
                    self.send(self._described())
                case Call():
                    answer = await self._called(message)
                    _empty_directory()
                    self.send(answer)
                case Cancel() | Reply():
                    pass  # of a call that has ended

    def _blocking_read(self) -> ToChild | None:
        while (body := self._frames.next()) is None:
            data = os.read(self._incoming, _PIECE)
            if not data:
                return None
            self._frames.feed(data)
        return read_to_child(body)

    def send(self, message: FromChild) -> None:
        """Write a message."""
        data = memoryview(frame(message))
        while data:
            data = data[os.write(self._outgoing, data) :]

    def _described(self) -> FromChild:
        try:
            skills = self._loaded()
        except SkillLoadError as error:
            return Failure("load", str(error), trace=_trace(error))
        return Described(tuple(written(one).encode() for one in skills.values()))

    def _loaded(self) -> dict[str, Skill]:
        if self._skills is None:
            if self._module.endswith(".py"):
                # The modules beside it are its own: this process runs nothing else.
                sys.path.insert(0, os.path.dirname(self._module))  # noqa: PTH120 - no pathlib here
            try:
                found = skills_of(load_module(self._module))
            except MemoryError as error:
                raise SkillLoadError(f"The module {self._module} needs more memory.") from error
            self._skills = {one.name: one for one in found}
        return self._skills

    async def _called(self, wanted: Call) -> FromChild:
        try:
            skill = self._loaded()[wanted.skill]
            arguments = prepare(skill, json=wanted.arguments)
        except (SkillLoadError, KeyError) as error:
            return Failure("load", f"The skill cannot be loaded: {error}", trace=_trace(error))
        except InvalidParam as error:
            return Failure("parameter", error.reason, error.name, error.path)
        except MemoryError as error:
            return Failure("memory", trace=_trace(error))
        if skill.kind == "async" or skill.wants_context:
            return await self._with_host(skill, arguments, wanted)
        try:
            return Result.of(call_inline(skill, arguments))
        except (InvalidParam, SkillFailed) as error:
            return _failure(error)

    async def _with_host(self, skill: Skill, arguments: Arguments, wanted: Call) -> FromChild:
        may_use = {
            each: self._perform
            for each in (*get_args(Function), ReportProgress, AskModel)
            if each.tag() in wanted.declared
        }
        functions = HostFunctions(wanted.skill, self._log, may_use)
        task = anyio.get_current_task().id if skill.kind == "async" else None
        context = Context(
            principal=wanted.principal,
            sender=wanted.sender,
            skill=wanted.skill,
            agent=wanted.agent,
            taints=cast("tuple[Taint, ...]", wanted.taints),
            host=DurableParts(self, functions, wanted.skill, wanted.key, task),
        )
        context.provide(functions)
        share = Threads(_THREADS, _THREADS).share(wanted.principal)
        answer: FromChild = Failure("cancelled")
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, group.cancel_scope)
            try:
                result = await call(skill, arguments, context, share, timeout=wanted.seconds)
                answer = Result.of(result)
            except CALL_ERRORS as error:
                answer = _failure(error)
            group.cancel_scope.cancel()
        return answer

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Take replies, and the cancellation, while a skill runs."""
        while True:
            while (body := self._frames.next()) is None:
                await anyio.wait_readable(self._incoming)
                data = os.read(self._incoming, _PIECE)
                if not data:
                    os._exit(0)  # the service is gone
                self._frames.feed(data)
            match read_to_child(body):
                case Reply() as reply:
                    self._arrived(reply)
                case Begin() as begin:
                    self._arrived(begin)
                case Cancel():
                    scope.cancel()
                case _:
                    pass

    def _arrived(self, message: Reply | Begin) -> None:
        waiting = self._replies.get(message.id)
        if waiting is not None:
            waiting.message = message
            waiting.event.set()

    def _log(self, level: LogLevel, text: str) -> None:
        self.send(LogLine(level, text))

    async def _perform(self, function: Any) -> Any:
        return await self.ask(function, type=function.result_type())

    async def ask(
        self,
        what: Wanted,
        *,
        type: type[T],  # noqa: A002 - it is one
        branch: bool = True,
        work: Callable[[str], Awaitable[StepEnded]] | None = None,
    ) -> T:
        """Ask the service, and return its reply as a value of a type.

        `branch` says that the skill asks in a branch beside others. `work` does the work of a step,
        if the service says so. Raises what the service says.
        """
        self._asked += 1
        number = self._asked
        waiting = self._replies[number] = _Waiting()
        self.send(Ask(number, what, branch))
        try:
            while True:
                await waiting.event.wait()
                message = waiting.message
                if isinstance(message, Reply):
                    break
                assert isinstance(message, Begin)
                assert work is not None, "the service begins steps only"
                waiting.event = anyio.Event()
                self.send(msgspec.structs.replace(await work(message.key), id=number))
        except anyio.get_cancelled_exc_class():
            self.send(Withdraw(number))
            raise
        finally:
            del self._replies[number]
        if message.error is not None:
            raise _error(message.kind, message.error)
        return msgspec.msgpack.decode(message.value, type=type)


class _Waiting:
    def __init__(self) -> None:
        self.event = anyio.Event()
        self.message: Reply | Begin | None = None


def _error(kind: ErrorKind, text: str) -> Exception:
    """Return the exception that a host function raised."""
    match kind:
        case "host":
            return HostError(text)
        case "refused":
            return SkillError(text)
        case "declined":
            return Denied(text)
        case "step":
            return StepFailed(text)
        case "usage":
            return UsageError(text)
        case "value":
            return ValueError(text)
        case "model":
            return ModelFailed("refused", text)
    return ModelFailed(kind, text)


def _failure(error: Exception) -> Failure:
    match error:
        case InvalidParam():
            return Failure("parameter", error.reason, error.name, error.path)
        case CapabilityMissing():
            return Failure("capability", str(error), error.capability)
        case SkillTimeout():
            return Failure("timeout", str(error))
    cause = error.__cause__ or error
    kind: FailureKind = "memory" if isinstance(cause, MemoryError) else "failed"
    return Failure(kind, str(error), trace=_trace(cause))


def _empty_directory() -> None:
    """Remove what a call has left in the working directory."""
    work = os.environ["TMPDIR"]
    if work == "/":
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(work):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)  # noqa: PTH108 - the path is a string


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_TRACE:]
