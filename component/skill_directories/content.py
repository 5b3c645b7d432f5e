"""The directories of skills: their digests, the copies that run, and what is installed.

A digest covers every file that is copied, so nothing runs that was not hashed. What is hashed runs
from a copy under its digest in the data directory; changes of the directory never reach it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from component import system
from component.private import make_directory, open_private
from component.skill_directories.proposals import Proposal, read_proposal
from component.skills.errors import SkillLoadError, printable
from component.skills.manifest import FILE, Manifest, ManifestError, read_manifest

APPROVED: Final = "approved-skills"
"""The directory of approved content, in that of the storage."""
MOST_FILES: Final = 2_000
MOST_DIRECTORY_BYTES: Final = 256 * 1_048_576
_MOST_DEPTH: Final = 16
_LEFT_OUT: Final = frozenset(("__pycache__", "node_modules", "target", "tests"))
"""Directories that are not part of a skill, and neither is what begins with a dot."""
_CHUNK: Final = 1_048_576
_KEPT_S: Final = 7 * 86_400.0
PROPOSED_FILES: Final = ("skill.toml", "main.py", "tests/cases.toml")
"""The files of a proposal; it has no others."""
_MOST_SHOWN_BYTES: Final = 65_536


class SkillContent(msgspec.Struct, frozen=True):
    """A read directory: the digest of what would run, in hexadecimal, and its manifest."""

    digest: str
    manifest: Manifest
    text: str
    """The manifest as it is written."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    path: str
    executable: bool
    digest: str


