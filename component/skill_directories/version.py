"""Versions of skills in directories: what runs them, their descriptions, and how they are called.

There is one runner for each kind of skill, imported when it is first used.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from component import system
from component.policy.flows import covers
from component.skill_directories.approvals import Approval
from component.skill_directories.content import ContentStore, SkillContent
from component.skills.context import Context
from component.skills.errors import DeclarationError, SkillLoadError, SkillUnavailable
from component.skills.inputs import Arguments, SchemaInputs, schema_inputs
from component.skills.manifest import FILE, Manifest, ManifestError
from component.skills.skill import Skill
from component.skills.spec import Schema, spec_fields, spec_json
from component.skills.validation import MOST_BYTES, SchemaValidator

if TYPE_CHECKING:
    from component.skill_directories.host_functions import Services

T = TypeVar("T")

TRUSTED_PYTHON = "trusted python"
"""The kind of a Python skill that runs inside the service."""
_RUNNERS: Final = {
    TRUSTED_PYTHON: ("python", "TrustedPython"),
    "python": ("confined", "ConfinedPython"),
    "wasm": ("webassembly", "WebAssembly"),
    "process": ("confined", "Programs"),
    "rest": ("rest", "RestRequests"),
    "plan": ("plans", "PlanSkills"),
}
"""The module and the class of the runner of each kind."""


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
    """Runs skills of one kind. `T` is what is kept of a content between its calls."""

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
    """The runners of all kinds, each made when it is first used."""

    def __init__(self, services: Services) -> None:
        self._services = services
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
        if kind not in _RUNNERS:
            raise SkillLoadError(f"This release cannot run skills of the kind {kind!r}.")
        module, name = _RUNNERS[kind]
        runner = getattr(importlib.import_module(f"{__package__}.{module}"), name)(self._services)
        assert isinstance(runner, SkillRunner), "they are"
        return runner

    def forget(self, digest: str) -> None:
        """Tell the runners that a content runs no longer."""
        for runner in self._made.values():
            runner.forget(digest)


async def describe_content(artefact: Artefact, runner: SkillRunner[Any]) -> str:
    """Return a skill's description, as JSON. Raises SkillLoadError, ManifestError."""
    said = dict(await runner.describe(artefact))
    schemas = await system.in_thread(_schemas, artefact)
    declared = artefact.manifest.skill.capabilities.texts
    missing = covers(declared, said.get("capabilities", ()))
    if missing is not None:
        raise SkillLoadError(f"its code uses the capability {missing}, which {FILE} lacks: add it.")
    fields: dict[str, Any] = {**said, **schemas}
    if "input_schema" not in fields:
        raise SkillLoadError(f"{FILE} lacks input_schema, and its code does not say it: add it.")
    try:
        schema_inputs(fields["input_schema"])
        if fields.get("output_schema") is not None:
            SchemaValidator(fields["output_schema"])
    except DeclarationError as error:
        raise SkillLoadError(str(error)) from error
    spec = artefact.manifest.spec(fields, artefact.name)
    return spec_json(spec)


def read_schema(artefact: Artefact, said: Schema | str) -> Schema:
    """Return a schema of a manifest, or of the file it names. Blocks. Raises SkillLoadError."""
    if not isinstance(said, str):
        return said
    try:
        text = (artefact.directory / said).read_bytes()
        if len(text) > MOST_BYTES:
            raise SkillLoadError(f"{said} has more than {MOST_BYTES} bytes.")
        return msgspec.json.decode(text, type=dict[str, Any])
    except (OSError, ValueError, RecursionError) as error:
        raise SkillLoadError(f"{said} is not a JSON Schema: {error}") from error


def _schemas(artefact: Artefact) -> dict[str, Schema]:
    said = artefact.manifest.skill
    named = {"input_schema": said.input_schema, "output_schema": said.output_schema}
    return {name: read_schema(artefact, one) for name, one in named.items() if one is not None}


