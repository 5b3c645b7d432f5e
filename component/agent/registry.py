"""The declared agents, each with a persistent identity and state.

Instances on one database share the states. A change is written only if the stored state still
permits it, so no instance overwrites the change of another one, and a killed agent stays killed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.config.agents import AgentEntry
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage

_log = structlog.get_logger("component.agent")

State = Literal["created", "active", "idle", "paused", "killed"]
"""created: has never received a message. active: has received one lately. idle: has received none
lately. paused: does not answer for now. killed: never answers again.
"""

_ID_BYTES: Final = 16
_AT_WORK: Final[frozenset[State]] = frozenset(("created", "active", "idle"))


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of an agent. `id` is its persistent identity; times are UTC."""

    id: str
    name: str
    state: State
    created: datetime
    changed: datetime
    description: str = ""


class AgentError(Exception):
    """A change of an agent's state is not possible; the text is a sentence for the requester."""


class Agents:
    """All agents of the component, by localpart.

    Args:
        stopped: is called with the localpart of an agent that was killed, here or by another
            instance, to stop its work and all its sub-agents.
        idle_s: seconds without a message after which an agent is idle.
    """

    def __init__(
        self,
        entries: Iterable[AgentEntry],
        storage: Storage,
        recorder: Recorder,
        stopped: Callable[[str], None] = lambda _: None,
        idle_s: float = 300.0,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self.entries: Mapping[str, AgentEntry] = {entry.name: entry for entry in entries}
        """The declarations, by name."""
        self._storage = storage
        self._recorder = recorder
        self._stopped = stopped
        self._idle_s = idle_s
        self._now = now
        self._known: dict[str, AgentState] = {}
        self._last: dict[str, float] = {}
        self._touched = anyio.Event()
        self._learning = anyio.Lock()
        """So that what was read earlier is not learned later: another instance may write at the
        same time.
        """

    def declare(self, entries: Iterable[AgentEntry]) -> None:
        """Use other declarations of the same agents from now on."""
        self.entries = {entry.name: entry for entry in entries}
        for name, known in self._known.items():
            self._known[name] = msgspec.structs.replace(
                known, description=self.entries[name].description
            )

    async def load(self) -> None:
        """Read the states, and give every new agent an identity. Raises StorageError."""
        now = self._now()
        new = {name: system.token_hex(_ID_BYTES) for name in self.entries}

        def op(database: Database) -> list[_Row]:
            for name, fresh in new.items():
                database.execute(
                    "INSERT INTO agents (id, name, state, created, changed)"
                    " VALUES (?, ?, 'created', ?, ?) ON CONFLICT (name) DO NOTHING",
                    (fresh, name, _milliseconds(now), _milliseconds(now)),
                )
            if database.dialect == "sqlite":
                # There is no other process, and this one has received no messages yet.
                database.execute("UPDATE agents SET state = 'idle' WHERE state = 'active'")
            return _rows(database)

        for identity, name, state, created, changed in await self._storage.write(op):
            if name in self.entries:
                self._known[name] = AgentState(
                    id=identity,
                    name=name,
                    state=state,
                    created=_time(created),
                    changed=_time(changed),
                    description=self.entries[name].description,
                )
                if state == "active":  # the instance that set this may be gone
                    self._last[name] = anyio.current_time()

    async def reload(self, subjects: Collection[str] | None = None) -> None:
        """Read the states of these agents again, or of all for None. Raises StorageError."""
        if not self._known:
            return  # `load` was not called yet
        async with self._learning:
            for _, name, state, _, changed in await self._storage.read(_rows):
                if subjects is None or name in subjects:
                    self._learn(name, state, _time(changed))
        for name in self._last.keys() & (self._last if subjects is None else set(subjects)):
            if self._known[name].state == "idle":
                await self._keep(name, "active")  # idle on another instance, but active here

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Set agents to idle when they are due, until cancelled."""
        task_status.started()
        while True:
            due = min(self._last.values(), default=None)
            if due is None:
                await self._touched.wait()
            else:
                await anyio.sleep(max(0.0, due + self._idle_s - anyio.current_time()))
            self._touched = anyio.Event()
            # The same sum as above: a difference may be rounded to a time that never comes.
            now = anyio.current_time()
            for name in [name for name, last in self._last.items() if last + self._idle_s <= now]:
                del self._last[name]
                if self._known[name].state == "active":
                    await self._keep(name, "idle")

    # Queries.

    def list(self) -> Sequence[AgentState]:
        """Return all agents, in the order of their declarations."""
        return [self._known[name] for name in self.entries if name in self._known]

    def get(self, name: str) -> AgentState | None:
        """Return an agent by its localpart."""
        return self._known.get(name)

    def away(self, name: str) -> str | None:
        """Return why an agent does not answer, as a sentence; None if it answers."""
        known = self._known.get(name)
        if known is None:
            return "There is no such agent."
        match known.state:
            case "paused":
                return "I am paused at the moment. Please try again later."
            case "killed":
                return "I was shut down permanently and no longer answer."
        return None

    async def message_received(self, name: str) -> str | None:
        """Note that an agent has received a message; return why it does not answer, as `away`."""
        known = self._known.get(name)
        if known is None or known.state not in _AT_WORK:
            return self.away(name)
        if known.state != "active":
            await self._keep(name, "active")
        # Only now, because an agent that is not active cannot become idle.
        if self._known[name].state == "active":
            self._last[name] = anyio.current_time()
            self._touched.set()
        return self.away(name)  # another instance may have changed its state

    # Commands of admins.

    async def pause(self, name: str, by: str) -> AgentState:
        """Let an agent finish its running work and answer nobody. Raises AgentError,
        StorageError.
        """
        return await self._change(name, "paused", _AT_WORK, "cannot be paused", by)

    async def resume(self, name: str, by: str) -> AgentState:
        """Let an agent answer again. Raises AgentError, StorageError."""
        return await self._change(name, "idle", frozenset(("paused",)), "cannot be resumed", by)

    async def kill(self, name: str, by: str) -> AgentState:
        """End an agent permanently, with its work and its sub-agents. Raises AgentError,
        StorageError.

        Its memory stays on disk. To start again, declare an agent with another name.
        """
        return await self._change(name, "killed", _AT_WORK | {"paused"}, "cannot be killed", by)

    async def _change(
        self, name: str, state: State, before: frozenset[State], sentence: str, by: str
    ) -> AgentState:
        if name not in self._known:
            names = ", ".join(self.entries)
            raise AgentError(f"There is no agent called {name!r}; there are: {names}.")
        if not await self._write(name, state, before):
            raise AgentError(f"{name} {sentence}: it is {self._known[name].state}.")
        self._recorder.record(
            AuditEvent(kind="agent", outcome=state, principal=by, agent=name, subject=name)
        )
        _log.warning("an admin has changed the state of an agent", agent=name, state=state, by=by)
        return self._known[name]

    async def _keep(self, name: str, state: State) -> None:
        """Change the state automatically; the agent answers even if the storage fails."""
        try:
            await self._write(name, state, _AT_WORK)
        except StorageError as error:
            log_failure(_log, "the state of an agent cannot be stored", error, agent=name)
            self._learn(name, state, self._now())

    async def _write(self, name: str, state: State, before: frozenset[State]) -> bool:
        """Change the state if it is one of these, and read the new one. Returns whether it
        changed.
        """
        now = self._now()
        allowed = ", ".join(f"'{one}'" for one in sorted(before))

        def op(database: Database) -> tuple[bool, State, int]:
            done = database.execute(
                "UPDATE agents SET state = ?, changed = ?"  # noqa: S608 - constant states
                f" WHERE name = ? AND state IN ({allowed})",
                (state, _milliseconds(now), name),
            )
            row = database.execute(
                "SELECT state, changed FROM agents WHERE name = ?", (name,)
            ).fetchone()
            assert row is not None, "`load` has inserted the row"
            return done.rowcount > 0, row[0], int(row[1])

        async with self._learning:
            changed, found, at = await self._storage.write(op)
            self._learn(name, found, _time(at))
        return changed

    def _learn(self, name: str, state: State, changed: datetime) -> None:
        known = self._known.get(name)
        if known is None or known.state == state:
            return
        if known.state == "killed":
            return  # permanent; the other state was read earlier
        self._known[name] = msgspec.structs.replace(known, state=state, changed=changed)
        if state not in _AT_WORK:
            self._last.pop(name, None)
        if state == "killed":
            self._stopped(name)


_Row: TypeAlias = tuple[str, str, State, int, int]


def _rows(database: Database) -> list[_Row]:
    found = database.execute("SELECT id, name, state, created, changed FROM agents").fetchall()
    return [(str(row[0]), str(row[1]), row[2], int(row[3]), int(row[4])) for row in found]


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
