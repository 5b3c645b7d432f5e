"""What runs inside a confined child: it loads skills, and calls them for the service."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast, get_args

import anyio
import msgspec

from component.policy.taint import Taint
from component.sandbox.messages import (
    Ask,
    Begin,
    Call,
    Cancel,
    Describe,
    Described,
    Failure,
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
    trace_of,
)
from component.skills.calling import Threads, call, call_inline
from component.skills.context import Context
from component.skills.errors import (
    CALL_ERRORS,
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillLoadError,
    StepFailed,
    UsageError,
)
from component.skills.host import Function, HostError, HostFunctions
from component.skills.inputs import Arguments
from component.skills.loading import load_module, skills_of
from component.skills.operations import (
    CAPABILITY,
    AskModel,
    AskPrincipal,
    PartialHost,
    PublishPart,
    ReportProgress,
    RunStep,
    Sleep,
    Work,
    in_step,
)
from component.skills.params import prepare
from component.skills.skill import Skill
from component.skills.spec import spec_json

T = TypeVar("T")

_MESSAGE_BYTES: Final = 64 << 20
_PIECE: Final = 1 << 16
_THREADS: Final = 8


class Guest:
    """Runs calls until the pipe from the service ends.

    Args:
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
            return Failure("load", str(error), trace=trace_of(error))
        return Described(tuple(spec_json(one).encode() for one in skills.values()))

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
            return Failure("load", f"The skill cannot be loaded: {error}", trace=trace_of(error))
        except InvalidParam as error:
            return Failure.of(error)
        except MemoryError as error:
            return Failure("memory", trace=trace_of(error))
        if skill.kind == "async" or skill.wants_context:
            return await self._with_host(skill, arguments, wanted)
        try:
            return Result.of(call_inline(skill, arguments))
        except (InvalidParam, SkillFailed) as error:
            return Failure.of(error)

    async def _with_host(self, skill: Skill, arguments: Arguments, wanted: Call) -> FromChild:
        may_use = {
            each: lambda function: self.ask(function, type=function.result_type())
            for each in (*get_args(Function), ReportProgress, AskModel)
            if each.tag() in wanted.declared
        }
        functions = HostFunctions(wanted.skill, lambda *line: self.send(LogLine(*line)), may_use)
        task = anyio.get_current_task().id if skill.kind == "async" else None
        context = Context(
            principal=wanted.principal,
            sender=wanted.sender,
            skill=wanted.skill,
            agent=wanted.agent,
            taints=cast("tuple[Taint, ...]", wanted.taints),
            host=ChildHost(self, functions, wanted.skill, wanted.key, task),
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
                answer = Failure.of(error)
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
        return message.result(type)


class ChildHost(PartialHost):
    """Sends the operations of a skill in a child to the service."""

    def __init__(
        self, guest: Guest, functions: HostFunctions, skill: str, key: str, task: int | None
    ) -> None:
        self._guest = guest
        self._skill = skill
        self._functions = functions
        self._task = task
        self.key = key

    def unsupported(self, method: str) -> UsageError:
        """Return the error for what a confined skill cannot do."""
        return UsageError(
            f"A confined skill cannot use context.{method}: it would run other skills with the"
            " rights of its caller. An admin can approve the skill as trusted."
        )

    async def _do_progress(self, report: ReportProgress) -> None:
        await self._guest.ask(report, type=type(None))

    async def _do_output(self, part: PublishPart) -> None:
        try:
            await self._guest.ask(part, type=type(None))
        except HostError as error:
            raise ValueError(str(error)) from error

    async def _do_llm(self, asked: AskModel, _check: Callable[[str], object]) -> str:
        if AskModel not in self._functions.handlers:
            raise CapabilityMissing(self._skill, CAPABILITY)
        return await self._guest.ask(asked, branch=self._in_branch(), type=str)

    async def _do_step(self, step: RunStep, work: Work[bytes]) -> bytes:
        raised: list[Exception] = []

        async def run(idempotency_key: str) -> StepEnded:
            outer = in_step.set(True)
            try:
                return StepEnded(0, await work(idempotency_key))
            except Exception as error:  # noqa: BLE001 - the service records it
                raised.append(error)
                return _ended(error)
            finally:
                in_step.reset(outer)

        try:
            value = await self._guest.ask(step, branch=self._in_branch(), type=object, work=run)
        except (SkillError, StepFailed, UsageError) as error:
            if not raised:
                raise
            if isinstance(error, StepFailed):
                raise error from raised[0]
            raise raised[0] from None
        return msgspec.json.encode(value)

    async def _do_ask(self, asked: AskPrincipal) -> bytes:
        if in_step.get():
            raise UsageError("A skill asks a question before a step, and passes it the answer.")
        answer = await self._guest.ask(asked, branch=self._in_branch(), type=object)
        return msgspec.json.encode(answer)

    async def _do_sleep(self, sleep: Sleep) -> None:
        await self._guest.ask(sleep, branch=self._in_branch(), type=type(None))


class _Waiting:
    def __init__(self) -> None:
        self.event = anyio.Event()
        self.message: Reply | Begin | None = None


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


def _ended(error: Exception) -> StepEnded:
    """Return how a step ended that raised an exception."""
    if isinstance(error, Denied | InvalidParam | UsageError):
        return StepEnded(0, error=str(error), kind="usage")
    if isinstance(error, SkillError):
        return StepEnded(0, error=str(error), kind="refused")
    return StepEnded(0, error=f"{type(error).__name__}: {error}")
