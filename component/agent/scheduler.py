"""The fair scheduler: principals take turns, and only so many turns run at the same time."""

from collections import Counter, deque
from typing import Protocol

from anyio.abc import TaskGroup

from xep.jid import JID


class Actor(Protocol):
    """Runs its turns one at a time: `component.agent.conversation.Conversation`."""

    @property
    def principal(self) -> JID:
        """The principal of the next turn."""

    def begin(self) -> bool:
        """Take the next turn; False if there is none that can begin. Never waits."""

    async def work(self) -> None:
        """Run the turn that `begin` has taken until it ends or is parked."""


class Scheduler:
    """Runs the turns of all conversations.

    Of the principals with a turn that can begin, the one that has waited longest is next, no matter
    how many turns the others have. The same applies to the conversations of one principal.

    Args:
        limit: the maximum number of turns that run at the same time.

    Attributes:
        running: the number of turns that run.
        waiting: the number of requests of each principal that wait for their turn.
    """

    def __init__(self, limit: int) -> None:
        self.running = 0
        self.waiting: Counter[JID] = Counter()
        self._limit = limit
        self._group: TaskGroup | None = None
        self._ready: dict[JID, deque[Actor]] = {}
        self._principals: deque[JID] = deque()
        self._queued: set[Actor] = set()

    def open(self, group: TaskGroup | None) -> None:
        """Run turns as tasks of this group from now on; with None, no turn begins."""
        self._group = group
        self._begin()

    def ready(self, actor: Actor) -> None:
        """Queue an actor, unless it is already queued."""
        if actor not in self._queued:
            self._queued.add(actor)
            principal = actor.principal
            actors = self._ready.get(principal)
            if actors is None:
                actors = self._ready[principal] = deque()
                self._principals.append(principal)
            actors.append(actor)
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
            actor = self._next()
            if actor.begin():
                self.running += 1
                self._group.start_soon(self._run, actor)

    def _next(self) -> Actor:
        principal = self._principals.popleft()
        actors = self._ready[principal]
        actor = actors.popleft()
        if actors:
            self._principals.append(principal)
        else:
            del self._ready[principal]
        self._queued.remove(actor)
        return actor

    async def _run(self, actor: Actor) -> None:
        try:
            await actor.work()
        finally:
            self.running -= 1
            self._begin()
