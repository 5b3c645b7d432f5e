"""Runs the tests of a proposal: confined, with servers, model and memories that are the tests'."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio

from component import system
from component.features.proposals.draft import Checked, DraftError
from component.features.proposals.folder import write_files
from component.sandbox.http_script import ScriptedNetwork
from component.skill_directories import tables as directory_tables
from component.skill_directories.cases import run_case
from component.skill_directories.content import read_content
from component.skill_directories.host_functions import Services
from component.skill_directories.trial import opened_skill
from component.skills.errors import SkillLoadError, SkillUnavailable, printable
from component.skills.manifest import ManifestError
from component.storage import Storage
from component.storage import tables as storage_tables
from component.storage.schema import Schema

CASE_S: Final = 10.0
"""Seconds for one test."""
ALL_S: Final = 60.0
"""Seconds for everything: loading the code, and all tests."""
_LONGEST_PROBLEM: Final = 600
_MOST_PROBLEMS: Final = 5


_SCHEMA: Final = Schema((*storage_tables.TABLES, *directory_tables.TABLES))
"""The tables that the functions of skills use."""


async def try_out(checked: Checked) -> str:
    """Run the tests of a proposal, and return the digest of its content.

    Nothing is approved, so nothing real is used: requests are answered by the tests, there are no
    credentials, the model's answers are in the tests, and memories are deleted afterwards.

    Raises DraftError: it cannot be loaded, or a test fails.
    """
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-proposal-") as name:
        temporary = Path(name)
        directory = temporary / "skill"
        await system.in_thread(write_files, directory, checked.draft.files())
        with anyio.move_on_after(ALL_S):
            try:
                async with AsyncExitStack() as stack:
                    storage = None
                    said = checked.manifest.skill.capabilities
                    if said.memory_read or said.memory_write:
                        storage = await stack.enter_async_context(
                            Storage.open(_SCHEMA, temporary / "data")
                        )
                    await _run(checked, directory, storage)
            except (SkillLoadError, ManifestError, SkillUnavailable) as error:
                raise DraftError(_shown(str(error))) from error
            return (await system.in_thread(read_content, directory)).digest
    raise DraftError(f"Its tests take more than {ALL_S:g} seconds.")


async def _run(checked: Checked, directory: Path, storage: Storage | None) -> None:
    network = ScriptedNetwork()
    services = Services(storage=storage, gates=network.gate)
    async with opened_skill(directory, directory.parent, services) as skill:
        problems = []
        for case in checked.cases:
            problem = f"it takes more than {CASE_S:g} seconds"
            with anyio.move_on_after(CASE_S):
                problem = (await run_case(skill, case, network)).problem
            if problem:
                problems.append(f"- {printable(case.name, 100)}: {_shown(problem)}")
    if problems:
        shown = "\n".join(problems[:_MOST_PROBLEMS])
        raise DraftError(f"{len(problems)} of {len(checked.cases)} tests fail:\n{shown}")


def _shown(text: str) -> str:
    return printable(" ".join(text.split()), _LONGEST_PROBLEM)
