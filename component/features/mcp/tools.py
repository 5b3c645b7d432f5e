"""Makes skills of the tools that a server lists.

What a server says about a tool is a claim. Its words are shown to people and models, bounded and
without invisible characters. Its annotations are not believed unless the admin says so: a tool
counts as destructive and open to the world until the settings say something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog

from component.features.mcp.errors import reason_of
from component.policy.globs import first_match, pattern
from component.skills.errors import DeclarationError
from component.skills.foreign_texts import clean, clean_schema, line
from component.skills.inputs import schema_inputs
from component.skills.operations import CAPABILITY as LLM
from component.skills.skill import Skill
from component.skills.spec import Annotations
from component.skills.validation import SchemaValidator

if TYPE_CHECKING:
    from component.features.mcp.connection import ToolDescription
    from component.features.mcp.settings import McpServer
    from component.skills.skill import Invoke

_log = structlog.get_logger("component.features.mcp")

_LONGEST_TITLE: Final = 100
_LONGEST_DESCRIPTION: Final = 4000
_LONGEST_IN_SCHEMA: Final = 1000
_OTHER: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MARGIN_S: Final = 5.0
_SAMPLING_S: Final = 300.0


def skills_of(
    name: str,
    entry: McpServer,
    tools: Sequence[ToolDescription],
    invoke_of: Callable[[ToolDescription, Annotations], Invoke],
) -> list[Skill]:
    """Return the skills of the tools that the settings select, in their order.

    A tool that cannot be a skill is left out, and the log says why. Of tools whose names become the
    same, the one that has the name already keeps it, and the others get a number.
    """
    wanted = pattern(entry.tools)
    names = distinct_names(
        name if entry.prefix is None else entry.prefix, {tool.name for tool in tools}
    )
    made: list[Skill] = []
    for tool in tools:
        if not wanted.fullmatch(tool.name):
            continue
        try:
            made.append(skill_of(name, entry, tool, names[tool.name], invoke_of))
        except (DeclarationError, ValueError, RecursionError) as error:
            _log.warning(
                "a tool of an MCP server is left out",
                server=name,
                tool=line(tool.name, _LONGEST_TITLE),
                reason=reason_of(error),
            )
    return made


def distinct_names(prefix: str, tools: Collection[str]) -> Mapping[str, str]:
    """Return the names of the skills of tools. They do not depend on the order of the tools."""
    whole = {tool: f"{prefix}.{tool}" if prefix else tool for tool in tools}
    # These come first: a name that needs no change is kept.
    ordered = sorted(tools, key=lambda tool: (skill_name(prefix, tool) != whole[tool], tool))
    names: dict[str, str] = {}
    taken = set[str]()
    for tool in ordered:
        plain = found = skill_name(prefix, tool)
        number = 2
        while found in taken:
            found = f"{plain}_{number}"
            number += 1
        taken.add(found)
        names[tool] = found
    return names


def skill_of(
    name: str,
    entry: McpServer,
    tool: ToolDescription,
    skill: str,
    invoke_of: Callable[[ToolDescription, Annotations], Invoke],
) -> Skill:
    """Return the skill of a tool. Raises DeclarationError, ValueError, RecursionError."""
    annotations = annotations_of(name, entry, tool)
    schema = clean_schema(tool.input_schema, _LONGEST_IN_SCHEMA)
    capabilities: tuple[str, ...] = (f"mcp:{name}",)
    seconds = entry.start_timeout_s + entry.timeout_s + _MARGIN_S
    if entry.sampling:
        capabilities += (LLM,)
        seconds += _SAMPLING_S
    return Skill(
        name=skill,
        title=line(tool.title, _LONGEST_TITLE),
        question=first_match(entry.questions, tool.name) or "",
        description=clean(tool.description, _LONGEST_DESCRIPTION),
        tags=("mcp",),
        annotations=annotations,
        timeout=seconds,
        # The call is a step, so that a question of the server can be answered while it runs.
        durable=True,
        capabilities=capabilities,
        taint=entry.taint,
        described_by=entry.taint,
        claims={"annotations": dict(tool.annotations)},
        input_schema=schema,
        output_schema=_output_schema(name, tool),
        source=f"the MCP server {name}",
        versioned_by_content=True,
        inputs=schema_inputs(schema, adds_defaults=False),
        kind="async",
        wants_context=True,
        invoke=invoke_of(tool, annotations),
    )


def skill_name(prefix: str, tool: str) -> str:
    """Return the name of a tool's skill. Characters that such a name cannot have become `_`."""
    parts = [part for part in _OTHER.sub("_", tool).split(".") if part]
    return ".".join([prefix, *parts] if prefix else parts)


def annotations_of(name: str, entry: McpServer, tool: ToolDescription) -> Annotations:
    """Return the effects of a tool, by the settings."""
    given = first_match(entry.annotations, tool.name)
    if given is not None:
        read_only = bool(given.read_only)
        return Annotations(
            read_only=read_only,
            destructive=not read_only if given.destructive is None else given.destructive,
            idempotent=bool(given.idempotent),
            open_world=given.open_world is not False,
        )
    claimed = tool.annotations
    if entry.trusted_annotations:
        read_only = claimed.get("readOnlyHint") is True
        return Annotations(
            read_only=read_only,
            destructive=not read_only and claimed.get("destructiveHint") is not False,
            idempotent=claimed.get("idempotentHint") is True,
            open_world=claimed.get("openWorldHint") is not False,
        )
    if not pattern(entry.read_only).fullmatch(tool.name):
        return Annotations()
    if claimed.get("readOnlyHint") is False or claimed.get("destructiveHint") is True:
        _log.warning(
            "a tool that the settings call read_only says that it is not; it counts as destructive",
            server=name,
            tool=line(tool.name, _LONGEST_TITLE),
        )
        return Annotations()
    return Annotations(read_only=True, destructive=False)


def _output_schema(name: str, tool: ToolDescription) -> dict[str, Any] | None:
    if tool.output_schema is None:
        return None
    try:
        schema: dict[str, Any] = clean_schema(tool.output_schema, _LONGEST_IN_SCHEMA)
        SchemaValidator(schema)
    except (DeclarationError, ValueError, RecursionError) as error:
        _log.warning(
            "the output schema of a tool is ignored",
            server=name,
            tool=line(tool.name, _LONGEST_TITLE),
            reason=reason_of(error),
        )
        return None
    return schema


def schema_mismatch(schema: Mapping[str, Any] | None, result: Mapping[str, Any]) -> str | None:
    """Return why a result does not fit the output schema of its tool, None if it does."""
    if schema is None or result.get("isError") is True:
        return None
    structured = result.get("structuredContent")
    if structured is None:
        return "it has no structured content"
    try:
        found = SchemaValidator(schema).mismatch(structured)
    except DeclarationError:
        return None  # the schema is ignored, as the log says
    return None if found is None else f"{found.place or 'it'}: {found.reason}"
