"""The life of a worker: it announces its skills, shows that it is alive, and runs calls, each as a
job of procrastinate.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import procrastinate
import structlog
from anyio.abc import TaskGroup
from procrastinate.exceptions import ConnectorException
from procrastinate.job_context import AbortReason, JobContext
from procrastinate.jobs import Status
from procrastinate.worker import Worker
from psycopg import Error
from psycopg_pool import PoolTimeout

from component import system
from component.features.workers.messages import CallMessage, Outcome, Stopped, read_call
from component.features.workers.program.execution import Runtime, execute
from component.features.workers.program.rows import Begun, WorkerRows
from component.features.workers.queue import TASK, conninfo, lane_of
from component.features.workers.statements import Statements
from component.policy.globs import pattern
from component.sandbox.messages import Failure
from component.skills.calling import Threads
from component.skills.context import Context
from component.skills.registry import Registry
from component.skills.skill import Skill
from component.skills.spec import spec_json
from component.store.outages import Outages

if TYPE_CHECKING:
    from component.features.workers.settings import Worker as WorkerSettings

_log = structlog.get_logger("component.features.workers.program")

_BEATS: Final = 5
"""Signs of life within the time after which a worker counts as lost."""
_ANNOUNCE_S: Final = 300.0
_CLEAN_S: Final = 30.0
_AGAIN_S: Final = 1.0
_FETCH_S: Final = 0.25
"""Seconds between two looks for jobs without a notification: procrastinate misses one that arrives
while it fetches a job."""
_ABORT_S: Final = 5.0
_UNAVAILABLE: Final = (Error, PoolTimeout, ConnectorException)


class WorkerProcess:
    """A worker.

        provide: gives the context of a call the functions that the skill declares.

    Attributes:
        runtime: what calls run with.
        outages: when the database of the queue cannot be used.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        provide: Callable[[Skill, Context], None] = lambda _skill, _context: None,
    ) -> None:
        self.name = settings.name or socket.gethostname()
        self._settings = settings
        self._registry = registry
        threads = Threads(settings.concurrency, settings.concurrency)
        self.runtime = Runtime(threads, provide)
        self.outages = Outages()
        self._lanes: dict[str, tuple[Skill, str]] = {}
        """The skills and their descriptions, by lane."""
        self._changed = anyio.Event()
        self._stopping = False
        registry.listen(self._note_change)

    def _note_change(self) -> None:
        self._changed.set()

    def stop(self) -> None:
        """Stop: running calls have `drain_s` seconds to end."""
        self._stopping = True
        self._changed.set()

    async def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Run calls until stopped; `started` is called when the worker has announced itself.

        Raises SkillLoadError if the queue cannot be used at the start.
        """
        settings, id = self._settings, system.token_hex(8)  # noqa: A001 - it is one
        database = settings.database.get_secret_value()
        await system.in_thread(lambda: Statements.open(database, "", 0, "").close())
        connector = procrastinate.PsycopgConnector(
            conninfo=conninfo(database), min_size=1, max_size=min(settings.concurrency, 8) + 2
        )
        app = procrastinate.App(connector=connector)
        async with app.open_async():
            rows = WorkerRows(connector.pool, id, settings.queue, self.name, settings.lost_after_s)
            async with anyio.create_task_group() as group:
                app.task(name=TASK, pass_context=True)(_Jobs(self, rows, group).run)
                self._look()
                await self._announce(rows)
                _log.info(
                    "a worker has started",
                    queue=settings.queue,
                    worker=self.name,
                    skills=len(self._lanes),
                )
                started()
                group.start_soon(self._keep_beating, rows)
                group.start_soon(self._keep_announcing, rows)
                group.start_soon(self._keep_cleaning, app)
                await self._serve(app, rows)
                with contextlib.suppress(*_UNAVAILABLE):
                    await rows.leave()
                group.cancel_scope.cancel()

    def skill_of(self, lane: str) -> Skill | None:
        """Return the skill of a lane; None if the worker has it no longer."""
        found = self._lanes.get(lane)
        return None if found is None else found[0]

    async def _serve(self, app: procrastinate.App, rows: WorkerRows) -> None:
        """Run procrastinate's worker until stopped; another one when the lanes have changed, or
        when it has failed. The one before ends its jobs meanwhile.
        """
        async with anyio.create_task_group() as runs:
            while not self._stopping:
                self._changed = anyio.Event()
                if self._look():
                    await self._announce(rows)
                worker = self._worker(app)
                runs.start_soon(self._run_worker, worker, self._changed)
                await self._changed.wait()
                worker.stop()  # type: ignore[no-untyped-call]  # it has no annotations

    def _worker(self, app: procrastinate.App) -> Worker:
        settings = self._settings
        return Worker(
            app,
            queues=sorted(self._lanes) or ["-"],  # without any it would take every job
            name=self.name,
            concurrency=settings.concurrency,
            fetch_job_polling_interval=_FETCH_S,
            abort_job_polling_interval=_ABORT_S,
            shutdown_graceful_timeout=settings.drain_s,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=settings.lost_after_s / _BEATS,
            stalled_worker_timeout=settings.lost_after_s,
        )

    async def _run_worker(self, worker: Worker, ended: anyio.Event) -> None:
        """Run procrastinate's worker until it is stopped, or has failed."""
        try:
            with anyio.CancelScope(shield=True):  # it leaves a cancelled job without its status
                await worker.run()  # type: ignore[no-untyped-call]
        except _UNAVAILABLE as error:
            self.outages.failed("queue", error)
        if not ended.is_set():
            await anyio.sleep(_AGAIN_S)
            ended.set()

    def _look(self) -> bool:
        """Look at the skills; return whether they have changed."""
        wanted, lanes = pattern(self._settings.skills), {}
        for skill in self._registry:
            if wanted.fullmatch(skill.name):
                description = spec_json(skill)
                lanes[lane_of(self._settings.queue, description)] = (skill, description)
        changed = lanes.keys() != self._lanes.keys()
        self._lanes = lanes
        return changed

    async def _announce(self, rows: WorkerRows) -> None:
        lanes = self._lanes.items()
        await rows.announce({lane: (skill.name, text) for lane, (skill, text) in lanes})

    async def _keep_beating(self, rows: WorkerRows) -> None:
        while True:
            await anyio.sleep(self._settings.lost_after_s / _BEATS)
            try:
                await rows.beat(list(self._lanes))
                self.outages.succeeded("queue")
            except _UNAVAILABLE as error:
                self.outages.failed("queue", error)

    async def _keep_announcing(self, rows: WorkerRows) -> None:
        while True:
            await anyio.sleep(_ANNOUNCE_S)
            with contextlib.suppress(*_UNAVAILABLE):
                await self._announce(rows)

    async def _keep_cleaning(self, app: procrastinate.App) -> None:
        """Delete the jobs of lost workers. Their calls have other jobs, if they need any."""
        while True:
            await anyio.sleep(_CLEAN_S)
            with contextlib.suppress(*_UNAVAILABLE):
                jobs = app.job_manager
                lost_after_s = 10 * self._settings.lost_after_s
                for job in await jobs.get_stalled_jobs(
                    task_name=TASK, seconds_since_heartbeat=lost_after_s
                ):
                    if job.id is not None:
                        await jobs.finish_job_by_id_async(job.id, Status.FAILED, delete_job=True)


