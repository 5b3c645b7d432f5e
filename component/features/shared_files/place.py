"""Keeps files where the HTTP listener serves them: a row for each, and its content in a directory.

The content is on disk before its row is, so that a file with an address can be served. Content
without a row, such as that of a process that was killed in between, is deleted later.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.features.shared_files import rows
from component.features.shared_files.rows import SharedFile
from component.features.shared_files.settings import SharedFiles
from component.skills.outputs import File, Link
from component.store import Storage, StorageError
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.outages import log_failure
from component.tasks.protocol import CannotShare
from component.uploads import file_name, link_to
from xep.jid import JID

_log = structlog.get_logger("component.files")

ID_BYTES: Final = 24
"""Random bytes in the address of a file."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{32}")
_DAY_MS: Final = 86_400_000
_SWEEP_S: Final = 3600.0
_YOUNG_S: Final = 600.0
"""Content that is younger may still get its row."""
_AT_ONCE: Final = 500


class Place:
    """Keeps files of people.

    Args:
        directory: of the contents; it is made with the first file.
        url: where the HTTP listener is reached.
    """

    def __init__(self, storage: Storage, directory: Path, url: str, settings: SharedFiles) -> None:
        self._storage = storage
        self._directory = directory
        self._url = url
        self._settings = settings

    async def keep(self, file: File, agent: str, person: JID) -> Link:
        """Keep a file for a person, and return the link to it. Raises CannotShare."""
        size, settings = len(file.data), self._settings
        if size > settings.max_file_bytes:
            raise CannotShare(f"files of at most {settings.max_file_bytes:,} bytes are kept here")
        id_ = system.token_urlsafe(ID_BYTES)
        link = await link_to(file, f"{self._url}/files/{id_}/{quote(file_name(file))}")
        assert link.sha256 is not None, "it was computed"
        path = self.path(id_)
        try:
            await system.in_thread(_write, path, file.data, system.time())
        except OSError as error:
            _log.error("a file cannot be kept", directory=str(self._directory), reason=str(error))
            raise CannotShare(f"it cannot be stored here: {error.strerror or error}") from None
        sha256 = link.sha256.hex()

        def op(database: Database) -> bool:
            expires = database.steady + settings.keep_days * _DAY_MS
            about = (file.name or "file", file.media_type, size, sha256, expires)
            row = SharedFile(id_, agent, str(person.bare), *about)
            return rows.insert(database, row, settings.quota_bytes)

        kept = False
        try:
            kept = await self._storage.write(op)
        except StorageError as error:
            raise CannotShare(f"the database refuses: {error}") from None
        finally:
            if not kept:
                with anyio.CancelScope(shield=True):
                    await system.in_thread(_delete, [path])
        if not kept:
            raise CannotShare(
                f"the files that are kept here for {person.bare} have the maximum size together,"
                f" {settings.quota_bytes:,} bytes; each is deleted after {settings.keep_days} days"
            )
        return link

    def path(self, id_: str) -> Path:
        """Return where the content of a file is."""
        return self._directory / id_

    def forget(self, database: Database, who: Forgotten) -> "partial[None] | None":
        """Delete the files of a person; return what deletes their contents."""
        ids = rows.forget(database, who)
        return partial(_delete, [self.path(one) for one in ids]) if ids else None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Delete what has expired, every hour, until cancelled."""
        task_status.started()
        while True:
            try:
                await self.sweep()
            except StorageError as error:
                log_failure(_log, "files are deleted later", error)
            except OSError as error:
                _log.error("files cannot be deleted", reason=str(error))
            await anyio.sleep(_SWEEP_S)

    async def sweep(self) -> None:
        """Delete files that have expired, and contents without a row. Raises StorageError,
        OSError.
        """
        await self._storage.write(rows.delete_expired)
        there = await system.in_thread(list, _older(self._directory, _YOUNG_S))
        left = iter(there)
        while some := list(islice(left, _AT_ONCE)):
            names = [path.name for path in some]
            known = await self._storage.read(partial(rows.known, ids=names))
            gone = [path for path in some if path.name not in known]
            await system.in_thread(_delete, gone)


def _older(directory: Path, seconds: float) -> Iterator[Path]:
    """Yield the contents that were written longer ago. Other files there are left alone."""
    with suppress(FileNotFoundError):
        latest = system.time() - seconds
        for entry in os.scandir(directory):
            with suppress(FileNotFoundError):
                is_ours = _ID.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                if is_ours and entry.stat().st_mtime < latest:
                    yield Path(entry.path)


def _write(path: Path, data: bytes, now: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as made:
            made.write(data)
            made.flush()
            os.utime(descriptor, (now, now))
            os.fsync(made.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
