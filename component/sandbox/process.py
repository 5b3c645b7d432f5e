"""One confined child that runs native skills, and the messages with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import structlog

from component import system
from component.sandbox.host_calls import ContextHost, HostCalls, Outcome
from component.sandbox.launch import NOT_CONFINED, confined_module
from component.sandbox.messages import (
    LONGEST_LINE,
    Call,
    Cancel,
    Describe,
    Described,
    Failure,
    FrameError,
    Frames,
    FromChild,
    LogLine,
    Result,
    StepEnded,
    ToChild,
    Withdraw,
    frame,
    read_from_child,
)
from component.sandbox.profile import Profile
from component.skills.errors import SkillError, SkillUnavailable, printable

_log = structlog.get_logger("component.sandbox")

CANCEL_S: Final = 1.0
"""Seconds that a child has to end a cancelled call before it is killed."""
_MOST_LINES: Final = 100
_PIECE: Final = 1 << 18
_DESCRIBED_BYTES: Final = 1 << 20
MOST_PRINTED_BYTES: Final = 16 << 20
"""What a child may print in one call."""
_KEPT: Final = 4000
_PIPE: Final = 1 << 20  # all that a pipe can hold
_PREFIX: Final = "xmpp-agent-skills-"


class ErrorOutput:
    """The standard error of a child: a pipe, of which the service keeps the end.

    A file would be one that the child can write to: `fallocate` takes space of the disk that no
    limit of the kernel counts.

    Attributes:
        writer: the end of the pipe for the child. It is closed once the child has it.
        reader: the other end. It is not blocking.
        size: the number of bytes that have been read since `take`.
    """

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.size = 0
        self._end = b""

    def read(self) -> bool:
        """Read what is there; return whether more can follow."""
        try:
            data = os.read(self.reader, _PIPE)
        except BlockingIOError:
            return True
        self.size += len(data)
        self._end = (self._end + data[-_KEPT:])[-_KEPT:]
        return bool(data)

    def take(self) -> str:
        """Return the last lines that were printed since this was called before."""
        self.read()
        lines = self._end.decode(errors="replace").strip().splitlines()
        self._end, self.size = b"", 0
        return "\n".join(printable(line, LONGEST_LINE) for line in lines)

    def close(self) -> None:
        """Close the reader. What the child prints after that fails."""
        os.close(self.reader)


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class WorkDirectories:
    """Makes the working directories of children, in one directory of this service. Methods block.

    A service that is killed cannot remove its own. So each locks its directory while it runs, and
    the next one of the same user removes those that nobody locks.

    Raises OSError if no directory can be made.
    """

    def __init__(self) -> None:
        _remove_stale()
        self._path, self._lock = _make()

    def new(self) -> str:
        """Return a new empty directory. Raises OSError."""
        return tempfile.mkdtemp(dir=self._path)

    def close(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def _make() -> tuple[str, int]:
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX)
        lock = _locked(path)
        # Another service may have removed it before it was locked.
        if lock is not None and _is_at(lock, path):
            # Children can have other user ids.
            os.chmod(path, 0o711)  # noqa: PTH101, S103 - a string; it has no names to read
            return path, lock
        if lock is not None:
            os.close(lock)


def _remove_stale() -> None:
    """Remove the directories of services of this user that have ended."""
    for found in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if found.lstat().st_uid != os.geteuid():
                continue
            lock = _locked(str(found))
            if lock is not None:
                shutil.rmtree(found, ignore_errors=True)
                os.close(lock)


def _locked(path: str) -> int | None:
    """Lock a directory, and return its descriptor; None if it is locked, or no directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