class _Jobs:
    """Runs jobs.

    Args:
        group: writes outcomes even if their job is cancelled meanwhile.
    """

    def __init__(self, process: WorkerProcess, rows: WorkerRows, group: TaskGroup) -> None:
        self._process = process
        self._rows = rows
        self._group = group

    async def run(self, context: JobContext, call: str) -> None:
        """Run a call, if it has not begun."""
        skill = self._process.skill_of(context.job.queue)
        begun = None if skill is None else await self._rows.begin(call)
        if skill is None or begun is None:
            return
        ended = anyio.Event()
        started = anyio.current_time()
        try:
            outcome = await self._execute(skill, begun)
        except anyio.get_cancelled_exc_class():
            shutdown = context.abort_reason() is AbortReason.SHUTDOWN
            self._group.start_soon(
                partial(self._write, begun, Stopped(begun=True), ended, shutdown=shutdown)
            )
            await ended.wait()
            raise
        self._group.start_soon(self._write, begun, outcome, ended)
        await ended.wait()
        _log.debug(
            "ran a call",
            skill=skill.name,
            outcome=type(outcome).__name__.lower(),
            seconds=round(anyio.current_time() - started, 3),
        )

    async def _execute(self, skill: Skill, begun: Begun) -> Outcome:
        try:
            message: CallMessage = read_call(begun.message)
        except ValueError as error:
            return Failure("load", f"its call cannot be read, so update the workers: {error}.")

        async def report(fraction: float, text: str) -> None:
            with contextlib.suppress(*_UNAVAILABLE):
                await self._rows.progress(begun, fraction, text)

        return await execute(skill, message, begun.seconds, self._process.runtime, report)

    async def _write(
        self, begun: Begun, outcome: Outcome, ended: anyio.Event, *, shutdown: bool = False
    ) -> None:
        """Write an outcome, however long the database is not available."""
        failed = isinstance(outcome, Stopped) or (
            isinstance(outcome, Failure) and outcome.kind != "parameter"
        )
        try:
            while True:
                try:
                    if shutdown:
                        await self._rows.give_back(begun)
                    elif not await self._rows.end(begun, outcome, failed=failed):
                        _log.warning("this worker was counted as lost", call=begun.id)
                except _UNAVAILABLE as error:
                    self._process.outages.failed("queue", error)
                    await anyio.sleep(_AGAIN_S)
                else:
                    return
        finally:
            ended.set()