def signature(directory: Path) -> int:
    """Return a number that changes when a file does. Blocks. Raises SkillLoadError."""
    found = sorted(
        (path, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        for path, _, info in _walk(directory)
    )
    return hash(tuple(found))


def read_content(directory: Path, into: Path | None = None) -> SkillContent:
    """Read a directory, and copy it to the new directory `into` while it is read.

    Blocks. Raises SkillLoadError, or ManifestError for an invalid manifest.
    """
    entries, size, text = list[_Entry](), 0, b""
    for path, descriptor, info in _walk(directory, opened=True):
        with os.fdopen(descriptor, "rb") as file:
            executable = bool(info.st_mode & stat.S_IXUSR)
            target = None if into is None else into / path
            digest, read = _copy(
                file, target, executable=executable, most=MOST_DIRECTORY_BYTES - size
            )
            size += read
            if path == FILE:
                file.seek(0)
                text = file.read()
            entries.append(_Entry(path, executable, digest))
    if not any(entry.path == FILE for entry in entries):
        raise SkillLoadError(f"{directory} has no {FILE}: write one, or remove the directory.")
    entries.sort(key=lambda entry: entry.path)
    whole = hashlib.sha256(b"skill directory 1\n" + msgspec.json.encode(entries)).hexdigest()
    manifest = read_manifest(text)
    names = {entry.path for entry in entries}
    runs = manifest.skill.execution
    needed = [path for path in (runs.entry, *manifest.schema_files) if path]
    if lacking := [path for path in needed if path not in names]:
        raise ManifestError(f"{FILE} names the file {lacking[0]!r}, which the directory lacks.")
    return SkillContent(whole, manifest, text.decode())


class ContentStore:
    """The copies that run, each in a directory that is named by its digest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    def add(self, directory: Path) -> SkillContent:
        """Copy a directory. Blocks. Raises SkillLoadError, ManifestError."""
        try:
            make_directory(self._directory)
            with tempfile.TemporaryDirectory(dir=self._directory, prefix="new-") as name:
                made = Path(name, "content")
                make_directory(made)
                content = read_content(directory, made)
                if not self.has(content.digest):
                    shutil.rmtree(self._directory / content.digest, ignore_errors=True)
                    made.rename(self._directory / content.digest)
                return content
        except OSError as error:
            raise _unreadable(directory, error) from error

    def names(self) -> frozenset[str]:
        """Return the digests of all copies. Blocks."""
        try:
            return frozenset(path.name for path in self._directory.iterdir())
        except OSError:
            return frozenset()

    def has(self, digest: str) -> bool:
        """Whether there is an unchanged copy. Blocks."""
        try:
            return read_content(self._directory / digest).digest == digest
        except (SkillLoadError, ManifestError):
            return False

    def path(self, digest: str) -> Path:
        """Return the directory of a copy."""
        return self._directory / digest

    def clean(self, needed: frozenset[str], dropped: frozenset[str]) -> None:
        """Delete the copies that are `dropped`, and all that were not `needed` for a week. Blocks.

        A database that does not know a copy is not a reason to delete it at once: it may be new, or
        an old one from a backup, and the right one follows.
        """
        now = system.time()
        for name in self.names():
            path = self._directory / name
            with suppress(OSError):
                if name in needed:
                    os.utime(path, (now, now))
                elif name in dropped or path.stat().st_mtime < now - _KEPT_S:
                    shutil.rmtree(path, ignore_errors=True)


def _walk(directory: Path, *, opened: bool = False) -> Iterator[tuple[str, int, os.stat_result]]:
    """Yield path, descriptor (-1 unless `opened`) and status of files. Raises SkillLoadError."""
    count = 0
    try:
        for folder, folders, names, at in os.fwalk(directory, onerror=_raise):
            inside = Path(folder).relative_to(directory)
            if len(inside.parts) > _MOST_DEPTH:
                raise SkillLoadError(f"{directory} has more than {_MOST_DEPTH} levels: flatten it.")
            folders[:] = sorted(
                each for each in folders if not each.startswith(".") and each not in _LEFT_OUT
            )
            for name in folders:
                if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    raise _is_link(directory, inside / name)
            for name in sorted(names):
                if name.startswith(".") or name.endswith((".pyc", "~")):
                    continue
                count += 1
                if count > MOST_FILES:
                    raise SkillLoadError(f"{directory} has more than {MOST_FILES} files.")
                yield _file(directory, inside / name, at, opened=opened)
    except OSError as error:
        raise _unreadable(directory, error) from error


def _file(directory: Path, path: Path, at: int, *, opened: bool) -> tuple[str, int, os.stat_result]:
    text = path.as_posix()
    if not text.isprintable() or "\\" in text:  # isprintable refuses half surrogates, too
        raise SkillLoadError(f"{directory} has a file with the name {text!a}: rename it.")
    info = os.stat(path.name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        raise _is_link(directory, path)
    if not stat.S_ISREG(info.st_mode):
        raise SkillLoadError(f"{directory} has {text!r}, which is not a file: remove it.")
    if not opened:
        return text, -1, info
    # It may have been replaced meanwhile: never follow a link, and never wait for a pipe.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path.name, flags, dir_fd=at)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise SkillLoadError(f"{directory} has {text!r}, which is not a file: remove it.")
    return text, descriptor, info


def _copy(file: IO[bytes], target: Path | None, *, executable: bool, most: int) -> tuple[str, int]:
    """Return digest and size of a file, and copy it if there is a target."""
    digest, size = hashlib.sha256(), 0
    copy = None
    if target is not None:
        make_directory(target.parent)
        copy = open_private(target, "wb")
    try:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise SkillLoadError(f"The directory has more than {MOST_DIRECTORY_BYTES} bytes.")
            digest.update(chunk)
            if copy is not None:
                copy.write(chunk)
    finally:
        if copy is not None:
            copy.close()
    if target is not None and executable:
        target.chmod(0o700)
    return digest.hexdigest(), size


def _raise(error: OSError) -> None:
    raise error


def _is_link(directory: Path, path: Path) -> SkillLoadError:
    return SkillLoadError(
        f"{directory} has the symbolic link {path.as_posix()!r}: put the file itself there."
    )


def _unreadable(directory: Path, error: OSError) -> SkillLoadError:
    with suppress(UnicodeError):
        return SkillLoadError(f"{directory} cannot be read: {error.strerror or error}.")
    return SkillLoadError(f"{directory} cannot be read.")


def source_of(directory: Path) -> str:
    """Return the files of a proposal as a text, with their names. Blocks. Raises OSError."""
    found = []
    for name in PROPOSED_FILES:
        path = directory / name
        if path.is_file():
            with path.open("rb") as file:
                text = file.read(_MOST_SHOWN_BYTES).decode(errors="replace")
            found.append(f"----- {name}\n{text.rstrip()}")
    return "\n".join(found)


class SkillDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """One installed directory.

    `content` is None for one that cannot be used, and `problem` says why. `signature` changes with
    its files. `proposal` is the record of one that was proposed, and None for others.
    """

    directory: Path
    signature: int
    content: SkillContent | None = None
    problem: str = ""
    proposal: Proposal | None = None

    @property
    def name(self) -> str:
        """The name of the skill; that of the directory if the manifest cannot be read."""
        if self.content is None:
            return printable(self.directory.name, 128)
        return self.content.manifest.skill.name


def read_roots(
    roots: Sequence[Path], before: Mapping[Path, SkillDirectory]
) -> tuple[Mapping[Path, SkillDirectory], Sequence[str]]:
    """Return what is installed in the roots, and which of the roots cannot be read, with reasons.

    A directory whose files have not changed is not read again. Blocks.
    """
    found: dict[Path, SkillDirectory] = {}
    problems: list[str] = []
    for root in roots:
        try:
            directories = installed(root)
        except OSError as error:
            problems.append(f"{root} cannot be read: {error.strerror or error}")
            continue
        for directory in directories:
            one = _look_at(directory, before.get(directory))
            if one is not None:
                found[directory] = one
    return found, problems


def installed(root: Path) -> Sequence[Path]:
    """Return the directories of a root that may be skills, or the root. Blocks. Raises OSError."""
    with os.scandir(root) as entries:
        names = {entry.name: entry.is_dir() for entry in entries if not entry.name.startswith(".")}
    if FILE in names:
        return [root]
    return [root / name for name in sorted(names) if names[name]]


def _look_at(directory: Path, before: SkillDirectory | None) -> SkillDirectory | None:
    """Look at one directory; None if it is not a skill."""
    mark = 0
    if directory.is_symlink():
        problem = f"{directory} is a symbolic link: name its target instead."
        return SkillDirectory(directory=directory, signature=mark, problem=problem)
    try:
        if not (directory / FILE).is_symlink() and not (directory / FILE).exists():
            return None
        mark = signature(directory)
        if before is not None and before.signature == mark:
            return before
        return SkillDirectory(
            directory=directory,
            signature=mark,
            content=read_content(directory),
            proposal=read_proposal(directory),
        )
    except OSError as error:
        problem = f"{directory} cannot be read: {error.strerror or error}."
    except (SkillLoadError, ManifestError) as error:
        problem = str(error)
    return SkillDirectory(directory=directory, signature=mark, problem=problem)
