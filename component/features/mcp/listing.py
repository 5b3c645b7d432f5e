"""Cleans lists of tools before the SDK reads them, which refuses a whole list for one bad tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_HINTS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def cleaned(tools: list[Any], leave_out: Callable[[str, str], None]) -> list[dict[str, Any]]:
    """Return the tools that can be used, with what is needed of them.

    `leave_out` is called with the name of each other one, and the reason.
    """
    found: list[dict[str, Any]] = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            leave_out("", "it has no name")
            continue
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            leave_out(name, "the schema of its parameters is not one of an object")
            continue
        found.append(_cleaned(name, schema, tool))
    return found


def _cleaned(name: str, schema: dict[str, Any], tool: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "inputSchema": schema}
    for key in ("title", "description"):
        if isinstance(tool.get(key), str):
            made[key] = tool[key]
    output = tool.get("outputSchema")
    if isinstance(output, dict) and output.get("type") == "object":
        made["outputSchema"] = output
    hints = tool.get("annotations")
    if isinstance(hints, dict):
        made["annotations"] = {
            key: hints[key] for key, kind in _HINTS.items() if isinstance(hints.get(key), kind)
        }
    return made
