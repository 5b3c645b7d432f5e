"""The durable work, as the handlers see it. The engine behind it is loaded when there is work."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.audit.protocol import NoRecord, Recorder
from component.skills.declare import AnySkill
from component.skills.threads import Threads
from component.storage.database import Database
from component.storage.errors import StorageError
from component.tasks.admit import Limits
from component.tasks.leases import new_instance
from component.tasks.protocol import Call, Listener, Naming, Question
from component.tasks.replay import Memory, find, same, unkept
from component.tasks.storing import Storage
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import Cancel, Events, InputAnswer, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.tasks.engine import Engine

_log = structlog.get_logger("component.tasks")


class TaskRoom:
    """Implements `component.tasks.protocol.Tasks`; see there for what its methods do.

    Args:
        storage: where the rows are.
        skill: a skill by its name, whoever asks.
        may_use: whether a principal may execute a skill now.
        threads: what plain skills run in.
        limits: what bounds the work.
        listener: who tells callers.
        instance: the name of this life of the process.
        patience_s: seconds that old work waits for the first stream before it is taken up, so that
            it is in nobody's way.
        recorder: the record of ends and decisions.
    """

    def __init__(
        self,
        storage: Storage,
        skill: Callable[[str], AnySkill | None],
        may_use: Callable[[JID, AnySkill], bool],
        threads: Threads,
        limits: Limits,
        listener: Listener,
        instance: str | None = None,
        patience_s: float = 0.0,
        recorder: Recorder = NoRecord(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.instance = instance or new_instance()
        self._storage = storage
        self._skill = skill
        self._may_use = may_use
        self._threads = threads
        self._limits = limits
        self._listener = listener
        self._memory = Memory(limits.replay_s)
        self._engine: Engine | None = None
        self._loading = anyio.Lock()
        self._group: TaskGroup | None = None
        self._patience_s = patience_s
        self._recorder = recorder
        self._greeted = anyio.Event()
        self._records = True
        """Whether there may be replay records on disk."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; it has started once it can take calls.

        Raises StorageError: the database refuses before it has begun.
        """
        shared, left, self._records = await self._storage.read(_what_is_left)
        self._records = self._records or shared
        async with anyio.create_task_group() as group:
            self._group = group
            task_status.started()
            if left or shared:
                with anyio.move_on_after(self._patience_s):
                    await self._greeted.wait()
                await self._load()
                # The stream may be there already. Who refuses now is asked again.
                with contextlib.suppress(StorageError):
                    await self.connected()
            await anyio.sleep_forever()

    async def connected(self) -> None:
        """There is a stream: tell of what could not be told before. Raises StorageError."""
        self._greeted.set()
        if self._engine is not None:
            await self._engine.tell_untold()

    async def drain(self) -> None:
        """Let work end, or give it up so that it goes on at the next start."""
        if self._engine is not None:
            await self._engine.drain()

    async def _load(self) -> "Engine":
        if self._engine is None:
            async with self._loading:
                if self._engine is None:
                    from component.tasks.engine import Engine  # noqa: PLC0415

                    assert self._group is not None, "the room is open"
                    engine = Engine(
                        self._storage,
                        self._skill,
                        self._may_use,
                        self._threads,
                        self._limits,
                        self._listener,
                        self._memory,
                        self.instance,
                        self._recorder,
                    )
                    await self._group.start(engine.run)
                    self._engine = engine
        return self._engine

    # Requests.

    def remembered(self, key: str, digest: str) -> Result | Accepted | None:
        """The recorded answer to a repetition, if it is in memory."""
        return self._memory.get(key, digest)

    async def repeated(self, key: str, digest: str) -> Result | Accepted | None:
        """The recorded answer to a repetition, from memory or disk; None if this is new work."""
        while True:
            remembered = self._memory.get(key, digest)
            if remembered is not None:
                return remembered
            flight = self._memory.flight(key, digest)
            if flight is not None and await flight.wait() is not None:
                return self._memory.get(key, digest)
            if not self._records:
                return None
            found = await self._storage.read(lambda db: find(db, key))
            if found is None:
                return None
            if found.answer is not None:
                same(found.digest, digest)
                answer = unkept(found.answer)
                self._memory.put(key, digest, answer)
                return self._memory.get(key, digest)
            if not self._memory.knows(key):
                if self._engine is not None:
                    return await self._engine.calls.recorded(found, digest)
                await self._load()  # whoever has begun it may count as dead from now on
            # The first of them has begun while this one looked on disk.

    def remember(self, key: str, digest: str, answer: Result | StanzaError) -> None:
        """Record the outcome of an inline skill that is repeatable."""
        self._memory.put(key, digest, answer)

    async def execute(self, call: Call) -> Result | Accepted:
        """Run a skill, within the inline limit or as a task."""
        self._records = True
        return await (await self._load()).calls.execute(call)

    async def withdraw(self, key: str) -> bool:
        """End the work of a request."""
        return self._engine is not None and await self._engine.withdraw(key)

    # Tasks.

    async def earlier(self, who: JID, at: JID, tasks: Sequence[str]) -> bool:
        """Whether all of these are tasks of the principal."""
        from component.tasks.reading import earlier  # noqa: PLC0415 - read when first asked for

        return await self._storage.read(lambda db: earlier(db, who, at, tasks))

    async def get(self, who: JID, at: JID, task: str) -> Task:
        """The whole task."""
        from component.tasks.reading import get  # noqa: PLC0415

        found = await self._storage.read(lambda db: get(db, who, at, task))
        if found is None:
            raise errors.unknown_task()
        return found

    async def list(self, who: JID, at: JID, query: TaskList) -> TaskList:
        """One page of the principal's tasks, the latest first."""
        from component.tasks.reading import list_  # noqa: PLC0415

        return await self._storage.read(lambda db: list_(db, who, at, query))

    async def events(self, who: JID, at: JID, query: Events) -> Events:
        """One page of a task's events since a revision."""
        from component.tasks.reading import events  # noqa: PLC0415

        found = await self._storage.read(lambda db: events(db, who, at, query))
        if found is None:
            raise errors.unknown_task()
        return found

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        """Ask a task to end; the task after that."""
        return await (await self._load()).cancel(who, at, query)

    async def answer(
        self, who: JID, at: JID, answer: InputAnswer, naming: Naming | None = None
    ) -> Task:
        """Answer a question of a task; the task after that."""
        return await (await self._load()).answer(who, at, answer, naming)

    async def decide(
        self,
        who: JID,
        at: JID,
        decision: Decision,
        lang: str | None = None,
        naming: Naming | None = None,
    ) -> None:
        """Decide a confirmation."""
        await (await self._load()).decide(who, at, decision, lang, naming)

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        """The questions that this address has open with the bare JID `who`."""
        from component.tasks.questions import open_questions  # noqa: PLC0415

        return await self._storage.read(lambda db: open_questions(db, who, at))

    async def was_asked(self, who: JID, at: JID, name: str) -> bool:
        """Whether this address asked `who` something, by its id or thread, that is closed."""
        from component.tasks.questions import was_asked  # noqa: PLC0415

        return await self._storage.read(lambda db: was_asked(db, who, at, name))

    async def retry(self, task: str) -> Task:
        """For administrators: a new task with the same request as another one.

        Raises StanzaError, as `execute` does, or `unknown-task`.
        """
        self._records = True
        return await (await self._load()).calls.retry(task)


def _what_is_left(database: Database) -> tuple[bool, bool, bool]:
    """Whether others share the database, whether there is work in it, and whether records."""
    left = database.execute(
        "SELECT 1 FROM tasks WHERE untold IS NOT NULL UNION ALL SELECT 1 FROM tasks WHERE state IN"
        " ('accepted', 'running', 'input-required', 'cancelling') LIMIT 1"
    ).fetchone()
    records = database.execute("SELECT 1 FROM replay LIMIT 1").fetchone()
    return database.dialect == "postgresql", left is not None, records is not None
