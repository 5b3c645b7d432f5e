"""The fair scheduler: principals take turns, and only so many turns run at the same time."""

from collections import Counter, deque
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

if TYPE_CHECKING:
    from component.agent.conversation import Conversation


class Scheduler:
    """Runs the turns of all conversations.

    Of the parties with a turn that can begin, the one that has waited longest is next, no matter
    how many turns the others have. The same applies to the conversations of one party, which is a
    principal, or an occupant of a room (`TurnRequest.party`).

    Attributes:
        waiting: the number of requests of each party that wait for their turn.
    """

    def __init__(self, limit: int) -> None:
        self.running = 0
        self.waiting: Counter[str] = Counter()
        self._limit = limit
        self._group: TaskGroup | None = None
        self._ready: dict[str, deque[Conversation]] = {}
        self._parties: deque[str] = deque()
        self._queued: set[Conversation] = set()

    def open(self, group: TaskGroup | None) -> None:
        """Run turns as tasks of this group from now on; with None, no turn begins."""
        self._group = group
        self._begin()

    def ready(self, conversation: "Conversation") -> None:
        """Queue a conversation, unless it is already queued."""
        if conversation not in self._queued:
            self._queued.add(conversation)
            party = conversation.party
            conversations = self._ready.get(party)
            if conversations is None:
                conversations = self._ready[party] = deque()
                self._parties.append(party)
            conversations.append(conversation)
        self._begin()

    def added(self, party: str) -> None:
        """Count one more waiting request of a party."""
        self.waiting[party] += 1

    def removed(self, party: str) -> None:
        """Count one waiting request of a party less."""
        self.waiting[party] -= 1
        if not self.waiting[party]:
            del self.waiting[party]

    def _begin(self) -> None:
        while self._group is not None and self.running < self._limit and self._parties:
            conversation = self._next()
            if conversation.begin():
                self.running += 1
                self._group.start_soon(self._run, conversation)

    def _next(self) -> "Conversation":
        party = self._parties.popleft()
        conversations = self._ready[party]
        conversation = conversations.popleft()
        if conversations:
            self._parties.append(party)
        else:
            del self._ready[party]
        self._queued.remove(conversation)
        return conversation

    async def _run(self, conversation: "Conversation") -> None:
        try:
            await conversation.work()
        finally:
            self.running -= 1
            self._begin()
