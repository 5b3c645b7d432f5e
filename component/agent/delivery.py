"""Sends answers, and deletes the row of a request once its answer is sent."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from component.agent import rows
from component.agent.drafts import Draft
from component.agent.model_calls import ModelCalls
from component.agent.protocol import Voice
from component.agent.requests import Reply, TurnRequest, reply_to
from component.agent.sentences import BROKE
from component.store import Storage, StorageError
from component.store.outages import log_failure

_log = structlog.get_logger("component.agent")

_GATHER_S: Final = 0.02
"""Seconds that rows wait for a request in whose transaction they can be deleted."""
_LAST_DELETE_S: Final = 5.0
"""Seconds for deleting the last rows when the service stops."""


class Delivery:
    """Sends answers in their order, immediately or when there is a stream."""

    def __init__(self, voice: Voice, storage: Storage, model_calls: ModelCalls) -> None:
        self._voice = voice
        self._storage = storage
        self._model_calls = model_calls
        self._unsent: deque[tuple[Reply, Sequence[str]]] = deque()
        self._answered: list[str] = []
        self._any_answered = anyio.Event()
        self._group: TaskGroup | None = None

    def open(self, group: TaskGroup | None) -> None:
        """Delete rows in a task of this group from now on; with None, nothing is sent."""
        self._group = group
        if group is not None:
            group.start_soon(self._clear)

    def answer(self, requests: Sequence[TurnRequest], text: str, corrects: str = "") -> None:
        """Send the answer to requests, the first of which is the turn's own, to the reply address
        of the last one. It corrects the draft with the id `corrects`, if there is one. Their rows
        are kept until the answer is sent.
        """
        ids = [one.id for one in requests]
        reply = reply_to(requests[-1], "answer", text)
        if reply is None:
            self.answered(ids)
            return
        reply = msgspec.structs.replace(reply, id=f"{ids[0]}.answer", corrects=corrects)
        self._unsent.append((reply, ids))
        self.connected()

    def mention(self, to: TurnRequest, what: str, sentence: str, corrects: str = "") -> None:
        """Send a sentence that is not the answer; it is lost if there is no stream. Its id ends
        with `what`, so that it has the same id when it is sent again. It corrects the draft with
        the id `corrects`, if there is one.
        """
        reply = reply_to(to, what, sentence)
        if reply is not None:
            self._voice.say(msgspec.structs.replace(reply, corrects=corrects))

    def draft(self, request: TurnRequest, begun: Callable[[], None]) -> Draft | None:
        """Return the draft of the answer to a request; None if no drafts are shown there. `begun`
        is called when its beginning was sent.
        """
        to = request.reply_to
        is_shown = to is not None and self._voice.drafts(to)
        return Draft(request, self._voice, begun) if is_shown else None

    def composing(self, request: TurnRequest, on: bool) -> None:
        """Show that an answer is being written, or that none is any more."""
        to = request.reply_to
        if to is not None:
            self._voice.composing(to, on)

    def connected(self) -> None:
        """Send the answers that have waited for a stream, or until the agent is in a room."""
        held: list[tuple[Reply, Sequence[str]]] = []
        rooms: set[str] = set()
        while self._unsent and self._group is not None:
            reply, ids = self._unsent[0]
            if reply.to.to in rooms or not self._sent(reply):
                if reply.to.type != "groupchat" and not reply.to.is_occupant:
                    break  # there is no stream
                rooms.add(reply.to.to)  # others need not wait for the room
                held.append(self._unsent.popleft())
                continue
            self._unsent.popleft()
            self.answered(ids)
        self._unsent.extendleft(reversed(held))

    def _sent(self, reply: Reply) -> bool:
        """Send an answer; False if there is no stream. One that cannot be sent does not block the
        others: the person gets a sentence instead.
        """
        for one in (reply, msgspec.structs.replace(reply, text=BROKE)):
            try:
                return self._voice.say(one)
            except Exception:  # noqa: BLE001 - a fault of the service must not silence everybody
                _log.exception("an answer cannot be sent", reply=reply.id)
        return True

    def answered(self, ids: Sequence[str]) -> None:
        """A turn has ended: delete its rows, the turn's own first."""
        self._model_calls.ended(ids[0])
        # Nothing waits for this: if it fails, the answer is sent again with the same id.
        self._answered += ids
        self._any_answered.set()

    def take(self) -> list[str]:
        """Return the rows to delete, for a caller that writes to the database anyway."""
        if self._voice.waits():
            return []
        taken, self._answered = self._answered, []
        return taken

    def put_back(self, taken: Sequence[str]) -> None:
        """Return rows that could not be deleted."""
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
            with anyio.move_on_after(_LAST_DELETE_S, shield=True):
                try:
                    await self._delete(keep_trying=False)
                except StorageError as error:
                    log_failure(_log, "answers will be sent again", error)

    async def _delete(self, *, keep_trying: bool) -> None:
        if not self._answered:
            return
        taken, self._answered = self._answered, []
        try:
            # An answer that waits for a slow server would be lost with this process.
            await self._voice.sent()
            await self._storage.write(partial(rows.delete, turns=taken), keep_trying=keep_trying)
        except BaseException:
            self.put_back(taken)
            raise
