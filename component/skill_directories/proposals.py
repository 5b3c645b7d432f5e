"""Proposals of skills and of personas: their directories, and what is recorded about each."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from component.policy.flows import TRUSTED
from component.policy.taint import Taint
from component.private import make_directory, open_private
from component.skills.errors import SkillLoadError
from component.store.directory import sync_directory

RECORD_FILE: Final = ".proposal.json"
"""What is recorded about a proposal. The name begins with a dot, so the file is not part of what an
admin approves."""
PERSONA: Final = "persona:"
"""The names of proposed personas begin with this, and then have the id; no skill has such a name.
"""
PERSONA_FILE: Final = "persona.toml"
"""The file of a proposed persona; it has no others."""
WrittenBy: TypeAlias = Literal["model", "caller"]
_MOST_RECORD_BYTES: Final = 65_536
_NEW: Final = ".new-"
_OLD: Final = ".old-"


class AnsweredPrompt(msgspec.Struct, frozen=True):
    """A message with which a persona was tried, its answer, and the tools that it has called."""

    prompt: str
    answer: str
    used: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return all of it for people."""
        used = f" (used {', '.join(self.used)})" if self.used else ""
        return f"  {self.prompt!r} was answered{used}: {self.answer!r}"


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Who has proposed a skill or a persona, and how it was tested.

    Attributes:
        agent: the agent that was asked, or whose model did it.
        written_by: whether the model of the service wrote it for this proposal, or the caller, a
            person or the model of an agent, passed it.
        proposed_at: milliseconds since 1970.
        digest: of the content that was tested.
        tests: the names of the tests of a skill.
        answers: how a persona was tried.
        cost: what the model of a persona costs, for people.
    """

    principal: str
    agent: str = ""
    description: str = ""
    written_by: WrittenBy = "caller"
    taints: tuple[Taint, ...] = ()
    proposed_at: int = 0
    digest: str = ""
    tests: tuple[str, ...] = ()
    answers: tuple[AnsweredPrompt, ...] = ()
    cost: str = ""

    @property
    def untrusted_sources(self) -> tuple[str, ...]:
        """The sources that are not trusted."""
        return tuple(sorted(set(self.taints) - TRUSTED))

    def sentences(self, digest: str) -> tuple[str, ...]:
        """Return what an admin has to know; `digest` is that of the present content."""
        when = datetime.fromtimestamp(self.proposed_at / 1000, UTC)
        author = "the model of the service" if self.written_by == "model" else "the caller"
        found = [
            f"Proposed by {self.principal} on {when:%Y-%m-%d %H:%M} UTC, written by {author}.",
            f"It should: {self.description}",
        ]
        if sources := ", ".join(self.untrusted_sources):
            found.append(
                f"WARNING: the model had read texts of strangers ({sources}) when it proposed this."
            )
        if self.cost:
            found.append(f"Costs: {self.cost}.")
        if digest != self.digest:
            found.append("WARNING: its files were changed after its tests.")
        elif self.answers:
            found.append("It was tried, and could only read:")
            found += [each.sentence() for each in self.answers]
        else:
            tests = "; ".join(self.tests)
            found.append(f"{len(self.tests)} tests passed, confined and without a network: {tests}")
        return tuple(found)


def read_proposal(directory: Path) -> Proposal | None:
    """Return a proposal's record; None if it is none. Blocks. Raises SkillLoadError, OSError."""
    path = directory / RECORD_FILE
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_RECORD_BYTES + 1)
        return msgspec.json.decode(text, type=Proposal)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SkillLoadError(f"{path} cannot be read: {error}") from error


def persona_digest(text: str) -> str:
    """Return the digest of the file of a proposed persona."""
    return hashlib.sha256(text.encode()).hexdigest()


class PackageFolder:
    """Directories of files, each of which is replaced as a whole. Methods block; they raise
    OSError.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    def path(self, name: str) -> Path:
        """Return the directory with a name."""
        return self._directory / name

    def recover(self) -> None:
        """Make the directory, and complete or undo what an interrupted change has left."""
        make_directory(self._directory)
        for entry in list(self._directory.iterdir()):
            if entry.name.startswith(_OLD) and not self.path(entry.name[len(_OLD) :]).exists():
                entry.rename(self.path(entry.name[len(_OLD) :]))
            elif entry.name.startswith((_NEW, _OLD)):
                shutil.rmtree(entry, ignore_errors=True)

    def names(self) -> frozenset[str]:
        """Return the names of all directories; none if the folder does not exist."""
        try:
            return frozenset(
                entry.name
                for entry in self._directory.iterdir()
                if not entry.name.startswith(".") and entry.is_dir()
            )
        except FileNotFoundError:
            return frozenset()

    def put(self, name: str, files: Mapping[str, str]) -> None:
        """Write a directory, in place of one of the same name; it is on disk afterwards."""
        make_directory(self._directory)
        made = Path(tempfile.mkdtemp(dir=self._directory, prefix=_NEW))
        try:
            write_files(made, files)
            target, old = self.path(name), self.path(_OLD + name)
            if target.exists():
                target.rename(old)
            made.rename(target)
            sync_directory(self._directory)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise

    def remove(self, name: str) -> None:
        """Delete a directory; what an interruption leaves of it is deleted by `recover`."""
        gone = self.path(_NEW + name)
        self.path(name).rename(gone)
        sync_directory(self._directory)
        shutil.rmtree(gone)


class ProposalFolder(PackageFolder):
    """The directory of proposals, by their names."""

    def all(self) -> Mapping[str, Proposal]:
        """Return the records of all proposals, by their names. Blocks. Raises OSError."""
        found = {}
        for name in self.names():
            try:
                proposal = read_proposal(self.path(name))
            except SkillLoadError:
                proposal = None
            found[name] = proposal or Proposal(principal="")
        return found

    def propose(self, name: str, files: Mapping[str, str], proposal: Proposal) -> None:
        """Write a proposal, in place of one of the same name; it is on disk afterwards."""
        self.put(name, {**files, RECORD_FILE: msgspec.json.encode(proposal).decode()})


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write files, which only their owner may read. Blocks. Raises OSError."""
    for name, text in files.items():
        path = directory / name
        make_directory(path.parent)
        with open_private(path, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
