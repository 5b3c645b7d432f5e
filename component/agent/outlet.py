"""What is said, and that it was said: an answer's row goes when its answer has gone."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from component.agent import turns
from component.agent.lanes import Turn
from component.agent.protocol import Incoming, Reply, Voice
from component.agent.sentences import BROKE
from component.storage import Storage, StorageError

_log = structlog.get_logger("component.agent")

_GATHER_S: Final = 0.02
"""For so long rows wait for a message that takes them along in its own transaction."""
_LAST_WORDS_S: Final = 5.0
"""Seconds in which what was said is written down when the service ends."""


class Outlet:
    """Says answers in their order, now or when there is a stream.

    Args:
        voice: sends what is said.
        storage: has the rows.
        over: is told the id of each turn that is over.
    """

    def __init__(self, voice: Voice, storage: Storage, over: Callable[[str], None]) -> None:
        self._voice = voice
        self._storage = storage
        self._over = over
        self._unsaid: deque[tuple[Reply, Sequence[str]]] = deque()
        self._answered: list[str] = []
        self._any_answered = anyio.Event()
        self._group: TaskGroup | None = None

    def open(self, group: TaskGroup | None) -> None:
        """From now on rows are deleted by a task of this group; None: nothing is said any more."""
        self._group = group
        if group is not None:
            group.start_soon(self._clear)

    def say(self, turn: Turn, sentence: str) -> None:
        """Say the answer of a turn: its row stays until that is done."""
        reply = Reply(id=f"{turn.incoming.id}.answer", to=turn.messages[-1], body=sentence)
        self._unsaid.append((reply, turn.ids))
        self.connected()

    def mention(self, to: Incoming, what: str, sentence: str) -> None:
        """Say something beside the answer; it is lost if there is no stream. `what` goes into the
        id, so that the same is recognised when it is said again.
        """
        self._voice.say(Reply(id=f"{to.id}.{what}", to=to, body=sentence))

    def composing(self, turn: Turn, on: bool) -> None:
        """Show that an answer is being written, or is not any more."""
        self._voice.composing(turn.incoming, on)

    def connected(self) -> None:
        """Say what could not be said before."""
        while self._unsaid and self._group is not None:
            reply, ids = self._unsaid[0]
            if not self._sent(reply):
                return
            self._unsaid.popleft()
            self.answered(ids)

    def _sent(self, reply: Reply) -> bool:
        """Send an answer; False if there is no stream. One that cannot be sent holds up no other:
        the person gets a sentence instead.
        """
        for one in (reply, msgspec.structs.replace(reply, body=BROKE)):
            try:
                return self._voice.say(one)
            except Exception:  # noqa: BLE001 - a mistake of ours must not silence everybody
                _log.exception("an answer cannot be sent", reply=reply.id)
        return True

    def answered(self, ids: Sequence[str]) -> None:
        """A turn is over: its rows go, the turn's own first."""
        self._over(ids[0])
        # Nobody waits for this: if it comes to nothing the answer is said again, under its id.
        self._answered += ids
        self._any_answered.set()

    def take(self) -> list[str]:
        """The rows that may go, for who writes now anyway and takes them along."""
        if self._voice.waits():
            return []
        taken, self._answered = self._answered, []
        return taken

    def put_back(self, taken: Sequence[str]) -> None:
        """They could not be written away."""
        self._answered[:0] = taken
        self._any_answered.set()

    async def _clear(self) -> None:
        try:
            while True:
                await self._any_answered.wait()
                self._any_answered = anyio.Event()
                await anyio.sleep(_GATHER_S)
                await self._delete(keep_trying=True)
        finally:
            with anyio.move_on_after(_LAST_WORDS_S, shield=True):
                try:
                    await self._delete(keep_trying=False)
                except StorageError as error:
                    _log.warning("answers will be said again", reason=str(error))

    async def _delete(self, *, keep_trying: bool) -> None:
        if not self._answered:
            return
        taken, self._answered = self._answered, []
        try:
            # An answer that waits for a slow server would be lost with this process.
            await self._voice.sent()
            await self._storage.write(partial(turns.delete, turns=taken), keep_trying=keep_trying)
        except BaseException:
            self.put_back(taken)
            raise
