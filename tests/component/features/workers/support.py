"""Real workers, each a process as an admin starts it, and a task service that uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from pydantic import SecretStr

from component.features.workers.feature import workers_source
from component.features.workers.settings import WorkersEntry
from component.skills.registry import Registry
from component.skills.sources import SkillSources
from component.store import Storage
from tests.component.tasks.world import World, living
from tests.profiles import THOROUGH
from tests.servers.forked import Forked
from tests.servers.watchdog import Watchdog
from tests.waiting import eventually

SKILLS = Path(__file__).with_name("worker_skills.py")
PROGRAM = Path(sys.executable).with_name("xmpp-agent")
LOST_AFTER_S = 600
"""A worker that lives does not count as lost, however busy the machine is."""


class WorkerProgram:
    """`xmpp-agent worker`, a process of its own: as services of tests, a fork of a process that has
    imported what they need. A thorough run starts the program, and so do tests that say
    `program=True`.

    Args:
        directory: gets its files.
        url: the database of the queue.
        modules: its skills.
        text: its whole configuration, in place of one that is made.
        settings: further lines of its section.
    """

    def __init__(
        self,
        directory: Path,
        url: str,
        *,
        name: str = "one",
        modules: Sequence[str] = (str(SKILLS),),
        text: str = "",
        program: bool = THOROUGH,
        **settings: Any,
    ) -> None:
        self._program = program
        directory.mkdir(exist_ok=True)
        self.ledger = directory / "ledger"
        config = directory / f"{name}.toml"
        section = {"name": name, "lost_after_s": LOST_AFTER_S, "concurrency": 8, **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in section.items()]
        config.write_text(
            text
            or f"[skills]\nmodules = {json.dumps(list(modules))}\n"
            '[log]\nformat = "json"\n'
            f'[worker]\ndatabase = "${{QUEUE}}"\n'
            + "\n".join(lines)
            + "\n"
        )
        self._config = config
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("XMPP_AGENT_")},
            "QUEUE": url,
            "LEDGER": str(self.ledger),
        }
        self.log: list[str] = []
        self._process: subprocess.Popen[str] | Forked | None = None
        self._watchdog: Watchdog | None = None

    def start(self) -> None:
        """Start it, and return when it has announced its skills."""
        self._process = self._started()
        self._watchdog = Watchdog(self._process.pid)
        started = threading.Event()
        threading.Thread(target=self._read, args=(self._process, started), daemon=True).start()
        assert started.wait(120), self.log
        assert self._process.poll() is None, self.log

    def _started(self) -> subprocess.Popen[str] | Forked:
        words = [str(PROGRAM), "worker", "--config", str(self._config)]
        if not self._program:
            return Forked(words, self._config.parent, self._environment)
        return subprocess.Popen(
            words,
            cwd=self._config.parent,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _read(self, process: subprocess.Popen[str] | Forked, started: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.log.append(line)
                if "a worker has started" in line:
                    started.set()
        started.set()

    def kill(self) -> None:
        """End it as a power failure does."""
        if self._process is not None and self._watchdog is not None:
            self._watchdog.kill_group()
            self._process.wait(120)
            assert self._process.stdout is not None
            with self._process.stdout as stdout:
                assert stdout.read() == "", "it writes its log to stderr, and nothing else"
            self._process = self._watchdog = None

    def send(self, signal_number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(signal_number)

    def command(self, *arguments: str) -> str:
        """Run a command beside it; return what it prints."""
        done = subprocess.run(
            [str(PROGRAM), *arguments],
            cwd=self._config.parent,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait()
        self.kill()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it as an admin does; return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(120)
        self.kill()
        return code

    def lines(self) -> list[str]:
        """Return what its skills have written."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


@contextmanager
def workers(
    directory: Path, url: str, *names: str, **settings: Any
) -> Iterator[list[WorkerProgram]]:
    """Run workers."""
    made = [WorkerProgram(directory, url, name=name, **settings) for name in names or ("one",)]
    try:
        threads = [threading.Thread(target=each.start) for each in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield made
    finally:
        for each in made:
            each.kill()


class Serving:
    """A task service whose skills are those of workers."""

    def __init__(self, world: World, registry: Registry) -> None:
        self.world = world
        self.registry = registry
        registry.listen(self.update)
        self.update()

    def update(self) -> None:
        """Use the skills that are offered now."""
        self.world.skills.clear()
        self.world.skills.update({one.name: one for one in self.registry})


@asynccontextmanager
async def offering(entry: WorkersEntry, *wanted: str) -> AsyncIterator[Registry]:
    """Run the source of a queue; its skills are in the registry, those wanted from the start."""
    registry = Registry()
    async with anyio.create_task_group() as group:
        await group.start(SkillSources(registry, [workers_source(entry)]).run)
        await eventually(lambda: all(registry.get(name) is not None for name in wanted))
        yield registry
        group.cancel_scope.cancel()


@asynccontextmanager
async def serving(
    open_storage: Callable[[], AbstractAsyncContextManager[Storage]],
    url: str,
    *wanted: str,
    limits: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Serving]:
    """Run a task service, whose skills are those of the workers of a queue."""
    entry = WorkersEntry(database=SecretStr(url), **settings)
    async with (
        offering(entry, *wanted) as registry,
        living(open_storage, *registry, **(limits or {})) as world,
    ):
        yield Serving(world, registry)


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run something that blocks."""
    return await to_thread.run_sync(work)
