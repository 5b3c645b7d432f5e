"""The host functions of skills that declare nothing."""

from __future__ import annotations

import structlog

from component.skills.context import Context
from component.skills.host import HostFunctions, LogLevel
from component.skills.operations import ReportProgress

_log = structlog.get_logger("component.sandbox")


class _Log:
    def __init__(self, skill: str) -> None:
        self._skill = skill

    def __call__(self, level: LogLevel, text: str) -> None:
        getattr(_log, level)("a skill logs", skill=self._skill, text=text)


def plain_functions(context: Context) -> HostFunctions:
    """Return the host functions that need no capability: progress, and the log."""

    async def report(progress: ReportProgress) -> None:
        await context.progress(progress.fraction, progress.text)

    return HostFunctions(context.skill, _Log(context.skill), {ReportProgress: report})
