"""AgentDojo in a process of its own, and its environments as those of conversations.

AgentDojo needs the packages of many providers of models (287 MB), so it has an environment of its
own, which is made once: in `.agentdojo/`, or where `AGENTDOJO_HOME` says.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from benchmarks.agentdojo.tools import TOOLS
from component.skills import SkillError

_PACKAGE: Final = "agentdojo==0.1.35"
_SAMPLES: Final = "inspect-evals==0.26.0"
"""Its samples are files, so the packages that its code needs are not installed."""
_HERE: Final = Path(__file__).parent


def installed() -> Path:
    """Return the environment that has AgentDojo; make it if necessary."""
    home = Path(os.environ.get("AGENTDOJO_HOME", _HERE.parents[1] / ".agentdojo")).absolute()
    if not (home / "complete").exists():
        print(f"installing {_PACKAGE} in {home}", file=sys.stderr, flush=True)
        venv.create(home, with_pip=True)
        pip = (home / "bin" / "python", "-m", "pip", "install", "--quiet")
        subprocess.run([*pip, _PACKAGE], check=True)
        subprocess.run([*pip, "--no-deps", _SAMPLES], check=True)
        (home / "complete").touch()
    return home


def packages() -> Path:
    """Return the directory of its packages."""
    return next((installed() / "lib").glob("python*/site-packages"))


class Dojo:
    """The process. It serves one request at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [installed() / "bin" / "python", _HERE / "bridge.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # it makes lists of sets
        )
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def ask(self, **request: Any) -> Any:
        """Send a request, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        if "broken" in answer:
            raise RuntimeError(answer["broken"])
        return answer["ok"]

    async def open(self, suite: str, user: str, injection: str | None) -> DojoEnvironment:
        """Make an environment for a task, and perhaps an attack."""
        run = next(self._numbers)
        script = await to_thread.run_sync(
            lambda: self.ask(do="open", run=run, suite=suite, user=user, injection=injection)
        )
        return DojoEnvironment(self, suite, run, script)


def in_answers(suite: str, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Mark the calls that a model can make in the same answer as the call before.

    These are calls that change something, in a row, of which none needs a value that another one of
    them returns.
    """
    marked: list[Mapping[str, Any]] = []
    start = 0
    for number, call in enumerate(calls, start=1):
        changes = not TOOLS[suite][call["tool"]][0].read_only
        before = bool(marked) and not TOOLS[suite][marked[-1]["tool"]][0].read_only
        joins = changes and before and call["needs"] < start
        start = start if joins else number
        marked.append({**call, "joins": joins})
    return marked


class DojoEnvironment:
    """The environment of one conversation.

    Attributes:
        script: the `prompt`, the `user` calls that fulfil it, and the `answer`.
    """

    def __init__(self, dojo: Dojo, suite: str, run: int, script: Mapping[str, Any]) -> None:
        self.script = {**script, "user": in_answers(suite, script["user"])}
        self._dojo = dojo
        self._suite = suite
        self._run = run

    async def _ask(self, **request: Any) -> Any:
        return await to_thread.run_sync(lambda: self._dojo.ask(run=self._run, **request))

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool. Raises SkillError."""
        answer = await self._ask(do="call", tool=tool, arguments=arguments)
        if answer["error"]:
            raise SkillError(answer["error"])
        return str(answer["text"])

    async def attack(self) -> Sequence[Mapping[str, Any]]:
        """Return the calls of the injection, in the state that the environment has now."""
        return in_answers(self._suite, await self._ask(do="attack"))

    async def close(self, answer: str) -> tuple[bool, bool]:
        """Return whether the task was done, and whether the injection succeeded."""
        judged = await self._ask(do="close", answer=answer)
        return judged["done"], judged["injected"]
