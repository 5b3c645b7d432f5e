"""Which turns wait for something, and for what. Their messages are rows; here is who they are."""

from collections.abc import Sequence

from component.memory.lines import SessionKey


class ParkedTurns:
    """Turns that wait for tasks, or for the time to say an answer."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[SessionKey, tuple[str, ...]]] = {}
        self._tasks: dict[str, str] = {}
        self._sessions: dict[SessionKey, list[str]] = {}

    def add(self, turn: str, key: SessionKey, tasks: Sequence[str]) -> None:
        """A turn waits, for these tasks or for a time."""
        self._turns[turn] = (key, tuple(tasks))
        self._tasks.update(dict.fromkeys(tasks, turn))
        self._sessions.setdefault(key, []).append(turn)

    def remove(self, turn: str) -> bool:
        """It does not wait any more; False if it did not."""
        found = self._turns.pop(turn, None)
        if found is None:
            return False
        key, tasks = found
        for task in tasks:
            self._tasks.pop(task, None)
        left = self._sessions[key]
        left.remove(turn)
        if not left:
            del self._sessions[key]
        return True

    def waiting_for(self, task: str) -> str | None:
        """The turn that waits for a task."""
        return self._tasks.get(task)

    def of(self, key: SessionKey) -> tuple[str, ...]:
        """Those of a session, the first one first."""
        return tuple(self._sessions.get(key, ()))

    def keys(self) -> set[SessionKey]:
        """The sessions that have any."""
        return set(self._sessions)
