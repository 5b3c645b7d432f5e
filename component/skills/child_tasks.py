"""What a skill of the service itself does with its child tasks, beside what `Context` offers every
skill: it judges them before they are started, says on which terms they are, and waits for any one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from component.skills.operations import (
    AskConfirmation,
    Children,
    ChildTerms,
    Commit,
    Confirmed,
    Host,
    Judged,
    JudgeTask,
    ReadChildren,
    ReportProgress,
    StartTask,
    WaitForEvent,
)


class ChildTasks:
    """The child tasks of one call. The messages that it sends are documented where they are
    declared (`component.skills.operations`).
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    async def judge(
        self,
        skill: str,
        params: Mapping[str, Any] | None,
        terms: ChildTerms,
        unfilled: Sequence[str] = (),
    ) -> Judged:
        """Return what would become of a child task; with None, of one with any parameters."""
        given = b"" if params is None else _encode(params)
        asked = JudgeTask(skill, given, tuple(unfilled))
        judged: Judged = await self._host.perform(asked, terms)
        return judged

    async def start(
        self, skill: str, params: Mapping[str, Any], key: str, terms: ChildTerms
    ) -> str:
        """Start a child task, once for a key, and return its id. Raises SkillError: it must not be
        started, or not with these parameters.
        """
        task: str = await self._host.perform(StartTask(skill, _encode(params), 0.0, key), terms)
        return task

    async def present(self, tasks: Sequence[str]) -> Children:
        """Return how child tasks stand."""
        found: Children = await self._host.perform(ReadChildren(tuple(tasks)))
        return found

    async def confirm(
        self, skill: str, params: Mapping[str, Any], key: str, *, misled: bool = False
    ) -> Confirmed:
        """Ask for a confirmation. Raises SkillError if nobody can give it."""
        asked = AskConfirmation(skill, _encode(params), key, misled)
        return msgspec.json.decode(await self._host.perform(asked), type=Confirmed)

    async def record(self, op: Callable[[Any], Any], record: Commit) -> Any:
        """Change the database in a commit of the task, and return what `op` returns."""
        return await self._host.perform(record, op)

    async def wait_for_any(
        self,
        tasks: Sequence[str],
        event: str,
        is_pending: Callable[[Any], bool],
        plan: str | None = None,
        progress: ReportProgress | None = None,
    ) -> NoReturn:
        """Leave the skill until one of these tasks has ended or an event has happened."""
        await self._host.perform(WaitForEvent(event, tuple(tasks), plan, progress), is_pending)
        raise AssertionError("The function is left before.")


def _encode(values: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(values, order="deterministic")
