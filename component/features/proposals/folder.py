"""The directory of the proposals. Each is a directory with the name of its skill."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from component.private import make_directory, open_private
from component.skill_directories.proposal import FILE, Proposal, read_proposal
from component.skills.errors import SkillLoadError

_NEW: Final = ".new-"
_OLD: Final = ".old-"


class ProposalFolder:
    """The proposals. Methods block and raise OSError.

    Args:
        directory: where they are; made when it is needed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().absolute()

    def path(self, name: str) -> Path:
        """Return the directory of a proposal."""
        return self._directory / name

    def recover(self) -> None:
        """Make the directory, and complete or undo what an interrupted change has left."""
        make_directory(self._directory)
        for entry in list(self._directory.iterdir()):
            if entry.name.startswith(_OLD) and not self.path(entry.name[len(_OLD) :]).exists():
                entry.rename(self.path(entry.name[len(_OLD) :]))
            elif entry.name.startswith((_NEW, _OLD)):
                shutil.rmtree(entry, ignore_errors=True)

    def all(self) -> Mapping[str, Proposal]:
        """Return the records of all proposals, by the names of the skills."""
        found = {}
        for entry in self._directory.iterdir():
            if entry.name.startswith("."):
                continue
            try:
                proposal = read_proposal(entry)
            except (SkillLoadError, NotADirectoryError):
                proposal = None
            found[entry.name] = proposal or Proposal(principal="")
        return found

    def put(self, name: str, files: Mapping[str, str], proposal: Proposal) -> None:
        """Write a proposal, in place of one of the same name; it is on disk afterwards."""
        make_directory(self._directory)
        made = Path(tempfile.mkdtemp(dir=self._directory, prefix=_NEW))
        try:
            record = msgspec.json.encode(proposal).decode()
            write_files(made, {**files, FILE: record})
            target, old = self.path(name), self.path(_OLD + name)
            if target.exists():
                target.rename(old)
            made.rename(target)
            _sync(self._directory)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files of a skill, which only their owner may read. Blocks. Raises OSError."""
    for name, text in files.items():
        path = directory / name
        make_directory(path.parent)
        with open_private(path, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    """Have the names in a directory survive a failure of the machine."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
