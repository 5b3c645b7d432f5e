"""Measures the start with a thousand installed skills, beside the same start without any."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.startup import compiled_modules, start
from benchmarks.wire_end import Acceptor
from component.app.schema import SCHEMA
from component.skill_directories.approvals import Approval, Approvals
from component.skill_directories.content import ContentStore
from component.skills.manifest import Manifest, read_manifest
from component.skills.spec import spec_json
from component.store import Storage

NUMBER = 1_000
_MANIFEST = """
[skill]
name = "skill-{number}"
version = "1.0.0"
description = "Answers question {number}, with a description of an ordinary length for a skill."
tags = ["benchmark", "number-{number}"]

[skill.input_schema]
type = "object"
required = ["text"]
additionalProperties = false
properties.text = {{ type = "string", description = "What is asked.", maxLength = 1000 }}
properties.times = {{ type = "integer", description = "How often.", minimum = 1, default = 1 }}
properties.kind = {{ type = "string", enum = ["one", "two", "three"] }}

[skill.capabilities]
network = ["https://api-{number}.example.com"]

[skill.execution]
kind = "python"
entry = "main.py"
"""


def measure(runs: int) -> Iterator[Line]:
    """Yield the seconds of a start with the skills, and without."""
    ours: list[float] = []
    peer: list[float] = []
    ours_cpu: list[float] = []
    peer_cpu: list[float] = []
    with tempfile.TemporaryDirectory() as name, Acceptor() as acceptor:
        home = Path(name)
        plain = processes.agent_toml(home, acceptor.port)
        data = processes.data_of(home, acceptor.port)
        many = home / "many.toml"
        many.write_text(
            plain.read_text().replace(str(data), str(home / "many"))
            + f'\n[skills]\ndirectories = ["{home / "skills"}"]\n'
        )
        anyio.run(_install, home / "skills", home / "many", backend="trio")
        compiled = compiled_modules(home)
        for run in range(runs + 1):  # the first one is not counted: it writes .pyc files
            seconds, used, _ = start(acceptor, many, compiled)
            alone, alone_used, _ = start(acceptor, plain, compiled)
            if run:
                ours.append(seconds)
                ours_cpu.append(used)
                peer.append(alone)
                peer_cpu.append(alone_used)
    yield Line(
        f"start with {NUMBER:,} installed skills / without", "s", ours, peer, Target(1.2, "at most")
    )
    yield Line("the same, CPU", "s", ours_cpu, peer_cpu)


async def _install(root: Path, data: Path) -> None:
    """Install the skills, as an admin who has approved each of them."""
    store = ContentStore(data / "approved-skills")
    async with Storage.open(SCHEMA, data) as storage:
        approvals = Approvals(storage)
        for number in range(NUMBER):
            directory = root / f"skill-{number}"
            directory.mkdir(parents=True)
            text = _MANIFEST.format(number=number)
            (directory / "skill.toml").write_text(text)
            (directory / "main.py").write_text(f"NUMBER = {number}\n")
            content = store.add(directory)
            await approvals.put(
                Approval(
                    name=f"skill-{number}",
                    digest=content.digest,
                    directory=str(directory),
                    text=text,
                    description=_described(read_manifest(text)),
                    trusted=False,
                    approved_by="benchmark",
                )
            )


def _described(manifest: Manifest) -> str:
    return spec_json(manifest.spec({"input_schema": manifest.skill.input_schema}, "benchmark"))
