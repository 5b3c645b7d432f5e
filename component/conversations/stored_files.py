"""The files of a person with an agent, of a room or of a scope: `files/` in its directory.

A content is stored once, under its SHA-256 in hex; `.index.json` has the names. The content is
written before the index that names it, and removed after one that does not, so that a crash leaves
at most a content without a name, which the next change removes. The text of a document is kept in
`.SHA256.txt`. Errors of the disk raise MemoryStoreError.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from component import system
from component.conversations.directories import FILES
from component.conversations.lines import rfc3339
from component.memory.content_types import READERS, content_type
from component.memory.document_reader import (
    DocumentError,
    DocumentLimits,
    DocumentPiece,
    read_data,
)
from component.memory.document_worker import decoded
from component.memory.knowledge_lines import seconds_of
from component.memory_directory import files
from component.memory_directory.files import KeyLocks, MemoryStoreError
from component.memory_directory.layout import AGENTS, Layout
from component.policy.taint import Taint, worst

T = TypeVar("T")

_INDEX: Final = ".index.json"
_LONGEST_INDEX: Final = 8 << 20
_LARGEST: Final = 64 << 20
_CONTENT: Final = re.compile(r"\.?[0-9a-f]{64}(\.txt)?")
_PART: Final = re.compile(r"(?![\s.])[^/\\:\x00-\x1f\x7f\ud800-\udfff]{1,100}(?<![\s.])")
_DEEPEST: Final = 6
_PLACES: Final = (f"*/{FILES}", f"{AGENTS}/*/*/{FILES}", f"_shared/*/{FILES}")
DOCUMENT_LIMITS: Final = DocumentLimits(
    size=_LARGEST, memory=512 << 20, output=4 << 20, cpu_s=15, wait_s=60.0
)


class StoredFile(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file.

    Attributes:
        name: unique in its directory; may have slashes.
        media_type: by its content.
        size: in bytes.
        at: when it was stored, in RFC 3339 format.
        by: the bare JID of the person who sent it, or for whom an agent wrote it.
        url: where it was fetched; empty for a file that an agent wrote.
        taint: who could have written it.
    """

    name: str
    sha256: str = ""
    media_type: str = ""
    size: int = 0
    at: str = ""
    by: str = ""
    url: str = ""
    taint: Taint | None = None


class FileLimits(msgspec.Struct, frozen=True):
    """Limits of one directory: bytes of all files, number of files, and bytes of one file."""

    bytes: int
    files: int
    file_bytes: int


class FileRefusedError(Exception):
    """A file cannot be stored or found. The text is a sentence for a person or a model."""


class _Changed(msgspec.Struct, Generic[T], frozen=True):
    """The files after a change, its result, and the content that is new."""

    files: Sequence[StoredFile]
    result: T
    data: bytes | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[StoredFile, ...]).decode


