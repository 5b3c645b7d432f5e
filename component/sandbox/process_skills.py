"""Native skills that are not trusted: a module whose functions run in confined children.

Even the description of the skills is read in a child, since importing a module runs its code.
Children are kept for the next call, each for one skill and one principal, and never used for
another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.sandbox.host_calls import ContextHost
from component.sandbox.messages import Call, Failure, Result
from component.sandbox.process import Child, Spawner
from component.sandbox.profile import MIB, Profile
from component.sandbox.report import log_confinement
from component.skills.calling import Threads
from component.skills.context import Context
from component.skills.errors import (
    CapabilityMissing,
    DeclarationError,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
    SkillUnavailable,
    printable,
)
from component.skills.host import HostFunctions
from component.skills.inputs import Arguments, schema_inputs
from component.skills.operations import Parked
from component.skills.outputs import SkillResult
from component.skills.skill import Skill
from component.skills.spec import spec_fields
from xep.binding.json_bounds import checked_json

_log = structlog.get_logger("component.sandbox")


class ErrorInChild(Exception):  # noqa: N818 - the name says where it was
    """The exception that a skill raised in its process: type and message, for its author."""


class ChildPool:
    """The confined children of a service.

    Args:
        per_principal: maximum number of those that work for one principal at the same time.
        idle_s: seconds after which a child without a call ends.
    """

    def __init__(self, *, most: int = 16, per_principal: int = 4, idle_s: float = 300.0) -> None:
        self._most = most
        self._idle_s = idle_s
        self._busy = Threads(most, per_principal)  # it counts anything that principals share
        self._idle: dict[Child, tuple[_Key, float]] = {}  # the least recently used first
        self._alive: set[Child] = set()
        self._spawner: Spawner | None = None
        self._group: TaskGroup | None = None

    def __len__(self) -> int:
        """Return the number of children."""
        return len(self._alive)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Log what the kernel does not guarantee, and keep the children until cancelled."""
        self._spawner = Spawner()
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(log_confinement)
                task_status.started()
                while True:
                    await anyio.sleep(self._idle_s / 4)
                    await self._end_idle()
        finally:
            self._group = None
            with anyio.CancelScope(shield=True):
                for child in list(self._alive):
                    await self._kill(child)
            self._spawner.close()

    async def describe(self, key: _Key) -> tuple[bytes, ...]:
        """Return what a module says of its skills, in a child of its own.

        Raises SkillUnavailable, and SkillError if the module cannot be loaded.
        """
        await self._busy.acquire(key.principal)
        try:
            child = await self._start(key)
            try:
                return await child.describe()
            finally:
                await self._kill(child)
        finally:
            self._busy.release(key.principal)

    async def call(self, key: _Key, wanted: Call, host: ContextHost) -> Result | Failure:
        """Call a skill in a child. Raises SkillUnavailable, and what `host` raises."""
        await self._busy.acquire(key.principal)
        child = None
        try:
            child = self._take(key) or await self._start(key)
            outcome = await child.call(wanted, host)
        except (anyio.get_cancelled_exc_class(), Parked):
            if child is None or self._group is None:
                self._busy.release(key.principal)
            else:
                self._group.start_soon(self._end_call, child, key)
            raise
        except BaseException:
            await self._release(child, key, keep=False)
            raise
        intact = isinstance(outcome, Result) or outcome.kind not in ("memory", "load")
        await self._release(child, key, keep=intact)
        return outcome

    async def _release(self, child: Child | None, key: _Key, *, keep: bool) -> None:
        if child is not None and keep:
            self._idle[child] = (key, anyio.current_time())
        elif child is not None:
            with anyio.CancelScope(shield=True):
                await self._kill(child)
        self._busy.release(key.principal)

    async def end(self, module: str, version: str) -> None:
        """End the idle children of a version of a module. Those at work end after their call."""
        for child, (key, _) in list(self._idle.items()):
            if key.module == module and key.version == version:
                del self._idle[child]
                await self._kill(child)

    def _take(self, key: _Key) -> Child | None:
        """Return an idle child of a key that can be used."""
        for child, (of, _) in reversed(self._idle.items()):
            if of == key:
                del self._idle[child]
                if child.reusable:
                    return child
                assert self._group is not None
                self._group.start_soon(self._kill, child)
                return None
        return None

    async def _start(self, key: _Key) -> Child:
        if self._spawner is None or self._group is None:
            raise SkillUnavailable("The processes of skills are not running.", begun=False)
        while len(self._alive) >= self._most and self._idle:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            await self._kill(oldest)
        child = await self._spawner.start(key.profile, key.module)
        self._alive.add(child)
        return child

    async def _end_call(self, child: Child, key: _Key) -> None:
        """Have a child end a call that nobody waits for."""
        keep = False
        try:
            keep = await child.cancel()
        finally:
            await self._release(child, key, keep=keep)

    async def _end_idle(self) -> None:
        before = anyio.current_time() - self._idle_s
        for child, (_, since) in list(self._idle.items()):
            if since <= before:
                self._idle.pop(child, None)
                await self._kill(child)

    async def _kill(self, child: Child) -> None:
        await child.kill()
        self._alive.discard(child)


