"""Where skills come from, and how those of one source change while calls are under way.

A call keeps the skill that it began with. Later calls get the skill that the source offers then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component import system
from component.skills.errors import DuplicateSkillError, SkillLoadError
from component.skills.registry import Entry, Registry

_log = structlog.get_logger("component.skills")

START_S: Final = 10.0
"""Seconds for which the start of the service waits for a source."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0


class Offer(Protocol):
    """Offers the skills of a source."""

    def __call__(self, skills: Sequence[Entry], part: str = "") -> Sequence[DuplicateSkillError]:
        """Make these the skills of the source, or of a part of it, in place of those that it
        offered before. Returns an error for each skill that is not offered because another source
        has one of its name.
        """


class SkillSource(Protocol):
    """A source of skills."""

    name: str

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer skills, and offer them anew when they change, until cancelled.

        It calls `task_status.started` after its first offer. A source that cannot load a skill
        keeps the version that it offered before, and logs why. Raises SkillLoadError when it cannot
        work now: its skills stay as they are, and it is run again later.
        """


class FromSettings:
    """The base of sources that have no state: those of the same settings are equal."""

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is of this class, and has the same settings."""
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # settings are not hashable


class ExtraSource(FromSettings):
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


class _Running:
    """A source that runs. `offered` is set at its first offer, or when it has failed."""

    def __init__(self, source: SkillSource) -> None:
        self.source = source
        self.scope = anyio.CancelScope()
        self.offered = anyio.Event()
        self.ended = anyio.Event()


class SkillSources:
    """Runs the sources of a service.

    Args:
        sources: the sources; each has another name.
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
        self._running = {source.name: _Running(source) for source in sources}
        self._group: TaskGroup | None = None
        self._start_s = start_s
        self._offered = offered
        self._late = dict.fromkeys(source.name for source in sources)
        self.failures: dict[str, str] = {}
        self._parts: dict[str, set[str]] = {}
        """The parts of each source that have skills."""
        self._refused: set[tuple[str, str]] = set()
        """Sources and skills that are not offered, each logged once."""

    def late(self) -> Sequence[str]:
        """Return the names of the sources that have not offered any skills yet."""
        return tuple(self._late)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run all sources until cancelled. It has started when each has made its first offer or
        has failed, or after some seconds.
        """
        async with anyio.create_task_group() as self._group:
            await self._start(tuple(self._running.values()))
            task_status.started()
            await anyio.sleep_forever()

    async def replace(self, sources: Sequence[SkillSource]) -> None:
        """Run these sources in place of those before; one that is equal to one of them continues.

        The skills of a source whose name is not there any more are no longer offered. Those of
        another one stay until its successor offers its own. Returns when each that is new has made
        its first offer or has failed, or after some seconds.
        """
        wanted = {source.name: source for source in sources}
        for name, running in tuple(self._running.items()):
            if name in wanted and wanted[name] == running.source:
                continue
            running.scope.cancel()
            await running.ended.wait()
            del self._running[name]
            if name not in wanted:
                for part in sorted(self._parts.pop(name, ())):
                    self._offer(name, (), part)
        new = [_Running(wanted[name]) for name in wanted if name not in self._running]
        self._running.update((each.source.name, each) for each in new)
        self._late.update(dict.fromkeys(each.source.name for each in new))
        await self._start(new)

    async def _start(self, running: Sequence[_Running]) -> None:
        assert self._group is not None, "it runs"
        for each in running:
            self._group.start_soon(self._run, each)
        seconds = START_S if self._start_s is None else self._start_s
        with anyio.move_on_after(seconds) as timeout:
            for each in running:
                await each.offered.wait()
        if timeout.cancelled_caught:
            late = [each.source.name for each in running if not each.offered.is_set()]
            _log.warning("sources of skills are not ready yet", sources=late)

    async def _run(self, running: _Running) -> None:
        try:
            with running.scope:
                await self._keep_running(running.source, running.offered)
        finally:
            running.ended.set()

    async def _keep_running(self, source: SkillSource, offered: anyio.Event) -> None:
        wait = _FIRST_WAIT_S
        while True:
            began = anyio.current_time()
            try:
                offer = partial(self._offer, source.name)
                await source.run(offer, task_status=_Started(offered))
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

    def _offer(
        self, name: str, skills: Sequence[Entry], part: str = ""
    ) -> Sequence[DuplicateSkillError]:
        self._late.pop(name, None)
        self.failures.pop(name, None)
        (set.add if skills else set.discard)(self._parts.setdefault(name, set()), part)
        source = f"{name}.{part}" if part else name
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
