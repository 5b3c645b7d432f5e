"""Telling callers of what was committed, in order, and what must not get lost until it was."""

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec
import structlog

from component.storage.database import Database
from component.tasks.protocol import Listener, Question
from component.tasks.questions import put_question
from component.tasks.request import notice_of
from component.tasks.rows import COLUMNS, Change, Row, decoded
from component.tasks.storing import Storage

_PAGE: Final = 200
_log = structlog.get_logger("component.tasks")
_GATHER_S: Final = 0.1
"""For so long what was told is gathered before that is written down."""
_LAST_WORDS_S: Final = 2.0
"""Seconds in which the server has to take the last messages when this instance leaves."""

UNTOLD: Final = "untold"
"""The channel on which an instance without a stream says that there is something to be told."""

_Told: TypeAlias = tuple[Change, Question | None]


class Teller:
    """Hands notices to the listener, and remembers on disk what it has taken.

    Args:
        storage: where the rows are.
        listener: who sends the messages.
    """

    def __init__(self, storage: Storage, listener: Listener) -> None:
        self._storage = storage
        self._listener = listener
        self._outgoing: list[_Told] = []
        self._work = anyio.Event()
        self._told: dict[tuple[str, int], None] = {}  # and not written down yet
        self._any_told = anyio.Event()
        self._for_others = anyio.Event()
        self._untold = anyio.Lock()

    def tell(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Tell of changes, soon: after the answer that this commit is waited for by (EVT-008)."""
        if changes:
            self._outgoing += [(made, None) for made in changes[:-1]]
            self._outgoing.append((changes[-1], question))
            self._work.set()

    async def run(self) -> None:
        """Do so for ever."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._clear)
            group.start_soon(self._ask_others)
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                # Those whose commit was one go on in any order: let all of them come first.
                for _ in range(2):
                    await anyio.lowlevel.checkpoint()
                self._tell_now()

    def _tell_now(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for made, question in sorted(outgoing, key=lambda one: one[0].row.revision):
            if not self._say(made, question) and made.row.untold == made.row.revision:
                self._for_others.set()

    def _say(self, made: Change, question: Question | None) -> bool:
        row = made.row
        if not row.visible:
            return True
        try:
            notice = notice_of(made, question)
        except Exception:  # noqa: BLE001 - nobody else has to be left untold for it
            _log.exception("an event cannot be told", task=row.id)
            said = True
        else:
            said = self._listener.changed(notice)
        if said and row.untold == row.revision:
            self._told[row.id, row.revision] = None
            self._any_told.set()
        return said

    async def _clear(self) -> None:
        while True:
            await self._any_told.wait()
            self._any_told = anyio.Event()
            await anyio.sleep(_GATHER_S)
            told = list(self._told)
            # What waits for a slow server would be lost with this process.
            await self._listener.sent()
            await self._write(told, keep_trying=True)

    async def _ask_others(self) -> None:
        """Say that there is something to be told, where another instance may have a stream."""
        while True:
            await self._for_others.wait()
            self._for_others = anyio.Event()
            await self._storage.write(lambda database: database.notify(UNTOLD), keep_trying=True)
            await anyio.sleep(_GATHER_S)

    async def _write(self, told: Sequence[tuple[str, int]], *, keep_trying: bool) -> None:
        def op(database: Database) -> None:
            for task, revision in told:
                database.execute(
                    "UPDATE tasks SET untold = NULL WHERE id = ? AND untold = ?", (task, revision)
                )

        if told:
            await self._storage.write(op, keep_trying=keep_trying)
            for one in told:
                self._told.pop(one, None)

    async def flush(self) -> None:
        """Tell all that waits, and write down what the server takes in time.

        Raises StorageError.
        """
        self._tell_now()
        told = list(self._told)
        if self._for_others.is_set():
            await self._storage.write(lambda database: database.notify(UNTOLD))
        with anyio.move_on_after(_LAST_WORDS_S) as waiting:
            await self._listener.sent()
        if not waiting.cancelled_caught:
            await self._write(told, keep_trying=False)

    async def untold(self) -> None:
        """Tell of everything that was not, the oldest first. Raises StorageError."""
        async with self._untold:  # or two at a time would both tell of the same
            self._tell_now()
            after = (-1, "")
            while True:
                # What is on its way already is not told twice, nor if it is written down meanwhile.
                before = set(self._told)
                page: list[_Told] = await self._storage.read(partial(_untold, after=after))
                for made, question in page:
                    one = (made.row.id, made.row.revision)
                    told = one in before or one in self._told
                    if not told and not self._say(made, question):
                        return
                if len(page) < _PAGE:
                    return
                last = page[-1][0].row
                after = (last.updated, last.id)


def _untold(database: Database, after: tuple[int, str]) -> list[_Told]:
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE untold IS NOT NULL"  # noqa: S608 - columns of ours
        f" AND (updated > ? OR (updated = ? AND id > ?)) ORDER BY updated, id LIMIT {_PAGE}",
        (after[0], after[0], after[1]),
    ).fetchall()
    page: list[_Told] = []
    for row in [Row(*row) for row in found]:
        event = database.execute(
            "SELECT state, at, retain, detail FROM events WHERE task = ? AND revision = ?",
            (row.id, row.untold),
        ).fetchone()
        if event is None or row.untold is None:
            continue
        state, _, retain, detail = event
        then = msgspec.structs.replace(row, state=state, revision=row.untold, retain_until=retain)
        question = put_question(database, row) if row.revision == row.untold else None
        page.append((Change(then, decoded(detail)), question))
    return page
