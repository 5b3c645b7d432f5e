"""Runs sources of MCP servers for tests, and calls their skills."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.features.mcp.feature import mcp_source
from component.features.mcp.settings import McpServer
from component.skills import (
    Context,
    Denied,
    Registry,
    Skill,
    SkillResult,
    SkillUnavailable,
    UsageError,
    call,
    prepare,
    sources,
)
from component.skills.calling import Threads
from component.skills.operations import (
    AskModel,
    AskPrincipal,
    PartialHost,
    ReportProgress,
    RunStep,
)
from component.skills.sources import SkillSources

SCRIPTED = Path(__file__).with_name("scripted.py")
ANN = "ann@a.example"
BOB = "bob@b.example"
_PAUSE_S = 0.02  # between two calls: nobody tells when a server is back


def scripted(*words: str, **settings: Any) -> McpServer:
    """Return the settings of a scripted server that does what the words say."""
    settings["readable"] = (SCRIPTED, *settings.get("readable", ()))
    return McpServer(command=(sys.executable, "-S", str(SCRIPTED), *words), **settings)


class Served:
    """Sources that run."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._changed = anyio.Event()
        registry.listen(self._note)

    def _note(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, done: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something is true of the registry."""
        with anyio.fail_after(seconds):
            while not done():
                await self._changed.wait()

    def skill(self, name: str) -> Skill:
        found = self.registry.get(name)
        assert found is not None, f"{name} is not among {self.registry.names()}"
        return found

    async def failure(self, name: str, reason: str) -> SkillUnavailable:
        """Call a skill until it fails for this reason; return the error."""
        with anyio.fail_after(120):
            while True:
                try:
                    await self.call(name)
                except SkillUnavailable as error:
                    if reason in str(error):
                        return error
                await anyio.sleep(_PAUSE_S)

    async def success(self, name: str) -> str:
        """Call a skill until it is available again; return its text."""
        with anyio.fail_after(120):
            while True:
                try:
                    return await self.text(name)
                except SkillUnavailable:
                    await anyio.sleep(_PAUSE_S)

    async def call(
        self,
        name: str,
        params: Mapping[str, str] | None = None,
        *,
        who: str = ANN,
        context: Context | None = None,
    ) -> SkillResult:
        skill = self.skill(name)
        given = prepare(skill, tuple((params or {}).items()))
        with anyio.fail_after(120):
            return await call(
                skill, given, context or context_of(name, who), Threads(4, 4).share("ann")
            )

    async def text(self, name: str, text: str = "", *, who: str = ANN) -> str:
        result = await self.call(name, {"text": text}, who=who)
        assert not result.is_error, result
        return result.outputs[0].text


def context_of(name: str, who: str = ANN, **more: Any) -> Context:
    return Context(principal=who, sender=f"{who}/x", skill=name, **more)


@asynccontextmanager
async def serving(**servers: McpServer) -> AsyncIterator[Served]:
    """Run the sources of some servers."""
    registry = Registry()
    made = [mcp_source(name, entry) for name, entry in servers.items()]
    async with anyio.create_task_group() as group:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "START_S", 60.0)  # loading the SDK may take long
            await group.start(SkillSources(registry, made).run)
        yield Served(registry)
        group.cancel_scope.cancel()


class Answering(PartialHost):
    """A host that answers questions at once, and refuses what a test does not need."""

    def __init__(self, answer: Any = None, model: str = "") -> None:
        self.key = "key"
        self.asked: list[tuple[str, Any]] = []
        self.prompts: list[str] = []
        self.progressed: list[tuple[float, str]] = []
        self.under_way = anyio.Event()
        self.steps: list[str] = []
        self._answer = answer
        self._model = model

    async def _do_progress(self, report: ReportProgress) -> None:
        self.progressed.append((report.fraction, report.text))
        self.under_way.set()

    async def _do_step(self, step: RunStep, work: Any) -> Any:
        self.steps.append(step.name)
        return await work(self.key)

    async def _do_ask(self, asked: AskPrincipal) -> bytes:
        schema = msgspec.json.decode(asked.schema)
        self.asked.append((asked.question, schema))
        if isinstance(self._answer, type) and issubclass(self._answer, Exception):
            raise self._answer("no")
        return msgspec.json.encode(self._answer(schema))

    async def _do_llm(self, asked: AskModel, _check: object) -> str:
        self.prompts.append(asked.prompt)
        return self._model


__all__ = ["ANN", "BOB", "Answering", "Denied", "Served", "UsageError", "context_of", "scripted"]