class StoredFiles:
    """The files below the root of a layout; each directory has one change at a time.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, layout: Layout, clock: Callable[[], float] = system.time) -> None:
        self.layout = layout
        self._root = layout.root
        self._clock = clock
        self._locks: KeyLocks[Path] = KeyLocks()

    async def list(self, folder: Path) -> Sequence[StoredFile]:
        """Return the files in the directory of a person, room or scope, the oldest first."""
        return await system.in_thread(self._read_index, folder / FILES)

    async def read(self, folder: Path, sha256: str) -> bytes | None:
        """Return a content; None if it was deleted."""
        return await system.in_thread(self._content, folder / FILES, sha256)

    async def add(
        self, folder: Path, file: StoredFile, data: bytes, limits: FileLimits
    ) -> StoredFile:
        """Store a file that somebody has sent; another name is chosen if there is another file of
        this name. The oldest files that were sent before are removed if there is no room for it.

        Raises FileRefusedError: it is larger than the limits permit.
        """

        def add(known: Sequence[StoredFile]) -> _Changed[StoredFile]:
            stored = self._described(file, data)
            same = [one for one in known if one.sha256 == stored.sha256 and one.url]
            others = [one for one in known if one not in same]
            name = _free_name(same[0].name if same else file.name, {one.name for one in others})
            stored = msgspec.structs.replace(stored, name=name)
            return _Changed([*_fitting(others, stored, limits, evict=True), stored], stored, data)

        return await self._change(folder, add)

    async def write(
        self, folder: Path, file: StoredFile, text: str, limits: FileLimits, *, append: bool
    ) -> StoredFile:
        """Store a text file of an agent, or append to one. Raises FileRefusedError if it exists and
        nothing is to be appended, and if a limit is exceeded.
        """
        _check_name(file.name)

        def write(known: Sequence[StoredFile]) -> _Changed[StoredFile]:
            same = [one for one in known if one.name == file.name]
            if same and not append:
                raise FileRefusedError(f"There is a file {file.name} already.")
            before = self._content(folder / FILES, same[0].sha256) if same else None
            data = (before or b"") + text.encode(errors="replace")
            taints = [one.taint for one in (*same, file) if one.taint is not None]
            stored = msgspec.structs.replace(
                self._described(file, data), media_type="text/plain", taint=worst(taints)
            )
            others = [one for one in known if one.name != file.name]
            return _Changed([*_fitting(others, stored, limits, evict=False), stored], stored, data)

        return await self._change(folder, write)

    async def find(self, folder: Path, name: str) -> StoredFile | None:
        """Return the file of a name, whose case does not matter if only one fits."""
        known = await self.list(folder)
        exact = [one for one in known if one.name == name]
        similar = [one for one in known if one.name.casefold() == name.casefold()]
        return exact[0] if exact else similar[0] if len(similar) == 1 else None

    async def delete(self, folder: Path, names: Sequence[str]) -> int:
        """Delete the files of these names; return how many there were."""

        def delete(known: Sequence[StoredFile]) -> _Changed[int]:
            kept = [one for one in known if one.name not in names]
            return _Changed(kept, len(known) - len(kept))

        return await self._change(folder, delete)

    async def expire(self, before: float) -> int:
        """Delete the files that were sent before a time, in seconds since 1970, and return how many
        there were. Those that agents have written stay.
        """
        count = 0
        for folder in await system.in_thread(self._folders):
            known = await self.list(folder)
            old = [one.name for one in known if one.url and (seconds_of(one.at) or 0) < before]
            count += await self.delete(folder, old) if old else 0
        return count

    async def text(self, folder: Path, file: StoredFile) -> str | None:
        """Return the text of a document; None if it was deleted.

        Raises DocumentError: it is not a document, or cannot be read.
        """
        path = folder / FILES / f".{file.sha256}.txt"
        reader = READERS.get(file.media_type)
        if reader is None:
            raise DocumentError(f"files of the type {file.media_type} cannot be")
        found = await system.in_thread(files.read, path, _LARGEST)
        if found is not None:
            return found[0].decode()
        data = await self.read(folder, file.sha256)
        if data is None:
            return None
        if reader == "text":
            return decoded(data)
        text = _joined(await read_data(reader, data, DOCUMENT_LIMITS))
        if not text:
            raise DocumentError("it has no text" + (" (a scan?)" if reader == "pdf" else ""))
        async with self._locks.hold(folder):
            await system.in_thread(self._keep_text, path, text)
        return text

    async def _change(
        self, folder: Path, change: Callable[[Sequence[StoredFile]], "_Changed[T]"]
    ) -> T:
        def work() -> T:
            where = folder / FILES
            known = self._read_index(where)
            changed = change(known)
            if list(changed.files) != list(known):
                files.make_folder(self._root, where)
                if changed.data is not None:
                    path = where / hashlib.sha256(changed.data).hexdigest()
                    if files.state_of(path) is None:
                        files.replace(path, changed.data)
                files.replace(where / _INDEX, _encode(changed.files))
                _remove_unnamed(where, {one.sha256 for one in changed.files})
            return changed.result

        async with self._locks.hold(folder):
            return await system.in_thread(work)

    def _described(self, file: StoredFile, data: bytes) -> StoredFile:
        return msgspec.structs.replace(
            file,
            sha256=hashlib.sha256(data).hexdigest(),
            media_type=content_type(data),
            size=len(data),
            at=rfc3339(self._clock()),
        )

    # In worker threads.

    def _read_index(self, where: Path) -> Sequence[StoredFile]:
        if not files.check_folder(self._root, where):
            return ()
        found = files.read(where / _INDEX, _LONGEST_INDEX)
        try:
            return () if found is None else _decode(found[0])
        except msgspec.MsgspecError as error:
            raise MemoryStoreError(
                f"{where / _INDEX} is damaged: {error}. Restore it from a backup, or remove it and"
                " the files beside it."
            ) from error

    def _content(self, where: Path, sha256: str) -> bytes | None:
        if not _CONTENT.fullmatch(sha256) or not files.check_folder(self._root, where):
            return None
        found = files.read(where / sha256, _LARGEST)
        return None if found is None else found[0]

    def _keep_text(self, path: Path, text: str) -> None:
        # The file may have been deleted in the meantime.
        if files.state_of(path.with_name(path.name[1:-4])) is not None:
            files.replace(path, text.encode(errors="replace"))

    def _folders(self) -> Sequence[Path]:
        found = [
            index.parent for place in _PLACES for index in self._root.glob(f"{place}/{_INDEX}")
        ]
        return [where.parent for where in found if files.check_folder(self._root, where)]


def _remove_unnamed(where: Path, named: set[str]) -> None:
    with files.explained(where, "read"):
        found = [each for each in where.iterdir() if _CONTENT.fullmatch(each.name)]
    for path in found:
        if path.name.removeprefix(".").removesuffix(".txt") not in named:
            files.remove(path)


def _fitting(
    known: Sequence[StoredFile], new: StoredFile, limits: FileLimits, *, evict: bool
) -> Sequence[StoredFile]:
    """Return the files that stay beside a new one. Raises FileRefusedError if it does not fit."""
    most = min(limits.file_bytes, limits.bytes)
    if new.size > most:
        raise FileRefusedError(f"{new.name} has {new.size:,} bytes, and at most {most:,} are kept.")
    kept = list(known)
    while len(kept) >= limits.files or _bytes_of([*kept, new]) > limits.bytes:
        sent = [one for one in kept if one.url]
        if not evict or not sent:
            raise FileRefusedError(
                f"There is no room for {new.name}: at most {limits.files:,} files with"
                f" {limits.bytes:,} bytes together are kept. Delete one first."
            )
        kept.remove(min(sent, key=lambda one: one.at))
    return kept


def _bytes_of(stored: Sequence[StoredFile]) -> int:
    return sum({one.sha256: one.size for one in stored}.values())


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name that no file has: `photo.jpg`, `photo-2.jpg`."""
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    found, number = name, 2
    while found in taken:
        found, number = f"{stem}-{number}{dot}{suffix}", number + 1
    return found


def _check_name(name: str) -> None:
    parts = name.split("/")
    if len(parts) > _DEEPEST or not all(_PART.fullmatch(part) for part in parts):
        raise FileRefusedError(
            "Write the path like notes.txt or travel/paris.md: names without leading or trailing"
            f" dots and spaces, with at most {_DEEPEST - 1} directories."
        )


def _joined(pieces: Sequence[DocumentPiece]) -> str:
    """Return the text of a document, with its pages and headings between lines."""
    found = []
    for piece in pieces:
        if piece.text.strip():
            where = f"[page {piece.page}]" if piece.page else piece.heading
            found.append(f"{where}\n{piece.text.strip()}" if where else piece.text.strip())
    return "\n\n".join(found)
