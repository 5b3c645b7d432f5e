"""Looks at the configured directories: which skills are installed there, and what changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from component.skill_directories.content import Content, read_content, signature
from component.skill_directories.proposal import Proposal, read_proposal
from component.skills.errors import SkillLoadError, printable
from component.skills.manifest import FILE, ManifestError


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One installed directory.

    `content` is None for one that cannot be used, and `problem` says why. `signature` changes with
    its files. `proposal` is the record of one that was proposed, and None for others.
    """

    directory: Path
    signature: int
    content: Content | None = None
    problem: str = ""
    proposal: Proposal | None = None

    @property
    def name(self) -> str:
        """The name of the skill; that of the directory if the manifest cannot be read."""
        if self.content is None:
            return printable(self.directory.name, 128)
        return self.content.manifest.skill.name


def look(
    roots: Sequence[Path], before: Mapping[Path, Found]
) -> tuple[Mapping[Path, Found], Sequence[str]]:
    """Return what is installed in the roots, and which of the roots cannot be read, with reasons.

    A directory whose files have not changed is not read again. Blocks.
    """
    found: dict[Path, Found] = {}
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
    """Return the directories of a root that may be skills, in order, or the root if it is one.

    Blocks. Raises OSError.
    """
    with os.scandir(root) as entries:
        names = {entry.name: entry.is_dir() for entry in entries if not entry.name.startswith(".")}
    if FILE in names:
        return [root]
    return [root / name for name in sorted(names) if names[name]]


def _look_at(directory: Path, before: Found | None) -> Found | None:
    """Look at one directory; None if it is not a skill."""
    mark = 0
    if directory.is_symlink():
        problem = f"{directory} is a symbolic link: name its target instead."
        return Found(directory=directory, signature=mark, problem=problem)
    try:
        if not (directory / FILE).is_symlink() and not (directory / FILE).exists():
            return None
        mark = signature(directory)
        if before is not None and before.signature == mark:
            return before
        return Found(
            directory=directory,
            signature=mark,
            content=read_content(directory),
            proposal=read_proposal(directory),
        )
    except OSError as error:
        problem = f"{directory} cannot be read: {error.strerror or error}."
    except (SkillLoadError, ManifestError) as error:
        problem = str(error)
    return Found(directory=directory, signature=mark, problem=problem)
