"""The environments of AgentDojo, in a process of its own with the packages that AgentDojo needs.

It reads requests from standard input and writes answers to standard output, each one line of JSON.
It runs in the environment that `process.py` makes, so it imports nothing of this project.
"""

import functools
import json
import sys
import traceback
from typing import Any

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

VERSION = "v1.2.2"
_OPEN: dict[int, Any] = {}
_SUITES = get_suites(VERSION)


@functools.cache
def _loaded(suite: str) -> Any:
    return _SUITES[suite].load_and_inject_default_environment({})


def _environment(suite: str) -> Any:
    return _loaded(suite).model_copy(deep=True)


class _Run:
    """One conversation: an environment, and the tasks that are judged by it."""

    def __init__(self, suite: str, user_task: str, injection_task: str | None) -> None:
        self.suite = _SUITES[suite]
        self.user_task = self.suite.user_tasks[user_task]
        self.injection_task = injection_task and self.suite.injection_tasks[injection_task]
        self.environment = self.user_task.init_environment(_environment(suite))
        self.before = self.environment.model_copy(deep=True)
        self.runtime = FunctionsRuntime(self.suite.tools)
        self.made: list[FunctionCall] = []

    def script(self) -> dict[str, Any]:
        return {
            "prompt": self.user_task.PROMPT,
            "answer": self.user_task.GROUND_TRUTH_OUTPUT,
            "user": self._script(self.user_task, self.before, self.user_task.PROMPT),
        }

    def attack(self) -> list[dict[str, Any]]:
        if not self.injection_task:
            return []
        return self._script(self.injection_task, self.environment, self.injection_task.GOAL)

    def _script(self, task: Any, environment: Any, text: str) -> list[dict[str, Any]]:
        """Return the calls of a task; `needs` is the number of the last call whose result a call
        needs, because a value of its arguments occurs there first: 0 for none. A value that the
        model has written in an earlier call needs nothing more than that call did.
        """
        calls = _calls(task, environment)
        known = [text]
        written: dict[str, int] = {}
        tried = environment.model_copy(deep=True)
        for call in calls:
            values = [each for each in _scalars(call["arguments"]) if len(each) > 1]
            for value in values:
                first = (at for at, each in enumerate(known) if value in each)
                written.setdefault(value, next(first, 0))
            call["needs"] = max((written[value] for value in values), default=0)
            result, _ = self.runtime.run_function(tried, call["tool"], call["arguments"])
            known.append(tool_result_to_str(result))
        return calls

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.made.append(FunctionCall(function=name, args=arguments))
        result, error = self.runtime.run_function(self.environment, name, arguments)
        return {"text": tool_result_to_str(result), "error": error}

    def judge(self, answer: str) -> dict[str, Any]:
        output = [{"type": "text", "content": answer}]

        def judged(task: Any) -> bool:
            return bool(
                self.suite._check_task_result(  # noqa: SLF001 - there is no other way
                    task, output, self.before, self.environment, self.made
                )
            )

        return {
            "done": judged(self.user_task),
            "injected": self.injection_task is not None and judged(self.injection_task),
        }


def _calls(task: Any, environment: Any) -> list[dict[str, Any]]:
    calls = task.ground_truth(environment.model_copy(deep=True))
    return [{"tool": one.function, "arguments": dict(one.args)} for one in calls]


def _scalars(value: Any) -> list[str]:
    """Return all texts and numbers in a value, as texts."""
    if isinstance(value, dict):
        return [each for one in value.values() for each in _scalars(one)]
    if isinstance(value, list):
        return [each for one in value for each in _scalars(one)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def suites() -> dict[str, Any]:
    """The tools and tasks of all suites; `scripted` injections have calls that achieve them."""
    found = {}
    for name, suite in _SUITES.items():
        environment = _environment(name)
        found[name] = {
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "schema": tool.parameters.model_json_schema(),
                }
                for tool in suite.tools
            ],
            "user_tasks": list(suite.user_tasks),
            "scripted": [
                one for one, task in suite.injection_tasks.items() if _calls(task, environment)
            ],
            "unscripted": [
                one for one, task in suite.injection_tasks.items() if not _calls(task, environment)
            ],
        }
    return found


def handle(request: dict[str, Any]) -> Any:
    """Serve one request."""
    match request:
        case {"do": "suites"}:
            return suites()
        case {"do": "open", "run": run, "suite": suite, "user": user, "injection": injection}:
            _OPEN[run] = _Run(suite, user, injection)
            return _OPEN[run].script()
        case {"do": "attack", "run": run}:
            return _OPEN[run].attack()
        case {"do": "call", "run": run, "tool": tool, "arguments": arguments}:
            return _OPEN[run].call(tool, arguments)
        case {"do": "close", "run": run, "answer": answer}:
            return _OPEN.pop(run).judge(answer)
    raise ValueError(f"unknown request: {request}")


def main() -> None:
    """Serve requests until standard input ends."""
    for line in sys.stdin:
        try:
            answer = {"ok": handle(json.loads(line))}
        except Exception:  # noqa: BLE001 - the other side reports it
            answer = {"broken": traceback.format_exc()}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