class Spawner:
    """Starts children. They end with this thread, so it lives as long as they may."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "spawner")
        self._directories: WorkDirectories | None = None

    async def start(self, profile: Profile, module: str) -> Child:
        """Start a child. Raises SkillUnavailable if the system cannot."""
        starting = self._thread.submit(self._started, profile, module)
        try:
            return await system.in_thread(starting.result)
        except OSError as error:
            reason = f"No process can be started for the skill: {error.strerror}."
            raise SkillUnavailable(reason, begun=False) from error

    def _started(self, profile: Profile, module: str) -> Child:
        if self._directories is None:
            self._directories = WorkDirectories()
        return Child(profile, module, self._directories.new())

    def close(self) -> None:
        """End the thread, and so all children."""
        self._thread.submit(self._remove)
        self._thread.shutdown(wait=False)

    def _remove(self) -> None:
        if self._directories is not None:
            self._directories.close()


class Child:
    """A child process of a module of skills. Only one task uses it at a time.

    Args:
        work: an empty directory for it alone.
    """

    def __init__(self, profile: Profile, module: str, work: str) -> None:
        self.module = module
        self._work = work
        self.profile = msgspec.structs.replace(profile, work=self._work, end_with_parent=True)
        self._printed = ErrorOutput()
        child_in, self._outgoing = os.pipe2(os.O_CLOEXEC)
        self._incoming, child_out = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the launcher
                confined_module(self.profile, module),
                executable=sys.executable,
                stdin=child_in,
                stdout=child_out,
                stderr=self._printed.writer,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(self._outgoing)
            os.close(self._incoming)
            self._printed.close()
            os.rmdir(self._work)  # noqa: PTH106 - it is a string
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
            os.close(self._printed.writer)
        os.set_blocking(self._outgoing, False)
        os.set_blocking(self._incoming, False)
        self._readable = select.epoll()
        self._readable.register(self._incoming, select.EPOLLIN)
        self._readable.register(self._printed.reader, select.EPOLLIN)
        self._frames = Frames(self.profile.limits.output_bytes)
        self._used = self._lines = 0
        self._writing = False
        self._cpu_s = 0.0
        self._clock = (~self._process.pid << 3) | 2  # CLOCK_PROCESS_CPUTIME_ID of a process
        self._closed = False

    @property
    def reusable(self) -> bool:
        """Whether it can take another call: alive, silent, and with half of its processor time."""
        if self._closed or not self._frames.empty or self._process.poll() is not None:
            return False
        readable = select.poll()
        readable.register(self._incoming)
        if readable.poll(0):
            return False
        try:
            used = time.clock_gettime(self._clock)
        except OSError:
            return False
        return used < self.profile.limits.cpu_s / 2

    async def describe(self) -> tuple[bytes, ...]:
        """Return untrusted descriptions, as JSON. Raises SkillUnavailable, SkillError."""
        self._frames = Frames(min(self.profile.limits.output_bytes, _DESCRIBED_BYTES))
        answer = await self._ask(Describe(), None, "loading it")
        if isinstance(answer, Failure):
            raise SkillError(answer.text or "the module needs more memory")
        if isinstance(answer, Described):
            return answer.skills
        raise self._broken("it answers something else than it was asked")

    async def call(self, wanted: Call, host: ContextHost) -> Result | Failure:
        """Call a skill, and return its outcome; `host` runs host functions.

        Raises SkillUnavailable if the child dies, floods, or takes too long. It must be killed
        then, and if this is cancelled.
        """
        outcome = await self._ask(wanted, host, "it")
        if isinstance(outcome, Described):
            raise self._broken("it answers something else than it was asked")
        return outcome

    async def _ask(self, message: ToChild, host: ContextHost | None, what: str) -> Outcome:
        with anyio.move_on_after(self.profile.limits.wall_s):
            await self._send(message)
            return await self._answer(host)
        raise self._broken(f"{what} takes more than {self.profile.limits.wall_s:g} s")

    async def cancel(self) -> bool:
        """Have it end the current call, and return whether it did so in time."""
        if self._writing:
            return False  # it has got half of a message
        with anyio.move_on_after(CANCEL_S):
            try:
                await self._send(Cancel())
                while not isinstance(await self._answer(None), Failure | Result):
                    pass
            except SkillUnavailable:
                return False
            return self.reusable
        return False

    async def kill(self) -> None:
        """Kill it and all that it has started, and wait for its end. May be called again."""
        if self._closed:
            return
        self._closed = True
        # The leader is not reaped yet, so the number of the group is still its own; and no process
        # of the group can have left it, because seccomp refuses setsid and setpgid.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()
        with anyio.CancelScope(shield=True):
            await self._ended()
            self._log_printed()
            self._readable.close()
            self._printed.close()
            os.close(self._outgoing)
            os.close(self._incoming)
            await system.in_thread(shutil.rmtree, self._work, True)

    async def _ended(self) -> None:
        if self._process.returncode is not None:
            return
        watched = os.pidfd_open(self._process.pid)
        try:
            await anyio.wait_readable(watched)
        finally:
            os.close(watched)
        if self._process.returncode is None:
            _, status, usage = os.wait4(self._process.pid, 0)  # noqa: ASYNC222 - it has ended
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._cpu_s = usage.ru_utime + usage.ru_stime

    async def _answer(self, host: ContextHost | None) -> Outcome:
        self._used = self._lines = 0
        while True:
            match await self._message(host):
                case Described() | Result() | Failure() as outcome:
                    break
                case StepEnded() | Withdraw():
                    pass  # of a call that was cancelled
                case LogLine():
                    raise AssertionError("it was written")
                case ask:
                    # Only now: most calls ask for nothing, and a group of tasks takes time.
                    calls = HostCalls(host, partial(self._message, host), self._send)
                    try:
                        outcome = await calls.run(ask)
                    except FrameError as error:
                        raise self._broken(str(error)) from error
                    break
        self._log_printed()
        return outcome

    async def _message(self, host: ContextHost | None) -> FromChild:
        """Return the next message that is not a line for the log."""
        while True:
            try:
                message = read_from_child(await self._read())
            except FrameError as error:
                raise SkillUnavailable(f"The process of the skill failed: {error}.") from error
            if not isinstance(message, LogLine):
                return message
            self._lines += 1
            if self._lines <= _MOST_LINES and host is not None:
                host.log(message.level, printable(message.text, LONGEST_LINE))

    async def _send(self, message: ToChild) -> None:
        await self._write(frame(message))

    async def _read(self) -> bytes:
        limit = self.profile.limits.output_bytes
        while True:
            try:
                body = self._frames.next()
            except FrameError as error:
                raise self._broken(str(error)) from error
            if body is not None:
                return body
            await anyio.wait_readable(self._readable.fileno())
            self._read_printed()
            try:
                data = os.read(self._incoming, _PIECE)
            except BlockingIOError:
                continue
            if not data:
                raise self._broken(await self._cause())
            self._used += len(data)
            if self._used > limit:
                raise self._broken(f"it writes more than {limit:,} bytes in one call")
            self._frames.feed(data)

    async def _write(self, data: bytes) -> None:
        left = memoryview(data)
        self._writing = True
        try:
            while left:
                try:
                    left = left[os.write(self._outgoing, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._outgoing)
        except BrokenPipeError:
            raise self._broken(await self._cause()) from None
        self._writing = False

    async def _cause(self) -> str:
        """Return why it closed its pipe: it has ended, or it soon will."""
        with anyio.move_on_after(CANCEL_S):
            await self._ended()
        code = self._process.returncode
        if code is None:
            return "it has closed its pipe"
        if code == NOT_CONFINED:
            return f"it cannot be confined: {self._printed.take()}"
        if code >= 0:
            return f"it ended with status {code}"
        limits = self.profile.limits
        processor = f"it used more than {limits.cpu_s} s of processor time"
        if code == -signal.SIGKILL and self._cpu_s >= limits.cpu_s:
            return processor
        causes: dict[int, str] = {
            signal.SIGXCPU: processor,
            signal.SIGSYS: "it made a system call that is not allowed",
            signal.SIGKILL: "it was killed by the system, for its memory, or by an administrator",
        }
        return causes.get(-code, f"it was ended by {signal_name(-code)}")

    def _broken(self, reason: str) -> SkillUnavailable:
        _log.warning("a confined process failed", module=self.module, reason=reason)
        return SkillUnavailable(f"The process of the skill failed: {reason}.")

    def _read_printed(self) -> None:
        """Read what it has printed, so that it never waits for that."""
        for descriptor, _ in self._readable.poll(0):
            if descriptor == self._printed.reader and not self._printed.read():
                self._readable.unregister(descriptor)
        if self._printed.size > MOST_PRINTED_BYTES:
            raise self._broken(f"it prints more than {MOST_PRINTED_BYTES:,} bytes in one call")

    def _log_printed(self) -> None:
        text = self._printed.take()
        if text:
            _log.info("a skill prints", module=self.module, text=text)
