"""A client that does nothing unusual, all the time, and says when it is not served."""

import contextlib
import threading
from collections.abc import Iterator
from itertools import count
from typing import Final

from tests.servers.chatting import body, say
from tests.servers.clients import SlixClient
from tests.servers.talk import PING, condition, execute, output

_PAUSE_S: Final = 0.05
_TALKS: Final = 10  # rounds of which one holds a chat message


class Honest:
    """Pings, executes and talks, over and over; each must be answered as if nobody else were there.

    While the component's stream is lost the server answers in its place. `forgives` says that this
    was seen already, and is the fault of what was sent, not a second one.
    """

    def __init__(self, client: SlixClient, agent: str) -> None:
        self.rounds = 0
        self._client = client
        self._agent = agent
        self._lock = threading.Lock()
        self._talking = threading.Lock()  # two messages that wait get one answer
        self._trouble: list[str] = []
        self._over = threading.Event()

    def trouble(self) -> str:
        """What went wrong since this was asked last; empty if nothing did."""
        with self._lock:
            found, self._trouble = self._trouble, []
        return "\n".join(found)

    def forgives(self) -> None:
        """Forget what went wrong so far."""
        self.trouble()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Go on for the time of the context."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def once(self, number: int) -> None:
        """One round. Raises AssertionError, TimeoutError or ConnectionError."""
        reply = self._client.iq(self._agent, PING)
        assert reply.get("type") == "result", f"ping: {condition(reply)}"
        reply = self._client.iq(self._agent, execute("echo", text=f"hello {number}"), "set")
        assert reply.get("type") == "result", f"execute: {condition(reply)}"
        assert output(reply) == f"hello {number}", output(reply)
        if number % _TALKS == 0:
            with self._talking:
                say(self._client, f"assistant@{self._agent}", f"say {number}.")
                self._client.messages.take(lambda message: f"say {number}." in body(message))

    def _run(self) -> None:
        for number in count():
            try:
                self.once(number)
            except (AssertionError, TimeoutError, ConnectionError) as error:
                with self._lock:
                    self._trouble.append(f"{type(error).__name__}: {error}"[:1000])
            self.rounds += 1
            if self._over.wait(_PAUSE_S):
                return