async def new_approval(
    content: SkillContent, directory: Path, store: ContentStore, runners: Runners, *, trusted: bool
) -> Approval:
    """Return an approval of content in the store, by nobody yet. Raises as `describe_content`."""
    artefact = Artefact(
        directory=store.path(content.digest), digest=content.digest, manifest=content.manifest
    )
    runner = await runners.of(content.manifest, trusted=trusted)
    return Approval(
        name=artefact.name,
        digest=content.digest,
        directory=str(directory),
        text=content.text,
        description=await describe_content(artefact, runner),
        trusted=trusted,
    )


class Version:
    """One approved version.

    Attributes:
        skill: the skill for callers; until it is retired.

    Raises ValueError: another release wrote the description.
    """

    def __init__(self, approval: Approval, store: ContentStore, runners: Runners) -> None:
        self.approval = approval
        self._store = store
        self._runners = runners
        self._scopes: set[anyio.CancelScope] = set()
        self._revoked = False
        self._verified = False
        fields: Mapping[str, Any] = spec_fields(approval.description)
        self.skill = Skill(
            **fields,
            source=approval.directory,
            versioned_by_content=True,
            inputs=SchemaInputs(fields["input_schema"]),
            kind="async",
            wants_context=True,
            invoke=self._invoke,
            granted=self._granted,
        )

    @property
    def calls(self) -> int:
        """The number of calls under way."""
        return len(self._scopes)

    def revoke(self) -> None:
        """Stop all calls, and refuse those that have not begun."""
        self._revoked = True
        for scope in tuple(self._scopes):
            scope.cancel()

    def retire(self) -> None:
        """Hold on to the skill no longer: this object lives as long as callers have the skill."""
        del self.skill

    def _granted(self) -> tuple[str, ...]:
        if self._revoked:
            return ()
        return self.approval.capabilities.texts

    async def _invoke(self, arguments: Arguments, context: Context | None) -> Any:
        assert context is not None, "it wants a context"
        assert isinstance(arguments, dict), "its inputs are JSON"
        if self._revoked:
            raise self._was_revoked(begun=False)
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                artefact = await self._artefact()
                runner = await self._runner(artefact)
                limited = context.limited(artefact.manifest.skill.capabilities)
                return await runner.call(artefact, arguments, limited)
            finally:
                self._scopes.discard(scope)
        raise self._was_revoked(begun=True)

    async def _runner(self, artefact: Artefact) -> SkillRunner[Any]:
        try:
            return await self._runners.of(artefact.manifest, trusted=self.approval.trusted)
        except SkillLoadError as error:
            raise SkillUnavailable(
                f"{self.approval.name} cannot run: {error}", begun=False
            ) from error

    async def _artefact(self) -> Artefact:
        """Return what runs; its copy is verified once in each run of the service."""
        digest = self.approval.digest
        try:
            manifest = self.approval.manifest
        except ManifestError as error:
            raise SkillUnavailable(
                f"The manifest of {self.approval.name} has to be approved again: {error}",
                begun=False,
            ) from error
        if not self._verified:
            self._verified = await system.in_thread(self._store.has, digest)
        if not self._verified:
            raise SkillUnavailable(
                f"The approved files of {self.approval.name} are missing or were changed: an admin"
                " has to approve it again.",
                begun=False,
            )
        return Artefact(directory=self._store.path(digest), digest=digest, manifest=manifest)

    def _was_revoked(self, *, begun: bool) -> SkillUnavailable:
        name = self.approval.name
        return SkillUnavailable(f"The approval of the skill {name} was revoked.", begun=begun)


@asynccontextmanager
async def opened_skill(
    directory: Path, temporary: Path, services: Services, *, trusted: bool = False
) -> AsyncIterator[Skill]:
    """Yield the skill of a directory that nobody has approved, for its author and its tests, as the
    service runs it when it is approved. Nothing of it runs after the block.

    Args:
        temporary: a directory for its copy.
        services: what it may use of the service, as far as its manifest declares it.
        trusted: whether it runs without confinement.

    Raises SkillLoadError, ManifestError.
    """
    runners = Runners(services)
    store = ContentStore(temporary / "copies")
    content = await system.in_thread(store.add, directory)
    async with runners.opened():
        approval = await new_approval(content, directory, store, runners, trusted=trusted)
        yield Version(approval, store, runners).skill
