"""The document of a plan: what a person or a model writes, and a person reads and approves."""

from __future__ import annotations

import hashlib
import inspect
import json
import tomllib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from component.config.llm import Tier
from component.skills.schema import ordered_schema

MOST_STEPS: Final = 20
MOST_BYTES: Final = 16_384
"""The maximum size of a document as JSON: what a person can read."""
ID: Final = r"^[a-z][a-z0-9_]{0,31}\Z"

Kind: TypeAlias = Literal["call", "agent", "ask"]
GroupPolicy: TypeAlias = Literal["all", "best-effort", "first"]
Text: TypeAlias = Annotated[str, Meta(max_length=4_000)]
Line: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\r\n]*\Z")]
Dollars: TypeAlias = Annotated[float, Meta(gt=0)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Id: TypeAlias = Annotated[str, Meta(pattern=ID)]


class PlanError(ValueError):
    """A plan cannot be used. The message has a sentence for each fault, each on a line."""


class Step(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A step of a plan.

    Texts and parameters may have JMESPath expressions in braces, which refer to the outputs of
    earlier steps: `{fetch.text}`, `{fetch.data.items[0].name}`. A parameter that is one expression
    gets the value itself. Write {{ and }} for braces.
    """

    id: Annotated[Id, Meta(description="Short name: lower-case letters, digits and _.")]
    kind: Annotated[
        Kind,
        Meta(
            description="call: call a tool. agent: let a sub-agent do a piece of work. ask: ask the"
            " person."
        ),
    ]
    title: Annotated[Line, Meta(description="What the step does, for the person.")] = ""
    after: Annotated[
        tuple[Id, ...],
        Meta(description="Steps and groups that must be done before; others run side by side."),
    ] = ()
    skill: Annotated[str, Meta(description="call: the name of the tool.", max_length=64)] = ""
    params: Annotated[dict[str, Any], Meta(description="call: the parameters of the tool.")] = {}
    role: Annotated[Line, Meta(description="agent: what it is, such as researcher.")] = ""
    instructions: Annotated[
        Text, Meta(description="agent: what it is to do, with all that it has to know.")
    ] = ""
    skills: Annotated[
        tuple[str, ...],
        Meta(description="agent: names of the tools that it may call; none unless given."),
    ] = ()
    tier: Annotated[Tier | None, Meta(description="agent: which kind of model it uses.")] = None
    question: Annotated[Text, Meta(description="ask: the question.")] = ""
    show: Annotated[Text, Meta(description="ask: what is shown with the question.")] = ""
    choices: Annotated[tuple[Line, ...], Meta(description="ask: the possible answers.")] = ()
    people: Annotated[
        tuple[str, ...] | str,
        Meta(description="ask: addresses of people to ask instead of the person, each alone."),
    ] = ()
    group: Annotated[str, Meta(description="The name of its group, if it is in one.")] = ""
    retries: Annotated[
        int, Meta(ge=0, le=5, description="How often it is tried again if it may be repeated.")
    ] = 0
    optional: Annotated[bool, Meta(description="The plan goes on without it if it fails.")] = False
    otherwise: Annotated[str, Meta(description="The step that runs in its place if it fails.")] = ""


class Plan(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A plan: what is to be reached, and the steps that reach it."""

    title: Annotated[Line, Meta(min_length=1, description="A few words.")]
    goal: Annotated[Text, Meta(min_length=1, description="What the person wants.")]
    done_when: Annotated[Text, Meta(description="How to see that the goal is reached.")] = ""
    budget_usd: Annotated[Dollars | None, Meta(description="The most that it may cost.")] = None
    deadline: Annotated[Moment | None, Meta(description="When the result is useless.")] = None
    steps: Annotated[tuple[Step, ...], Meta(min_length=1, max_length=MOST_STEPS)]
    groups: Annotated[
        dict[str, GroupPolicy],
        Meta(
            description="What happens if a step of a group fails. all: the group fails."
            " best-effort: it goes on with the others. first: the first that succeeds ends the"
            " group."
        ),
    ] = {}
    result: Annotated[
        Text, Meta(description="The report; by default the outputs of the last steps.")
    ] = ""

    def step(self, id_: str) -> Step:
        """Return a step by its id. Raises KeyError."""
        for one in self.steps:
            if one.id == id_:
                return one
        raise KeyError(id_)

    @property
    def fallbacks(self) -> frozenset[str]:
        """The ids of the steps that run only in the place of others."""
        return frozenset(one.otherwise for one in self.steps if one.otherwise)

    def members(self, group: str) -> tuple[Step, ...]:
        """Return the steps of a group."""
        return tuple(one for one in self.steps if one.group == group)


_ID_IN_ERRORS: Final = f"matching regex {ID!r}"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def plan_json(plan: Plan) -> str:
    """Return the JSON of a plan, the same for equal plans."""
    return _encode(plan).decode()


def digest_of(plan: Plan) -> str:
    """Return the SHA-256 of the JSON of a plan, as 64 hex digits."""
    return hashlib.sha256(_encode(plan)).hexdigest()


def schema_text() -> str:
    """Return `protocol_schemas/plan.schema.json`."""
    schema = msgspec.json.decode(msgspec.json.encode(ordered_schema(Plan)))
    for one in schema["$defs"].values():
        one["description"] = inspect.cleandoc(one["description"])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The document of a plan",
    }
    return json.dumps(head | schema, indent=2, ensure_ascii=False) + "\n"


def read_plan(text: str | bytes) -> Plan:
    """Read a plan that is JSON, or TOML if it does not begin with a brace. Raises PlanError."""
    if len(text) > 4 * MOST_BYTES:
        raise PlanError(f"The plan has more than {MOST_BYTES} bytes: use fewer or shorter steps.")
    said = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).strip()
    try:
        value = msgspec.json.decode(said) if said.startswith("{") else tomllib.loads(said)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        what = "JSON" if said.startswith("{") else "TOML"
        raise PlanError(f"The plan is not {what}: {error or 'nested too deeply'}.") from None
    return plan_of(value)


def plan_of(value: Mapping[str, Any]) -> Plan:
    """Return the plan that a JSON value describes. Raises PlanError: its fields have wrong names
    or types, or it is too large.
    """
    try:
        plan = msgspec.convert(value, Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        why = str(error).replace(_ID_IN_ERRORS, "of lower-case letters, digits and _")
        raise PlanError(f"The plan has a fault: {why or 'it is nested too deeply'}.") from None
    if problem := fault_of_size(plan):
        raise PlanError(problem)
    return plan


def fault_of_size(plan: Plan) -> str:
    """Return why a plan is too large, as a sentence; empty if it is not."""
    size = len(_encode(plan))
    if size <= MOST_BYTES:
        return ""
    return (
        f"The plan has {size} bytes of JSON, and at most {MOST_BYTES} can be read by a person: use"
        " fewer or shorter steps."
    )


if __name__ == "__main__":
    print(schema_text(), end="")  # noqa: T201 - python -m component.plans.document
