"""Where skills come from, and how those of one source change while calls are under way.

A call keeps the skill that it began with. Later calls get the skill that the source offers then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.skills.errors import DuplicateSkillError, SkillLoadError
from component.skills.registry import Registry
from component.skills.skill import Skill

_log = structlog.get_logger("component.skills")

START_S: Final = 10.0
"""Seconds for which the start of the service waits for a source."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0

Offer: TypeAlias = Callable[[Sequence[Skill]], Sequence[DuplicateSkillError]]
"""Makes these the skills of a source, in place of those that it offered before. Returns an error
for each skill that is not offered because another source has one of its name."""


class SkillSource(Protocol):
    """A source of skills."""

    name: str

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer skills, and offer them anew when they change, until cancelled.

        It calls `task_status.started` after its first offer. A source that cannot load a skill
        keeps the version that it offered before, and logs why. Raises SkillLoadError when it cannot
        work now: its skills stay as they are, and it is run again later.
        """


class ExtraSource:
    """A source whose libraries an extra installs. Importing them takes a second, in which the event
    loop has other work; so they are imported when it runs.

    Args:
        module: has a class `Serving`, whose `run` offers the skills.
        missing: says, in a sentence, which extra is needed.
        arguments: of the class.
    """

    def __init__(self, name: str, module: str, missing: str, *arguments: object) -> None:
        self.name = name
        self._module = module
        self._missing = missing
        self._arguments = arguments

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer skills until cancelled. While what offers them is down, they stay, and a call fails
        at once. Raises SkillLoadError if the extra is not installed.
        """
        try:
            module = await system.in_thread(importlib.import_module, self._module)
        except ImportError as error:
            raise SkillLoadError(self._missing) from error
        await module.Serving(*self._arguments).run(offer, task_status)


class SkillSources:
    """Runs the sources of a service.

    Args:
        start_s: seconds for which the start waits for them; `START_S` if None.
        offered: called after each offer of a source, even if it changes nothing. Must not wait.

    Attributes:
        failures: why sources have failed that have not offered any skills yet.
    """

    def __init__(
        self,
        registry: Registry,
        sources: Sequence[SkillSource],
        *,
        start_s: float | None = None,
        offered: Callable[[], None] = lambda: None,
    ) -> None:
        self._registry = registry
        self._sources = sources
        self._start_s = start_s
        self._offered = offered
        self._late = dict.fromkeys(source.name for source in sources)
        self.failures: dict[str, str] = {}
        self._refused: set[tuple[str, str]] = set()
        """Sources and skills that are not offered, each logged once."""

    def late(self) -> Sequence[str]:
        """Return the names of the sources that have not offered any skills yet."""
        return tuple(self._late)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run all sources until cancelled. It has started when each has made its first offer or
        has failed, or after some seconds.
        """
        async with anyio.create_task_group() as group:
            waiting = [anyio.Event() for _ in self._sources]
            for source, offered in zip(self._sources, waiting, strict=True):
                group.start_soon(self._keep_running, source, offered)
            seconds = START_S if self._start_s is None else self._start_s
            with anyio.move_on_after(seconds) as timeout:
                for offered in waiting:
                    await offered.wait()
            if timeout.cancelled_caught:
                late = [
                    source.name
                    for source, offered in zip(self._sources, waiting, strict=True)
                    if not offered.is_set()
                ]
                _log.warning("sources of skills are not ready yet", sources=late)
            task_status.started()

    async def _keep_running(self, source: SkillSource, offered: anyio.Event) -> None:
        wait = _FIRST_WAIT_S
        while True:
            began = anyio.current_time()
            try:
                await source.run(
                    lambda skills: self._offer(source.name, skills), task_status=_Started(offered)
                )
            except SkillLoadError as error:
                self.failures[source.name] = str(error)
                _log.warning("a source of skills failed", source=source.name, reason=str(error))
            except Exception:  # noqa: BLE001 - a fault in one source must not end the service
                _log.exception("a source of skills failed", source=source.name)
            else:
                return
            offered.set()
            if anyio.current_time() - began > _LONGEST_WAIT_S:
                wait = _FIRST_WAIT_S
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)

    def _offer(self, source: str, skills: Sequence[Skill]) -> Sequence[DuplicateSkillError]:
        self._late.pop(source, None)
        self.failures.pop(source, None)
        refused = self._registry.offer(source, skills)
        self._offered()
        for each in refused:
            if (source, each.skill) not in self._refused:
                _log.warning("a skill is not offered", source=source, reason=str(each))
        self._refused -= {one for one in self._refused if one[0] == source}
        self._refused |= {(source, each.skill) for each in refused}
        return refused


class _Started(TaskStatus[None]):
    """Sets an event when a source has started; it may start several times."""

    def __init__(self, event: anyio.Event) -> None:
        self._event = event

    def started(self, value: None = None) -> None:
        self._event.set()
