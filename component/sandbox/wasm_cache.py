"""Compiled code of WebAssembly on disk, so that it is compiled once and not in every process.

wasmtime runs whatever it deserialises, so an entry is trusted only if this service wrote it: the
directory and its files are the service's own (modes 0700 and 0600), and each entry begins with a
keyed hash over its name and content. The key lies beside the entries. An entry that another user
owns or may write, or whose hash is not the right one, is removed, and the code compiled again. No
child process writes here.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

import structlog

from component.private import make_directory, open_private

_log = structlog.get_logger("component.sandbox")

_HASH_BYTES: Final = 32
_KEY_BYTES: Final = 32
_OTHERS: Final = 0o077
MOST_BYTES: Final = 1 << 30
"""The size of all entries; the ones that were used least recently are removed."""


class WasmCache:
    """Entries in a directory.

    Args:
        directory: is made if it is missing.
        fingerprint: of the compiler and its configuration, on which compiled code depends.
    """

    def __init__(self, directory: Path, fingerprint: str) -> None:
        self._directory = directory
        self._fingerprint = fingerprint
        self._key: bytes | None = None

    def get(self, digest: bytes) -> bytes | None:
        """Return the compiled form of code with this hash, or None if it has to be compiled."""
        path = self._path(digest)
        try:
            key = self._opened()
            content = _read_own(path)
            if content is None:
                return None
            found, compiled = content[:_HASH_BYTES], memoryview(content)[_HASH_BYTES:]
            if hmac.compare_digest(found, self._hash(key, path.name, compiled)):
                os.utime(path)
                return bytes(compiled)
            _log.warning("compiled code was changed, and is compiled again", path=str(path))
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("compiled code cannot be read", path=str(path), error=str(error))
        return None

    def put(self, digest: bytes, compiled: bytes) -> None:
        """Store the compiled form of code with this hash. A failure is only logged."""
        path = self._path(digest)
        part = path.with_suffix(f".{secrets.token_hex(8)}.part")
        try:
            key = self._opened()
            with open_private(part, "wb") as file:
                file.write(self._hash(key, path.name, compiled))
                file.write(compiled)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self._prune()
        except OSError as error:
            _log.warning("compiled code cannot be stored", path=str(path), error=str(error))
            part.unlink(missing_ok=True)

    def _path(self, digest: bytes) -> Path:
        name = hashlib.sha256(digest + self._fingerprint.encode()).hexdigest()
        return self._directory / f"{name}.compiled"

    @staticmethod
    def _hash(key: bytes, name: str, compiled: bytes | memoryview) -> bytes:
        # Keyed BLAKE2b is a MAC (RFC 7693 §2.9), and faster than HMAC-SHA-256 over 40 MB.
        found = hashlib.blake2b(name.encode(), key=key, digest_size=_HASH_BYTES)
        found.update(compiled)
        return found.digest()

    def _opened(self) -> bytes:
        """Return the key; make it, and the directory, if they are missing. Raises OSError."""
        if self._key is not None:
            return self._key
        make_directory(self._directory)
        mode = self._directory.stat()
        if mode.st_uid != os.geteuid() or stat.S_IMODE(mode.st_mode) & _OTHERS:
            raise PermissionError(f"{self._directory} is not the service's own, with mode 0700")
        path = self._directory / "key"
        key = _read_own(path)
        if key is None or len(key) != _KEY_BYTES:
            key = secrets.token_bytes(_KEY_BYTES)
            part = path.with_suffix(f".{secrets.token_hex(8)}.part")
            with open_private(part, "wb") as file:
                file.write(key)
            part.replace(path)
            # Of two processes that start at once, the last one's key remains.
            key = _read_own(path) or key
        self._key = key
        return key

    def _prune(self) -> None:
        """Remove the entries that were used least recently, down to `MOST_BYTES`."""
        entries = []
        for path in self._directory.glob("*.compiled"):
            found = path.stat()
            entries.append((found.st_mtime, found.st_size, path))
        size = sum(each[1] for each in entries)
        for _, each, path in sorted(entries)[:-1]:
            if size <= MOST_BYTES:
                return
            path.unlink(missing_ok=True)
            size -= each


def _read_own(path: Path) -> bytes | None:
    """Read a file that only this user may read and write; None if it is missing.

    One of others, or a link, is removed. Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        path.unlink(missing_ok=True)
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        own = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & _OTHERS
        if own and stat.S_ISREG(found.st_mode):
            return file.read()
    _log.warning("a file of compiled code was not the service's own", path=str(path))
    path.unlink(missing_ok=True)
    return None