class _Key(msgspec.Struct, frozen=True):
    """What a child may be used for. No skill is named where the skills are described."""

    module: str
    version: str
    profile: Profile
    skill: str
    principal: str


class ProcessSkills:
    """The skills of a module, each call in a confined child.

    Args:
        profile: what a child may do; it may read the module's files too.
        module: the `.py` file of the module, or its name.
        version: says which version of the files this is. Children of one are not used for another.
    """

    def __init__(
        self,
        children: ChildPool,
        profile: Profile,
        module: str,
        functions: Callable[[Context], HostFunctions],
        version: str = "",
    ) -> None:
        self._children = children
        own = (module,) if module.endswith(".py") else ()
        self._profile = msgspec.structs.replace(profile, read=(*profile.read, *own))
        self._module = module
        self._version = version
        self._functions = functions

    async def describe(self) -> tuple[Skill, ...]:
        """Return the skills of the module as it describes them. All that it says are claims.

        Raises SkillLoadError if it cannot be loaded, or describes a skill that cannot be offered.
        """
        try:
            found = await self._children.describe(self._key("", ""))
        except (SkillError, SkillUnavailable) as error:
            raise SkillLoadError(str(error)) from error
        return tuple(self._skill(one) for one in found)

    async def call(self, name: str, arguments: Arguments, context: Context) -> SkillResult:
        """Call a skill.

        Raises SkillUnavailable when the child dies, floods or hangs, and InvalidParam, SkillFailed,
        SkillTimeout and CapabilityMissing as any skill.
        """
        functions = msgspec.structs.replace(self._functions(context), skill=name)
        remaining = context.remaining()
        longest = self._profile.limits.wall_s
        wanted = Call(
            skill=name,
            arguments=msgspec.json.encode(arguments),
            seconds=longest if remaining is None else min(remaining, longest),
            principal=context.principal,
            sender=context.sender,
            agent=context.agent,
            key=context.key,
            taints=context.taints,
            declared=tuple(each.tag() for each in functions.handlers),
        )
        outcome = await self._children.call(
            self._key(name, context.principal), wanted, ContextHost(context, functions)
        )
        if isinstance(outcome, Failure):
            raise self._error(name, outcome, wanted.seconds)
        return outcome.result()

    async def close(self) -> None:
        """End the children of this version that have no call."""
        await self._children.end(self._module, self._version)

    def _key(self, skill: str, principal: str) -> _Key:
        return _Key(self._module, self._version, self._profile, skill, principal)

    def _error(self, name: str, failure: Failure, seconds: float) -> Exception:
        if failure.trace:
            _log.warning("a skill failed in its process", skill=name, trace=failure.trace)
        match failure.kind:
            case "parameter":
                return InvalidParam(failure.name, failure.text, failure.path)
            case "capability":
                return CapabilityMissing(name, failure.name or "")
            case "memory":
                most = self._profile.limits.memory // MIB
                return SkillUnavailable(f"The skill {name} needs more than {most} MiB of memory.")
            case "timeout":
                return SkillTimeout(name, seconds)
            case "load":
                return SkillUnavailable(failure.text, begun=False)
        failed = SkillFailed(name)
        failed.__cause__ = ErrorInChild(printable(failure.trace.rstrip().rpartition("\n")[2], 500))
        return failed

    def _skill(self, described: bytes) -> Skill:
        try:
            fields = spec_fields(checked_json(described))
        except ValueError as error:
            raise SkillLoadError(f"The module {self._module} describes no skill: {error}") from None
        name = fields["name"]
        fields["timeout"] = min(fields["timeout"], self._profile.limits.wall_s)
        fields["source"] = f"process:{self._module}"
        try:
            return Skill(
                **fields,
                inputs=schema_inputs(fields["input_schema"]),
                kind="async",
                wants_context=True,
                invoke=partial(self.call, name),
            )
        except DeclarationError as error:
            raise SkillLoadError(str(error)) from error
