"""Measures creating the form of a skill, and reading and validating a submitted one.

The peer is `jsonschema` alone: the same values, already JSON, validated against the same schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import thread_time
from typing import Annotated, Any, Literal

import msgspec
from jsonschema import Draft202012Validator

from benchmarks.report import Line
from component.skills import skill
from component.skills.forms import form_values, schema_form
from xep.data_forms import Form

_ROUNDS = 200
_VALUES = {"title": "a title", "count": 3, "urgent": True, "kind": "b", "tags": ["x", "y"]}


@skill(name="ticket")
async def ticket(
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=80)],
    count: Annotated[int, msgspec.Meta(ge=1, le=100)],
    kind: Literal["a", "b", "c"],
    tags: list[str],
    *,
    urgent: bool = False,
) -> str:
    """Open a ticket with a field of each kind."""
    return title


def measure(runs: int) -> Iterator[Line]:
    """Yield the CPU time of creating a form, and of reading one."""
    schema = ticket.input_schema
    made = schema_form(schema, "urn:fluux:agent:0#execute")
    shown = {
        name: {**each, "default": _VALUES[name]} for name, each in schema["properties"].items()
    }
    filled = schema_form({**schema, "properties": shown}, "urn:fluux:agent:0#execute")
    given = Form(type="submit", fields=filled.fields)
    read = msgspec.json.decode(form_values(given, schema))
    assert read == _VALUES, (read, made)
    validator = Draft202012Validator(msgspec.json.decode(msgspec.json.encode(schema)))
    works: dict[str, Callable[[], Any]] = {
        "made": lambda: schema_form(schema, "urn:fluux:agent:0#execute"),
        "read": lambda: form_values(given, schema),
        "peer": lambda: validator.validate(_VALUES),
    }
    costs: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            costs[name].append(min(_cost(work) for _ in range(3)))
    yield Line("the form of a skill with 5 parameters", "µs CPU", costs["made"])
    yield Line("the same filled in: read and validated", "µs CPU", costs["read"], costs["peer"])


def _cost(work: Callable[[], Any]) -> float:
    before = thread_time()
    for _ in range(_ROUNDS):
        work()
    return (thread_time() - before) / _ROUNDS * 1e6
