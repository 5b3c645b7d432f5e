"""The fair scheduler: principals take turns, and only so many turns run at the same time."""

from collections import Counter, deque
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from xep.jid import JID

if TYPE_CHECKING:
    from component.agent.conversation import Conversation


class Scheduler:
    """Runs the turns of all conversations.

    Of the principals with a turn that can begin, the one that has waited longest is next, no matter
    how many turns the others have. The same applies to the conversations of one principal.

    Attributes:
        waiting: the number of requests of each principal that wait for their turn.
    """

    def __init__(self, limit: int) -> None:
        self.running = 0
        self.waiting: Counter[JID] = Counter()
        self._limit = limit
        self._group: TaskGroup | None = None
        self._ready: dict[JID, deque[Conversation]] = {}
        self._principals: deque[JID] = deque()
        self._queued: set[Conversation] = set()

    def open(self, group: TaskGroup | None) -> None:
        """Run turns as tasks of this group from now on; with None, no turn begins."""
        self._group = group
        self._begin()

    def ready(self, conversation: "Conversation") -> None:
        """Queue a conversation, unless it is already queued."""
        if conversation not in self._queued:
            self._queued.add(conversation)
            principal = conversation.principal
            conversations = self._ready.get(principal)
            if conversations is None:
                conversations = self._ready[principal] = deque()
                self._principals.append(principal)
            conversations.append(conversation)
        self._begin()

    def added(self, principal: JID) -> None:
        """Count one more waiting request of a principal."""
        self.waiting[principal] += 1

    def removed(self, principal: JID) -> None:
        """Count one waiting request of a principal less."""
        self.waiting[principal] -= 1
        if not self.waiting[principal]:
            del self.waiting[principal]

    def _begin(self) -> None:
        while self._group is not None and self.running < self._limit and self._principals:
            conversation = self._next()
            if conversation.begin():
                self.running += 1
                self._group.start_soon(self._run, conversation)

    def _next(self) -> "Conversation":
        principal = self._principals.popleft()
        conversations = self._ready[principal]
        conversation = conversations.popleft()
        if conversations:
            self._principals.append(principal)
        else:
            del self._ready[principal]
        self._queued.remove(conversation)
        return conversation

    async def _run(self, conversation: "Conversation") -> None:
        try:
            await conversation.work()
        finally:
            self.running -= 1
            self._begin()
