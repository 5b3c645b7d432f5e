"""Whose words a message has: the label that it carries before its turn, a person's or a peer's."""

from collections.abc import Callable
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from component.agent.lanes import Turn
from component.agent.protocol import Incoming
from component.policy.taint import Taint
from xep.jid import JID

ANSWERS_WITHIN_S: Final = 1.5
"""Seconds in which a client has to say what it is, or its message goes on without that.

Who has just sent a message is there and awake: even over mobile networks and two servers an answer
takes less than a second, which nobody notices before what a model takes. Who never answers (some
clients tell strangers nothing) waits that long once in ten minutes, and not much longer.
"""


class Persons(Protocol):
    """Tells people from all others: `component.policy.persons.Persons`."""

    def known(self, principal: JID, requester: JID) -> bool | None:
        """Whether it is a person; None if somebody has to be asked for that. Never waits."""

    async def asked(self, principal: JID, requester: JID, target: JID) -> bool | None:
        """Ask; None if no answer came."""

    def passed_over(self, principal: JID, requester: JID) -> bool:
        """Do without an answer for some time: what it then counts as. Never waits."""


class _Asking:
    """A sender who is being asked, and the turns that wait for it."""

    def __init__(self, of: Incoming) -> None:
        self.of = of
        self.turns: list[Turn] = []
        self.under_way = False


class Labels:
    """Gives messages their labels. While a sender is asked its turns wait in their lanes, which
    holds up nobody else: they are no turns under way.

    A question needs a stream. Where there is none it waits for the next one, and one that was lost
    with its stream is put again: that a connection broke says nothing about anybody.

    Args:
        persons: tells people from all others.
        stream: what names the stream there is now; None while there is none.
        labelled: is told of each turn that had to wait and has its labels now.
        within_s: see `ANSWERS_WITHIN_S`.
    """

    def __init__(
        self,
        persons: Persons,
        stream: Callable[[], object | None],
        labelled: Callable[[Turn], None],
        within_s: float = ANSWERS_WITHIN_S,
    ) -> None:
        self._persons = persons
        self._stream = stream
        self._labelled = labelled
        self._within_s = within_s
        self._group: TaskGroup | None = None
        self._asking: dict[JID, _Asking] = {}

    def open(self, group: TaskGroup | None) -> None:
        """Ask in a task group from now on; without one nobody is asked."""
        self._group = group
        self.connected()

    def connected(self) -> None:
        """There is a stream: ask whom there was none to ask by."""
        for asking in list(self._asking.values()):
            self._begin(asking)

    def look(self, turn: Turn) -> None:
        """Label the messages of a turn, those of unknown senders once they have answered."""
        for one in turn.unlabelled:
            person = self._persons.known(one.principal, one.requester)
            if person is not None:
                turn.label(one.requester, _label(person))
                continue
            asking = self._asking.get(one.requester)
            if asking is None:
                asking = self._asking[one.requester] = _Asking(one)
            asking.turns.append(turn)
            self._begin(asking)

    def now(self, turn: Turn) -> None:
        """Label a turn that is not going to have its turn: who has not said yet is a person."""
        for one in turn.unlabelled:
            known = self._persons.known(one.principal, one.requester)
            turn.label(one.requester, _label(known is not False))

    def _begin(self, asking: _Asking) -> None:
        if self._group is not None and self._stream() is not None and not asking.under_way:
            asking.under_way = True
            self._group.start_soon(self._ask, asking)

    async def _ask(self, asking: _Asking) -> None:
        of, stream = asking.of, self._stream()
        async with anyio.create_task_group() as group:
            group.start_soon(self._wait_no_longer, asking)
            # It goes on beyond that: what is said late counts for the messages that follow.
            person = await self._persons.asked(of.principal, of.requester, of.target)
            group.cancel_scope.cancel()
        asking.under_way = False
        if self._asking.get(of.requester) is not asking:
            return
        if person is not None:
            self._end(asking, person)
        elif self._stream() is stream:
            self._end(asking, self._persons.passed_over(of.principal, of.requester))
        else:
            self._begin(asking)

    async def _wait_no_longer(self, asking: _Asking) -> None:
        await anyio.sleep(self._within_s)
        of = asking.of
        self._end(asking, self._persons.passed_over(of.principal, of.requester))

    def _end(self, asking: _Asking, person: bool) -> None:
        del self._asking[asking.of.requester]
        for turn in asking.turns:
            turn.label(asking.of.requester, _label(person))
            if turn.labelled:
                self._labelled(turn)


def _label(person: bool) -> Taint:
    return "person" if person else "peer"
