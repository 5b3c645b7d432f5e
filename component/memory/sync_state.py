"""The last common state of two stores, on disk next to the memories of each person.

`knowledge.sync.jsonl` begins with a header that names the agent and the person; one JSON object a
line follows, and the last one of a key counts. It is in the directory of the memories, so that
a backup has both from the same time, and a lost directory makes no memory elsewhere look deleted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from component import system
from component.memory import files
from component.memory.lines import SessionKey
from component.memory.merge import Synced
from component.memory.paths import AGENTS, Layout
from component.memory.store import Generation, Whose
from xep.jid import JID, JIDError

FILE_NAME: Final = "knowledge.sync.jsonl"

_LONGEST: Final = 1 << 28
_SLACK: Final = 256  # outdated lines before the file is rewritten

_log = structlog.get_logger("component.memory")


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A header (`agent`, `who`), the state of a key, `erase`, or the generation of the other store
    (`store`, `changes`, `filling`, `held`).

    `pending` says that the agent is changing the memory, `removing` that it has asked the other
    store to delete it; `gone` that the key has no state any more.
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


class SyncState(msgspec.Struct):
    """The state of the memories of one person.

    Attributes:
        synced: the last common states, by key.
        pending: the keys of memories that the agent has changed, which the other store lacks yet.
        erase: whether all memories are to be deleted in the other store.
        generation: the generation of the other store when it was last known to be alike; None if it
            did not tell.
        is_filling: whether the other store is a new one or an older state, which is being filled.
        held: how many memories the other store lacks without a reason, until it is decided.
        lines: the number of lines in the file.
    """

    synced: dict[str, Synced] = msgspec.field(default_factory=dict)
    pending: dict[str, None] = msgspec.field(default_factory=dict)
    erase: bool = False
    generation: Generation | None = None
    is_filling: bool = False
    held: int = 0
    lines: int = 0

    def of(self, key: str) -> Synced:
        """Return the last common state of a memory."""
        return self.synced.get(key, _NOTHING)


_NOTHING: Final = Synced()


class SyncStates:
    """The files. One writer at a time for each person. All methods raise StorageError;
    load the state again then.

    Args:
        layout: where the directory of each person is.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    async def load(self, whose: Whose) -> SyncState:
        """Read the state of the memories of a person."""
        return await system.in_thread(self._load, whose)

    async def settle(
        self,
        whose: Whose,
        state: SyncState,
        found: Mapping[str, Synced | None],
        *,
        alike_at: Generation | None = None,
    ) -> None:
        """Record the common state of some memories; None for deleted ones. With `alike_at`, that
        both stores are alike, and which generation the other one is.
        """
        lines = []
        for key, synced in found.items():
            was_pending = key in state.pending
            state.pending.pop(key, None)
            if synced is None:
                if state.synced.pop(key, None) is not None or was_pending:
                    lines.append(_Line(key=key, gone=True))
            elif was_pending or state.synced.get(key) != synced:
                state.synced[key] = synced
                lines.append(_Line(key=key, local=synced.local, remote=synced.remote))
        if alike_at is not None and (state.generation != alike_at or state.is_filling):
            state.generation, state.is_filling = alike_at, False
            lines.append(_store_line(state))
        if lines:
            await system.in_thread(self._write, whose, state, lines)

    async def note_pending(self, whose: Whose, state: SyncState, key: str) -> None:
        """Note that the agent is about to change a memory."""
        if key in state.pending:
            return
        state.pending[key] = None
        await system.in_thread(self._write, whose, state, [_line(state, key)])

    async def note_removing(self, whose: Whose, state: SyncState, key: str) -> None:
        """Note that the agent is about to ask the other store to delete a memory."""
        synced = state.of(key)
        if synced.removing:
            return
        state.synced[key] = msgspec.structs.replace(synced, removing=True)
        await system.in_thread(self._write, whose, state, [_line(state, key)])

    async def note_erase(self, whose: Whose, state: SyncState) -> None:
        """Note that all memories are to be deleted in the other store."""
        state.synced.clear()
        state.pending.clear()
        state.erase, state.lines = True, _SLACK * 2
        await system.in_thread(self._write, whose, state, [])

    async def note_filling(self, whose: Whose, state: SyncState) -> None:
        """Note that the other store is a new one or an older state, and is filled until both are
        alike: until then, nothing that it lacks was deleted.
        """
        if state.is_filling:
            return
        state.is_filling = True
        await system.in_thread(self._write, whose, state, [_store_line(state)])

    async def note_held(self, whose: Whose, state: SyncState, count: int) -> None:
        """Note how many memories wait for the decision of an admin."""
        if state.held == count:
            return
        state.held = count
        await system.in_thread(self._write, whose, state, [_store_line(state)])

    async def erased(self, whose: Whose, state: SyncState) -> None:
        """Note that all memories are deleted: nothing is known any more."""
        state.synced.clear()
        state.pending.clear()
        state.erase, state.lines = False, 0
        state.generation, state.is_filling, state.held = None, False, 0
        await system.in_thread(self._remove, whose)

    async def held(self) -> dict[Whose, int]:
        """Return how many memories of each person wait for the decision of an admin."""
        states = {whose: await self.load(whose) for whose in await self.known()}
        return {whose: state.held for whose, state in states.items() if state.held}

    async def known(self) -> list[Whose]:
        """Return all agents and people with a state."""
        return await system.in_thread(self._known)

    # The following methods run in worker threads.

    def _path(self, whose: Whose) -> Path:
        return self._layout.folder(whose) / FILE_NAME

    def _load(self, whose: Whose) -> SyncState:
        state = SyncState()
        path = self._path(whose)
        if not files.check_folder(self._layout.root, path.parent):
            return state
        found = files.read(path, _LONGEST)
        data = b"" if found is None else found[0]
        for line in data.splitlines():
            try:
                read = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                _log.warning("a line cannot be read", file=str(path))
                continue
            state.lines += 1
            state.erase = state.erase or read.erase
            if read.store is not None:
                state.generation = Generation(read.store, read.changes) if read.store else None
                state.is_filling, state.held = read.filling, read.held
            if read.key:
                state.synced.pop(read.key, None)
                state.pending.pop(read.key, None)
                if not read.gone and (read.local or read.remote):
                    state.synced[read.key] = Synced(
                        local=read.local, remote=read.remote, removing=read.removing
                    )
                if read.pending:
                    state.pending[read.key] = None
        return state

    def _write(self, whose: Whose, state: SyncState, lines: list[_Line]) -> None:
        path = self._path(whose)
        header = _written([_Line(agent=whose.agent, who=str(whose.who))])
        files.make_folder(self._layout.root, path.parent)
        if state.lines + len(lines) > 2 * len(state.synced) + _SLACK:
            lines = _all_lines(state)
            files.replace(path, header + _written(lines))
            state.lines = len(lines) + 1
            return
        files.append(path, _written(lines), first=lambda: header, sync=True)
        state.lines += len(lines)

    def _remove(self, whose: Whose) -> None:
        path = self._path(whose)
        if files.check_folder(self._layout.root, path.parent):
            files.remove(path)

    def _known(self) -> list[Whose]:
        root = self._layout.root
        found = []
        for folder in (root, *_folders(root / AGENTS)):
            for each in _folders(folder):
                whose = _header(each / FILE_NAME)
                if whose is not None and self._layout.folder(whose) == each:
                    found.append(whose)
        return found


def _all_lines(state: SyncState) -> list[_Line]:
    lines = [_Line(erase=True)] if state.erase else []
    if state.generation is not None or state.is_filling or state.held:
        lines.append(_store_line(state))
    return lines + [_line(state, key) for key in {**state.synced, **state.pending}]


def _line(state: SyncState, key: str) -> _Line:
    synced = state.of(key)
    return _Line(
        key=key,
        local=synced.local,
        remote=synced.remote,
        pending=key in state.pending,
        removing=synced.removing,
    )


def _store_line(state: SyncState) -> _Line:
    store, changes = state.generation or Generation("", 0)
    return _Line(store=store, changes=changes, filling=state.is_filling, held=state.held)


def _written(lines: list[_Line]) -> bytes:
    return b"".join(_encode(line) + b"\n" for line in lines)


def _folders(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir() and not each.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise files.refused(path, "read", error) from error


def _header(path: Path) -> Whose | None:
    try:
        with path.open("rb") as file:
            read = _decode(file.readline(4096))
        return SessionKey(read.agent, JID.parse(read.who)) if read.agent else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, JIDError):
        return None
