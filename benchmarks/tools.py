"""Tool selection of the small bundled model, on a public data set.

The data are a fixed sample of the Berkeley Function Calling Leaderboard
(https://gorilla.cs.berkeley.edu/leaderboard.html), as its package `bfcl-eval` ships them: `simple`
offers the one function that is needed, `multiple` a few of which one is needed, and `irrelevance`
only functions that do not help, so that none must be called. The figures are shares, not times.
The model answers the same each time, so there is one run.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from benchmarks.report import Line
from component.config.llm import LLM
from component.models.building import Models
from component.models.messages import ToolCall, text_message
from component.models.protocol import Model, ModelError, ModelRequest, Tool

_PACKAGE = "bfcl_eval"
_SAMPLE = 34  # of each category
_CATEGORIES = ("simple_python", "multiple", "irrelevance")
_ANSWER_TOKENS = 64
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_Verdict = Literal["wrong", "selected", "correct"]
"""Whether the right function was selected, and whether its arguments were correct too."""


class Case(msgspec.Struct, frozen=True):
    """A question, the functions that are offered, and the calls that answer it, if any do."""

    question: str
    tools: tuple[Tool, ...]
    expected: dict[str, dict[str, list[Any]]]


def measure(runs: int) -> Iterator[Line]:
    """Yield the shares of right selections, and of right calls."""
    del runs
    verdicts = anyio.run(_ask_all, backend="trio")
    for category, found in verdicts.items():
        selected = sum(verdict != "wrong" for verdict in found)
        name = f"tool selection, bfcl {category} ({len(found)} questions)"
        yield Line(name, "% right", [100 * selected / len(found)])
        if category != "irrelevance":
            correct = found.count("correct")
            yield Line(f"{name}, arguments too", "% right", [100 * correct / len(found)])


async def _ask_all() -> dict[str, list[_Verdict]]:
    models = Models(LLM(provider="local"))
    try:
        return {
            category: [await _ask(models.get(), case) for case in cases(category, _SAMPLE)]
            for category in _CATEGORIES
        }
    finally:
        await models.aclose()


async def _ask(model: Model, case: Case) -> _Verdict:
    request = ModelRequest(
        messages=(text_message("user", case.question),),
        tools=case.tools,
        max_tokens=_ANSWER_TOKENS,
    )
    try:
        completion = await model.complete(request)
    except ModelError:  # a prompt that is too long, or a schema that the model does not take
        return "wrong"
    return judge(completion.tool_calls, case.expected)


def judge(calls: tuple[ToolCall, ...], expected: dict[str, dict[str, list[Any]]]) -> _Verdict:
    """Compare the calls of an answer with those that are expected."""
    if not calls or not expected:
        return "wrong" if calls or expected else "correct"
    call = calls[0]
    if call.name not in expected:
        return "wrong"
    allowed = expected[call.name]
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return "selected"
    if not isinstance(given, dict) or not given.keys() <= allowed.keys():
        return "selected"
    # An empty text among the allowed values says that the argument may be left out.
    fits = all(
        given[key] in values if key in given else "" in values for key, values in allowed.items()
    )
    return "correct" if fits else "selected"


def cases(category: str, count: int) -> list[Case]:
    """Take `count` cases of a category, evenly spread over it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps bfcl-eval")
    data = Path(spec.submodule_search_locations[0]) / "data"
    file = f"BFCL_v4_{category}.json"
    entries = _lines(data / file)
    answers = data / "possible_answer" / file
    expected = {}
    if answers.exists():
        expected = {entry["id"]: entry["ground_truth"] for entry in _lines(answers)}
    return [
        Case(
            question=entry["question"][0][-1]["content"],
            tools=tuple(_tool(function) for function in entry["function"]),
            expected={
                name: arguments
                for call in expected.get(entry["id"], ())
                for name, arguments in call.items()
            },
        )
        for entry in entries[:: len(entries) // count][:count]
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def _tool(function: dict[str, Any]) -> Tool:
    parameters = msgspec.Raw(msgspec.json.encode(_json_schema(function["parameters"])))
    return Tool(function["name"], function["description"], parameters)


def _json_schema(schema: Any) -> Any:
    """Translate the types of the data set, which are those of Python, into JSON Schema's."""
    if isinstance(schema, list):
        return [_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _json_schema(value) for key, value in schema.items()}
    if isinstance(type_ := schema.get("type"), str):
        out["type"] = _TYPES.get(type_, type_)
        if type_ == "any":
            del out["type"]
    return out
