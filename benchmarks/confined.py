"""Measures what a confined process adds to the call of a skill, with a warm child and a cold one.

The peer is the same function, called in the process of the service. A cold call starts a child:
namespaces, seccomp, Landlock, Python, and the module. `reading a document` starts one too, and
reads a short text with it. `beside an endless loop` compares calls of one principal while a skill
of another computes for ever, with those before.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from benchmarks.report import Line, Target
from component.memory.document_reader import read_document
from component.sandbox.process_skills import ChildPool, ProcessSkills
from component.sandbox.profile import Profile
from component.skills import Context, call, load_module, skills_of
from component.skills.calling import Threads
from component.skills.skill import Skill
from tests.component.sandbox.plain_functions import plain_functions

_CALLS = 1000
_COLD = 5
_ADDED_US = 300.0
_BESIDE = 2.0
_MODULE = '''
from component.skills import skill

@skill(inline=True, read_only=True, open_world=False)
def shout(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()

@skill
def loop(text: str) -> str:
    """Compute for ever."""
    while True:
        pass
'''


def measure(runs: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as directory:
        module = Path(directory, "shout.py")
        module.write_text(_MODULE)
        Path(directory).chmod(0o755)
        for backend in ("asyncio", "trio"):
            found = [anyio.run(_run, module, backend=backend) for _ in range(runs)]
            here, warm, cold, document, loaded = map(list, zip(*found, strict=True))
            added = [one - other for one, other in zip(warm, here, strict=True)]
            target = Target(_ADDED_US, "at most", of="ours")
            yield Line(f"confined call adds, {backend}", "µs", added, target=target)
            note = "peer: the same function, inline in the service"
            yield Line(f"confined call, warm, {backend}", "µs", warm, here, note=note)
            bound = Target(_BESIDE, "at most")
            yield Line(f"beside an endless loop, {backend}", "µs", loaded, warm, target=bound)
            yield Line(f"confined call, cold, {backend}", "ms", cold)
            yield Line(f"reading a document, {backend}", "ms", document)


async def _run(module: Path) -> tuple[float, ...]:
    native = skills_of(load_module(module))[0]
    async with _children() as children:
        confined, loop = await ProcessSkills(
            children, Profile(), str(module), plain_functions
        ).describe()
        cold = [await _timed(confined, f"cold{number}@test") for number in range(_COLD)]
        await _timed(confined, "warm@test")
        # Interleaved, so that other load affects both alike.
        here, warm = [], []
        for _ in range(_CALLS):
            here.append(await _timed(native, "warm@test"))
            warm.append(await _timed(confined, "warm@test"))
        loaded = []
        async with anyio.create_task_group() as group:
            group.start_soon(_timed, loop, "loops@test")
            while len(children) < 2 + _COLD:  # noqa: ASYNC110 - nobody tells when it has begun
                await anyio.sleep(0.1)
            await anyio.sleep(1)
            for _ in range(_CALLS):
                loaded.append(await _timed(confined, "warm@test"))  # noqa: PERF401
            group.cancel_scope.cancel()
    text = module.with_suffix(".txt")
    text.write_text("one paragraph")
    began = time.perf_counter()
    await read_document(text)
    document = time.perf_counter() - began
    median = statistics.median
    return (
        median(here) * 1e6,
        median(warm) * 1e6,
        median(cold) * 1e3,
        document * 1e3,
        median(loaded) * 1e6,
    )


async def _timed(skill: Skill, principal: str) -> float:
    context = Context(principal=principal, sender=principal, skill=skill.name)
    share = Threads(4, 4).share(principal)
    arguments = {"text": "hello"} if skill.inputs.complete else skill.inputs.type(text="hello")
    began = time.perf_counter()
    await call(skill, arguments, context, share)
    return time.perf_counter() - began


@asynccontextmanager
async def _children() -> AsyncIterator[ChildPool]:
    children = ChildPool()
    async with anyio.create_task_group() as group:
        await group.start(children.run)
        yield children
        group.cancel_scope.cancel()
