"""Skills that somebody has proposed: what is recorded about a proposal, in a file of its directory.

The name of the file begins with a dot, so it is not part of what an admin approves.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from component.policy.flows import TRUSTED
from component.policy.taint import Taint
from component.skills.errors import SkillLoadError

RECORD_FILE: Final = ".proposal.json"
PROPOSED_FILES: Final = ("skill.toml", "main.py", "tests/cases.toml")
"""The files of a proposal; it has no others."""
WrittenBy: TypeAlias = Literal["model", "caller"]
_MOST_BYTES: Final = 65_536


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Who has proposed a skill, and how it was tested.

    Attributes:
        principal: the bare JID of who proposed it.
        agent: the agent that was asked, or whose model did it.
        description: what was asked for.
        written_by: whether the model of the service wrote it for this proposal, or the caller, a
            person or the model of an agent, passed it.
        taints: the sources of the texts that the model had read.
        proposed_at: milliseconds since 1970.
        digest: of the content that was tested.
        tests: the names of its tests, which have passed.
    """

    principal: str
    agent: str = ""
    description: str = ""
    written_by: WrittenBy = "caller"
    taints: tuple[Taint, ...] = ()
    proposed_at: int = 0
    digest: str = ""
    tests: tuple[str, ...] = ()

    @property
    def strangers(self) -> tuple[str, ...]:
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
        if self.strangers:
            found.append(
                f"WARNING: the model had read texts of strangers ({', '.join(self.strangers)})"
                " when it proposed this."
            )
        found.append(
            f"{len(self.tests)} tests passed, confined and without a network: "
            + "; ".join(self.tests)
            if digest == self.digest
            else "WARNING: its files were changed after its tests."
        )
        return tuple(found)


def read_proposal(directory: Path) -> Proposal | None:
    """Return the record of a proposal; None for another directory. Blocks.

    Raises SkillLoadError, OSError.
    """
    path = directory / RECORD_FILE
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        return msgspec.json.decode(text, type=Proposal)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SkillLoadError(f"{path} cannot be read: {error}") from error


def source_of(directory: Path) -> str:
    """Return the files of a proposal as a text, with their names. Blocks. Raises OSError."""
    found = []
    for name in PROPOSED_FILES:
        path = directory / name
        if path.is_file():
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
            found.append(f"----- {name}\n{text.rstrip()}")
    return "\n".join(found)
