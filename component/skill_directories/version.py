"""One approved version of a skill: how it is called, and how its calls are stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from component import system
from component.skill_directories.approvals import Approval
from component.skill_directories.content import ContentStore
from component.skill_directories.runners import Artefact, Runner, Runners
from component.skills.capabilities import Capabilities
from component.skills.context import Context
from component.skills.description import read
from component.skills.errors import CapabilityMissing, SkillLoadError, SkillUnavailable
from component.skills.inputs import Arguments
from component.skills.later_inputs import later_inputs
from component.skills.manifest import ManifestError
from component.skills.skill import Skill


class ApprovedContext(Context):
    """The context of a call, limited to the approved capabilities."""

    __slots__ = ("_capabilities",)

    def __init__(self, context: Context, capabilities: Capabilities) -> None:
        """Limit a context."""
        for name in Context.__slots__:
            setattr(self, name, getattr(context, name))
        self._capabilities = capabilities
        if capabilities.llm is not None and capabilities.llm.model is not None:
            self._model = capabilities.llm.model

    async def llm(
        self,
        prompt: str,
        schema: Any,
        *,
        max_tokens: int = 1024,
        key: str | int | None = None,
    ) -> Any:
        """See `Context.llm`. Raises CapabilityMissing for a longer answer than is approved."""
        allowed = self._capabilities.llm
        if allowed is None:
            raise CapabilityMissing(self.skill, "llm")
        if max_tokens > allowed.max_tokens:
            raise CapabilityMissing(self.skill, f"llm with {max_tokens} tokens")
        return await super().llm(prompt, schema, max_tokens=max_tokens, key=key)


class Version:
    """One approved version.

    Args:
        approval: what was approved.
        store: has its content.
        runners: run it.

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
        fields: Mapping[str, Any] = read(approval.description)
        self.skill = Skill(
            **fields,
            source=approval.directory,
            versioned_by_content=True,
            inputs=later_inputs(fields["input_schema"]),
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
                limited = ApprovedContext(context, artefact.manifest.skill.capabilities)
                return await runner.call(artefact, arguments, limited)
            finally:
                self._scopes.discard(scope)
        raise self._was_revoked(begun=True)

    async def _runner(self, artefact: Artefact) -> Runner:
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
