"""What runs the skills of directories: one runner for each kind, imported when it is first used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from component.skills.context import Context
from component.skills.errors import SkillLoadError
from component.skills.manifest import Manifest

if TYPE_CHECKING:
    from component.skill_directories.host_functions import Services

T = TypeVar("T")

TRUSTED_PYTHON = "trusted python"
"""The kind of a Python skill that runs inside the service."""


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """Content that runs.

    Attributes:
        directory: a copy that nobody changes, which belongs to the service.
        digest: identifies the content; another content has another digest and another directory.
    """

    directory: Path
    digest: str
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name of the skill."""
        return self.manifest.skill.name

    @property
    def entry(self) -> Path:
        """The file that runs."""
        return self.directory / self.manifest.skill.execution.entry


class SkillRunner(ABC, Generic[T]):
    """Runs skills of one kind, several calls at a time.

    `T` is what is kept of a content between its calls.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loaded: dict[str, T] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep what the calls need until cancelled. Calls end with their callers."""
        task_status.started()
        await anyio.sleep_forever()

    @abstractmethod
    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """Load a skill, and return what its code says of it: fields of `SkillSpec`, with its
        schemas if the manifest has none. Raises SkillLoadError.
        """

    @abstractmethod
    async def call(self, artefact: Artefact, arguments: dict[str, Any], context: Context) -> Any:
        """Run a skill, and return what a skill returns.

        It uses nothing that the capabilities of the manifest do not name. Cancelling stops the
        skill. Raises the errors of `component.skills.calling.call`, which also limits the time.
        """

    def forget(self, digest: str) -> None:
        """Release what is kept of a content that runs no longer. Calls under way keep it."""
        self._loaded.pop(digest, None)

    @abstractmethod
    async def _load(self, artefact: Artefact) -> T:
        """Make what is kept of a content."""

    async def _of(self, artefact: Artefact) -> T:
        found = self._loaded.get(artefact.digest)
        if found is None:
            found = self._loaded[artefact.digest] = await self._load(artefact)
        return found


class Runners:
    """The runners of all kinds, each made when it is first used.

    Args:
        cache: the directory of compiled WebAssembly; None compiles it in every process.
    """

    def __init__(self, services: Services, cache: Path | None = None) -> None:
        self._services = services
        self._cache = cache
        self._made: dict[str, SkillRunner[Any]] = {}
        self._making = anyio.Lock()
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Let runners run until the block ends."""
        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again outside the group
                failed = error
            finally:
                self._group = None
                self._made.clear()
                group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def of(self, manifest: Manifest, *, trusted: bool) -> SkillRunner[Any]:
        """Return what runs a skill. Raises SkillLoadError if nothing can."""
        kind: str = manifest.skill.execution.kind
        if trusted and kind != "python":
            raise SkillLoadError(f"Only Python skills can be trusted; this one is of kind {kind}.")
        wanted = TRUSTED_PYTHON if trusted else kind
        found = self._made.get(wanted)
        if found is None:
            async with self._making:
                found = self._made.get(wanted) or await self._start(wanted)
        return found

    async def _start(self, kind: str) -> SkillRunner[Any]:
        if self._group is None:
            raise SkillLoadError("The service is stopping.")
        runner = self.make(kind)
        await self._group.start(runner.run)
        self._made[kind] = runner
        return runner

    def make(self, kind: str) -> SkillRunner[Any]:
        """Make the runner of a kind. Raises SkillLoadError if it cannot run here."""
        match kind:
            case "trusted python":
                from component.skill_directories.python import TrustedPython  # noqa: PLC0415

                return TrustedPython(self._services)
            case "python":
                from component.skill_directories.confined import ConfinedPython  # noqa: PLC0415

                return ConfinedPython(self._services)
            case "wasm":
                from component.skill_directories.webassembly import WebAssembly  # noqa: PLC0415

                return WebAssembly(self._services, self._cache)
            case "process":
                from component.skill_directories.confined import Programs  # noqa: PLC0415

                return Programs(self._services)
            case "rest":
                from component.skill_directories.rest import RestRequests  # noqa: PLC0415

                return RestRequests(self._services)
        raise SkillLoadError(f"This release cannot run skills of the kind {kind!r}.")

    def forget(self, digest: str) -> None:
        """Tell the runners that a content runs no longer."""
        for runner in self._made.values():
            runner.forget(digest)
