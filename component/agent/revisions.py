"""Corrections and retractions of the messages of a running turn (XEP-0308, XEP-0424).

One is accepted until the turn has done something that its message has caused and that a new text
would change: it has called a tool that does not only read, or its answer is being stored. A call
that waits for a person, or whose task has done nothing yet, is withdrawn. The row of the message is
changed first, so that nothing that was accepted is lost. The turn takes the new text before its
next step, and starts that step again.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import anyio

from component.agent.requests import TurnRequest


class Revisions:
    """The revised messages of a running turn, until it takes them.

    Attributes:
        known: set when it is known what the turn has done before; a turn that began earlier has to
            read its lines first.
    """

    def __init__(self) -> None:
        self.known = anyio.Event()
        self._acted_on: set[str] = set()
        self._revised: dict[str, TurnRequest] = {}
        """The last revision of each message."""
        self._writing = 0
        self._written = anyio.Event()

    def is_too_late(self, request: str) -> bool:
        """Whether something was done that a message has caused."""
        return request in self._acted_on

    @property
    def waiting(self) -> bool:
        """Whether the turn has to take a revision before it does anything else."""
        return bool(self._writing or self._revised)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context in which the row of a message is changed; the turn waits for its end."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            self._written.set()
            self._written = anyio.Event()

    def add(self, request: TurnRequest) -> None:
        """Add a message whose row has the new text."""
        self._revised[request.id] = request

    async def take(self) -> Sequence[TurnRequest]:
        """Return the revised messages, after those that are being written."""
        while self._writing:
            await self._written.wait()
        revised, self._revised = self._revised, {}
        return [*revised.values()]

    def act_on(self, requests: Collection[str]) -> None:
        """Note that the turn does something that these messages have caused."""
        self._acted_on.update(requests)

    def set_acted_on(self, requests: Collection[str]) -> None:
        """Note what the turn has acted on, now that the outcome of its calls is known."""
        self._acted_on = set(requests)
        self.known.set()
