"""The last common state of two stores, in a file beside the memories of each person.

`knowledge.sync.jsonl` begins with a header that names the agent and the person. One JSON object a
line follows, and the last line of a key counts. The file is in the directory of the memories, so
that a backup has both from the same time, and a lost directory makes no memory elsewhere look
deleted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from component import system
from component.memory.store import Generation
from component.memory_directory import files
from component.memory_directory.layout import AGENTS, Layout, SessionKey
from xep.jid import JID, JIDError

FILE_NAME: Final = "knowledge.sync.jsonl"

_LONGEST: Final = 1 << 28
_SLACK: Final = 256  # outdated lines before the file is rewritten

_log = structlog.get_logger("component.memory")


class Synced(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last common state of a memory: its digest in each store, empty if it has none.

    The digests differ if a store returns texts in another form than it received them. `removing`
    says that the agent has asked the person's store to delete the memory, perhaps without an
    answer: if it is missing there, the person has not changed it.
    """

    local: str = ""
    remote: str = ""
    removing: bool = False


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A header (`agent`, `who`), the state of a key, `erase`, or the generation of the other store
    (`store`, `changes`, `filling`, `held`).

    `pending` says that the agent is changing the memory, `removing` that it has asked the other
    store to delete it, `gone` that the key has no state any more.
    """

    agent: str = ""
    who: str = ""
    key: str = ""
    local: str = ""
    remote: str = ""
    pending: bool = False
    removing: bool = False
    gone: bool = False
    erase: bool = False
    store: str | None = None
    changes: int = 0
    filling: bool = False
    held: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class SyncState:
    """The state of the memories of one person, with its file. It has one writer at a time.

    All methods but `of` write the file and raise StorageError; load the state again then.

    Attributes:
        whose: as given.
        synced: the last common states, by key.
        pending: the keys of memories that the agent has changed, which the other store lacks yet.
        erase: whether all memories are to be deleted in the other store.
        generation: the generation of the other store when both were last equal; None if it is
            unknown.
        is_filling: whether the other store is a new one or an older state, which is being filled.
        held: how many memories the other store lacks without a reason, until it is decided.
    """

    def __init__(self, layout: Layout, whose: SessionKey) -> None:
        self.whose = whose
        self.synced: dict[str, Synced] = {}
        self.pending: dict[str, None] = {}
        self.erase = False
        self.generation: Generation | None = None
        self.is_filling = False
        self.held = 0
        self._root = layout.root
        self._path = layout.folder(whose) / FILE_NAME
        self._lines = 0

    def of(self, key: str) -> Synced:
        """Return the last common state of a memory."""
        return self.synced.get(key, _NOTHING)

    async def settle(
        self, found: Mapping[str, Synced | None], *, equal_at: Generation | None = None
    ) -> None:
        """Record the common state of some memories; None for deleted ones.

        `equal_at` says that both stores are equal now, and gives the generation of the other one.
        """
        lines = []
        for key, synced in found.items():
            was_pending = key in self.pending
            self.pending.pop(key, None)
            if synced is None:
                if self.synced.pop(key, None) is not None or was_pending:
                    lines.append(_Line(key=key, gone=True))
            elif was_pending or self.synced.get(key) != synced:
                self.synced[key] = synced
                lines.append(_Line(key=key, local=synced.local, remote=synced.remote))
        if equal_at is not None and (self.generation != equal_at or self.is_filling):
            self.generation, self.is_filling = equal_at, False
            lines.append(self._store_line())
        if lines:
            await system.in_thread(self._write, lines)

    async def note_pending(self, key: str) -> None:
        """Record that the agent is about to change a memory."""
        if key not in self.pending:
            self.pending[key] = None
            await system.in_thread(self._write, [self._line(key)])

    async def note_removing(self, key: str) -> None:
        """Record that the agent is about to ask the other store to delete a memory."""
        synced = self.of(key)
        if not synced.removing:
            self.synced[key] = msgspec.structs.replace(synced, removing=True)
            await system.in_thread(self._write, [self._line(key)])

    async def note_erase(self) -> None:
        """Record that all memories are to be deleted in the other store."""
        self.synced.clear()
        self.pending.clear()
        self.erase, self._lines = True, _SLACK * 2
        await system.in_thread(self._write, [])

    async def note_filling(self) -> None:
        """Record that the other store is a new one or an older state, which is filled until both
        are equal. Until then, nothing that it lacks was deleted.
        """
        if not self.is_filling:
            self.is_filling = True
            await system.in_thread(self._write, [self._store_line()])

    async def note_held(self, count: int) -> None:
        """Record how many memories wait for the decision of an admin."""
        if self.held != count:
            self.held = count
            await system.in_thread(self._write, [self._store_line()])

    async def note_erased(self) -> None:
        """Record that all memories were deleted in both stores, by deleting the file."""
        self.synced.clear()
        self.pending.clear()
        self.erase, self._lines = False, 0
        self.generation, self.is_filling, self.held = None, False, 0
        await system.in_thread(self._remove)

    # In worker threads.

    def read(self) -> None:
        """Read the file."""
        if not files.check_folder(self._root, self._path.parent):
            return
        found = files.read(self._path, _LONGEST)
        for data in [] if found is None else found[0].splitlines():
            try:
                line = _decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                _log.warning("a line cannot be read", file=str(self._path))
                continue
            self._lines += 1
            self.erase = self.erase or line.erase
            if line.store is not None:
                self.generation = Generation(line.store, line.changes) if line.store else None
                self.is_filling, self.held = line.filling, line.held
            if line.key:
                self._take(line)

    def _take(self, line: _Line) -> None:
        self.synced.pop(line.key, None)
        self.pending.pop(line.key, None)
        if not line.gone and (line.local or line.remote):
            self.synced[line.key] = Synced(line.local, line.remote, line.removing)
        if line.pending:
            self.pending[line.key] = None

    def _write(self, lines: list[_Line]) -> None:
        header = _encoded([_Line(agent=self.whose.agent, who=str(self.whose.who))])
        files.make_folder(self._root, self._path.parent)
        if self._lines + len(lines) > 2 * len(self.synced) + _SLACK:
            lines = self._all_lines()
            files.replace(self._path, header + _encoded(lines))
            self._lines = len(lines) + 1
            return
        files.append(self._path, _encoded(lines), first=lambda: header, sync=True)
        self._lines += len(lines)

    def _remove(self) -> None:
        if files.check_folder(self._root, self._path.parent):
            files.remove(self._path)

    def _all_lines(self) -> list[_Line]:
        lines = [_Line(erase=True)] if self.erase else []
        if self.generation is not None or self.is_filling or self.held:
            lines.append(self._store_line())
        return lines + [self._line(key) for key in {**self.synced, **self.pending}]

    def _line(self, key: str) -> _Line:
        synced = self.of(key)
        return _Line(
            key=key,
            local=synced.local,
            remote=synced.remote,
            pending=key in self.pending,
            removing=synced.removing,
        )

    def _store_line(self) -> _Line:
        store, changes = self.generation or Generation("", 0)
        return _Line(store=store, changes=changes, filling=self.is_filling, held=self.held)


_NOTHING: Final = Synced()


class SyncStates:
    """The states of all people. All methods raise StorageError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    async def load(self, whose: SessionKey) -> SyncState:
        """Read the state of the memories of a person."""
        state = SyncState(self._layout, whose)
        await system.in_thread(state.read)
        return state

    async def held(self) -> dict[SessionKey, int]:
        """Return how many memories of each person wait for the decision of an admin."""
        states = [await self.load(whose) for whose in await self.known()]
        return {state.whose: state.held for state in states if state.held}

    async def known(self) -> list[SessionKey]:
        """Return all agents and people with a state."""
        return await system.in_thread(self._known)

    # In worker threads.

    def _known(self) -> list[SessionKey]:
        root = self._layout.root
        found = []
        for folder in (root, *_folders(root / AGENTS)):
            for each in _folders(folder):
                whose = _header(each / FILE_NAME)
                if whose is not None and self._layout.folder(whose) == each:
                    found.append(whose)
        return found


def _encoded(lines: list[_Line]) -> bytes:
    return b"".join(_encode(line) + b"\n" for line in lines)


def _folders(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir() and not each.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise files.disk_error(path, "read", error) from error


def _header(path: Path) -> SessionKey | None:
    try:
        with path.open("rb") as file:
            line = _decode(file.readline(4096))
        return SessionKey(line.agent, JID.parse(line.who)) if line.agent else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, JIDError):
        return None
