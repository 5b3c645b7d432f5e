"""Determines whether a person or another agent wrote a message, by querying the sender."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from component.agent.requests import TurnRequest
from component.policy.persons import Persons
from component.policy.taint import Taint
from xep.jid import JID

if TYPE_CHECKING:
    from component.agent.conversation import Turn

ANSWERS_WITHIN_S: Final = 1.5
"""Seconds that a client has for saying what it is; after that its message is processed anyway.

A client that has just sent a message is online: even over mobile networks and two servers an answer
takes less than a second, which is short compared with a model's answer. A client that never answers
(some do not answer strangers) is delayed by this once in ten minutes.
"""


class _Query:
    """A query of a sender, and the turns that wait for it."""

    def __init__(self, request: TurnRequest) -> None:
        self.request = request
        self.waiting: list[tuple[Turn, Callable[[], None]]] = []
        self.is_sent = False


class Senders:
    """Labels requests by their senders. While a sender is queried its requests wait; they do not
    run, so they do not delay others.

    A query without a stream waits for the next stream, and a query that was lost with its stream is
    sent again, because a lost connection says nothing about the sender.

    Args:
        stream: returns an object that identifies the current stream; None while there is none.
    """

    def __init__(
        self,
        persons: Persons,
        stream: Callable[[], object | None],
        within_s: float = ANSWERS_WITHIN_S,
    ) -> None:
        self._persons = persons
        self._stream = stream
        self._within_s = within_s
        self._group: TaskGroup | None = None
        self._queries: dict[JID, _Query] = {}

    def open(self, group: TaskGroup | None) -> None:
        """Send queries in a task group from now on; with None, none are sent."""
        self._group = group
        self.connected()

    def connected(self) -> None:
        """Send the queries that wait for a stream."""
        for query in list(self._queries.values()):
            self._begin(query)

    def label(self, turn: "Turn", done: Callable[[], None]) -> None:
        """Label the requests of a turn; `done` is called later for each sender that is queried."""
        for one in turn.unlabelled:
            person = self._persons.known(one.principal, one.requester)
            if person is not None:
                turn.label(one.requester, _label(person))
                continue
            query = self._queries.get(one.requester)
            if query is None:
                query = self._queries[one.requester] = _Query(one)
            query.waiting.append((turn, done))
            self._begin(query)

    def label_now(self, turn: "Turn") -> None:
        """Label a turn that will not run; a sender that has not answered counts as a person."""
        for one in turn.unlabelled:
            known = self._persons.known(one.principal, one.requester)
            turn.label(one.requester, _label(known is not False))

    def _begin(self, query: _Query) -> None:
        if self._group is not None and self._stream() is not None and not query.is_sent:
            query.is_sent = True
            self._group.start_soon(self._ask, query)

    async def _ask(self, query: _Query) -> None:
        of, stream = query.request, self._stream()
        async with anyio.create_task_group() as group:
            group.start_soon(self._wait_no_longer, query)
            # The query continues after that: a late answer counts for later messages.
            person = await self._persons.asked(of.principal, of.requester, of.target)
            group.cancel_scope.cancel()
        query.is_sent = False
        if self._queries.get(of.requester) is not query:
            return
        if person is not None:
            self._end(query, person)
        elif self._stream() is stream:
            self._end(query, self._persons.passed_over(of.principal, of.requester))
        else:
            self._begin(query)

    async def _wait_no_longer(self, query: _Query) -> None:
        await anyio.sleep(self._within_s)
        of = query.request
        self._end(query, self._persons.passed_over(of.principal, of.requester))

    def _end(self, query: _Query, person: bool) -> None:
        sender = query.request.requester
        del self._queries[sender]
        for turn, done in query.waiting:
            turn.label(sender, _label(person))
            done()


def _label(person: bool) -> Taint:
    return "person" if person else "peer"
