"""The agents that are declared, each with an identity and a state that outlive the process."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.audit.protocol import Event, Recorder
from component.settings.agents import AgentEntry
from component.storage.database import Database, Transactions
from component.storage.errors import StorageError

_log = structlog.get_logger("component.agent")

State = Literal["created", "active", "idle", "paused", "killed"]
"""Declared and never written to; written to lately; not lately; answers nobody for the time being;
ended for good."""

_ID_BYTES: Final = 16
_AT_WORK: Final[frozenset[State]] = frozenset(("created", "active", "idle"))


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as it is now. `id` is its persistent identity; times are UTC."""

    id: str
    name: str
    state: State
    created: datetime
    changed: datetime
    description: str = ""


class AgentError(Exception):
    """An agent's state cannot be changed so: one sentence for the one who asked."""


class Agents:
    """Every agent of the component, by localpart.

    Args:
        entries: as they are declared.
        storage: where identities and states are kept.
        recorder: where changes are recorded.
        stopped: is told the localpart of an agent that was killed, to end what it is at, and all
            its sub-agents.
        idle_s: seconds without a message after which an agent is idle.
        now: the time.
    """

    def __init__(
        self,
        entries: Iterable[AgentEntry],
        storage: Transactions,
        recorder: Recorder,
        stopped: Callable[[str], None] = lambda _: None,
        idle_s: float = 300.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.entries: Mapping[str, AgentEntry] = {entry.name: entry for entry in entries}
        self._storage = storage
        self._recorder = recorder
        self._stopped = stopped
        self._idle_s = idle_s
        self._now = now
        self._known: dict[str, AgentState] = {}
        self._last: dict[str, float] = {}
        self._touched = anyio.Event()

    async def load(self) -> None:
        """Learn the states, and give every new agent its identity. Raises StorageError."""
        now = self._now()
        new = {name: secrets.token_hex(_ID_BYTES) for name in self.entries}

        def op(database: Database) -> list[tuple[str, str, State, int, int]]:
            for name, fresh in new.items():
                database.execute(
                    "INSERT INTO agents (id, name, state, created, changed)"
                    " VALUES (?, ?, 'created', ?, ?) ON CONFLICT (name) DO NOTHING",
                    (fresh, name, _milliseconds(now), _milliseconds(now)),
                )
            rows = database.execute("SELECT id, name, state, created, changed FROM agents")
            return [(str(r[0]), str(r[1]), r[2], int(r[3]), int(r[4])) for r in rows.fetchall()]

        for identity, name, state, created, changed in await self._storage.write(op):
            if name in self.entries:
                self._known[name] = AgentState(
                    id=identity,
                    name=name,
                    # Nobody has written to it in this life of the process.
                    state="idle" if state == "active" else state,
                    created=_time(created),
                    changed=_time(changed),
                    description=self.entries[name].description,
                )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Let agents become idle, until cancelled."""
        task_status.started()
        while True:
            due = min(self._last.values(), default=None)
            if due is None:
                await self._touched.wait()
            else:
                await anyio.sleep(max(0.0, due + self._idle_s - anyio.current_time()))
            self._touched = anyio.Event()
            limit = anyio.current_time() - self._idle_s
            for name in [name for name, last in self._last.items() if last <= limit]:
                del self._last[name]
                if self._known[name].state == "active":
                    await self._keep(name, "idle")

    # What others ask.

    def list(self) -> Sequence[AgentState]:
        """Every agent, in the order in which they are declared."""
        return [self._known[name] for name in self.entries if name in self._known]

    def get(self, name: str) -> AgentState | None:
        """An agent by its localpart."""
        return self._known.get(name)

    def away(self, name: str) -> str | None:
        """Why an agent does not answer, as a sentence; None if it does."""
        known = self._known.get(name)
        if known is None:
            return "There is no such agent."
        match known.state:
            case "paused":
                return "I am paused for the time being; ask again later."
            case "killed":
                return "I was shut down for good, and do not answer any more."
        return None

    async def heard(self, name: str) -> None:
        """Somebody has written to an agent."""
        known = self._known.get(name)
        if known is None or known.state not in _AT_WORK:
            return
        if known.state != "active":
            await self._keep(name, "active")
        # Not before: what is not active yet does not become idle.
        self._last[name] = anyio.current_time()
        self._touched.set()

    # What admins do.

    async def pause(self, name: str, by: str) -> AgentState:
        """It finishes what it is at, and then answers nobody. Raises AgentError, StorageError."""
        self._in(name, _AT_WORK, "cannot be paused")
        return await self._change(name, "paused", by)

    async def resume(self, name: str, by: str) -> AgentState:
        """It answers again. Raises AgentError, StorageError."""
        self._in(name, frozenset(("paused",)), "cannot be resumed")
        return await self._change(name, "idle", by)

    async def kill(self, name: str, by: str) -> AgentState:
        """It ends for good, with all it is at and its sub-agents. Raises AgentError, StorageError.

        Its memory stays on disk. To begin anew, declare an agent of another name.
        """
        self._in(name, _AT_WORK | {"paused"}, "cannot be killed")
        found = await self._change(name, "killed", by)
        self._stopped(name)
        return found

    def _in(self, name: str, states: frozenset[State], sentence: str) -> None:
        known = self._known.get(name)
        if known is None:
            names = ", ".join(self.entries)
            raise AgentError(f"There is no agent called {name!r}; there are: {names}.")
        if known.state not in states:
            raise AgentError(f"{name} {sentence}: it is {known.state}.")

    async def _change(self, name: str, state: State, by: str) -> AgentState:
        await self._write(name, state)
        self._recorder.record(
            Event(kind="agent", outcome=state, principal=by, agent=name, subject=name)
        )
        return self._known[name]

    async def _keep(self, name: str, state: State) -> None:
        """Change what is nobody's decision; a disk that refuses is no reason not to answer."""
        try:
            await self._write(name, state)
        except StorageError as error:
            _log.warning("the state of an agent is not kept", agent=name, reason=str(error))
            self._know(name, state, self._now())

    async def _write(self, name: str, state: State) -> None:
        now = self._now()

        def op(database: Database) -> None:
            database.execute(
                "UPDATE agents SET state = ?, changed = ? WHERE name = ?",
                (state, _milliseconds(now), name),
            )

        await self._storage.write(op)
        self._know(name, state, now)

    def _know(self, name: str, state: State, now: datetime) -> None:
        self._known[name] = msgspec.structs.replace(self._known[name], state=state, changed=now)


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
