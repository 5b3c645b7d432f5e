"""Converts the results of tools to those of skills (MCP 2025-11-25, Tools, Tool Result), and cleans
results and lists of tools before the SDK reads them, which refuses a whole one for one bad part.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from component.features.mcp.errors import plain
from component.skills.errors import printable
from component.skills.outputs import JSON, File, Link, Output, Part, SkillResult
from xep.binding.json_bounds import decoded_json

_MOST_BLOCKS: Final = 100
_LONGEST_WORD: Final = 500
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,64}/[\w!#$&^.+-]{1,64}", re.ASCII)
_BINARY: Final = "application/octet-stream"
_OF_LINKS: Final = ("name", "title", "description", "mimeType")
_OF_RESOURCES: Final = ("uri", "mimeType", "text", "blob")

_HINTS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def result_of(result: Mapping[str, Any]) -> SkillResult:
    """Return the result of a tool, in the JSON of the protocol, as that of a skill."""
    parts = tuple(parts_of(result))
    is_error = result.get("isError") is True
    if is_error:  # servers pass on what their libraries say of parameters
        parts = tuple(
            msgspec.structs.replace(one, text=plain(one.text)) if isinstance(one, Output) else one
            for one in parts
        )
    if is_error and not parts:
        parts = (Output("The tool reports an error without a text."),)
    return SkillResult(parts, is_error)


def readable(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result of a tool, in the JSON of the protocol, as the SDK reads it: it refuses a
    whole result for one part that it does not know.

    Without content there is none; a part that cannot be read becomes a text that says so.
    """
    blocks = result.get("content")
    if blocks is None:
        blocks = []
    if isinstance(blocks, list):
        result = {**result, "content": [_readable(block) for block in blocks]}
    if not isinstance(result.get("isError", False), bool):
        result = {name: value for name, value in result.items() if name != "isError"}
    return result


def _readable(block: Any) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": str() as text}:
            return {"type": "text", "text": text}
        case {"type": "image" | "audio" as kind, "data": str() as data}:
            made = {"type": kind, "data": data, "mimeType": _media_type(block) or _BINARY}
            return made | _annotations(block)
        case {"type": "resource_link", "uri": str() as uri}:
            link = {name: block[name] for name in _OF_LINKS if _is_text(block, name)}
            return {"name": uri, **link, "type": "resource_link", "uri": uri}
        case {"type": "resource", "resource": {"text": str()} | {"blob": str()} as resource}:
            kept = {name: resource[name] for name in _OF_RESOURCES if _is_text(resource, name)}
            if "text" in kept:
                kept.pop("blob", None)
            found = {"type": "resource", "resource": {"uri": "", **kept}}
            return found | _annotations(block)
    shown = part_of(block) if isinstance(block, Mapping) else None
    said = shown.text if isinstance(shown, Output) else "A part that cannot be read."
    return {"type": "text", "text": said}


def _is_text(described: Mapping[str, Any], name: str) -> bool:
    return isinstance(described.get(name), str)


def parts_of(result: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the parts of a result: its structured content, then its content blocks."""
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, Sequence) and not isinstance(blocks, str) else ()
    structured = result.get("structuredContent")
    if structured is not None:
        yield Output(msgspec.json.encode(structured).decode(), JSON)
    for block in blocks[:_MOST_BLOCKS]:
        if isinstance(block, Mapping) and not _repeats(block, structured):
            yield part_of(block)
    if len(blocks) > _MOST_BLOCKS:
        yield Output(f"{len(blocks) - _MOST_BLOCKS} further parts of the result are left out.")


def part_of(block: Mapping[str, Any]) -> Part:
    """Return a content block as a part of a result. One of an unknown type is named in a text."""
    match block:
        case {"type": "text", "text": str() as text}:
            return Output(text)
        case {"type": "image" | "audio", "data": str() as data}:
            return _file(block, data, _audience(block))
        case {"type": "resource_link", "uri": str()}:
            return _link(block)
        case {"type": "resource", "resource": {"text": str() as text} as resource}:
            is_json = _media_type(resource) == JSON and _json(text) is not msgspec.UNSET
            return Output(text, JSON) if is_json else Output(text)
        case {"type": "resource", "resource": {"blob": str() as data} as resource}:
            return _file(resource, data, _audience(block))
    return Output(f"A part of an unknown type, {_word(block, 'type')}.")


def _annotations(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of a block that are used."""
    audience = {"person": "user", "model": "assistant"}.get(_audience(block) or "")
    return {"annotations": {"audience": [audience]}} if audience else {}


def _audience(block: Mapping[str, Any]) -> Literal["person", "model"] | None:
    """Return for whom a server means a block, if not for both."""
    annotations = block.get("annotations")
    match annotations.get("audience") if isinstance(annotations, Mapping) else None:
        case ["user"]:
            return "person"
        case ["assistant"]:
            return "model"
    return None


def _file(
    described: Mapping[str, Any], data: str, audience: Literal["person", "model"] | None
) -> Part:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Output("A file that is not base64, so it cannot be read.")
    name = _word(described, "uri").rpartition("/")[2]
    return File(content, _media_type(described) or _BINARY, name or None, audience)


def _link(block: Mapping[str, Any]) -> Part:
    url = _word(block, "uri")
    name = _word(block, "title") or _word(block, "name")
    if url.startswith(("http://", "https://")):
        return Link(url, _media_type(block), name or None)
    description = _word(block, "description")
    return Output(f"{name} <{url}>" + (f": {description}" if description else ""))


def _repeats(block: Mapping[str, Any], structured: Any) -> bool:
    """Return whether a text only repeats the structured content, for clients that know none."""
    text = block.get("text")
    if structured is None or block.get("type") != "text" or not isinstance(text, str):
        return False
    values = [structured]
    if isinstance(structured, Mapping) and structured.keys() == {"result"}:
        values.append(structured["result"])  # how the Python SDK wraps other values than objects
    return text in values[1:] or _json(text) in values


def _json(text: str) -> Any:
    try:
        return decoded_json(text)
    except ValueError:
        return msgspec.UNSET


def _media_type(described: Mapping[str, Any]) -> str | None:
    found = _word(described, "mimeType").partition(";")[0].strip().lower()
    return found if _MEDIA_TYPE.fullmatch(found) else None


def _word(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    return printable(value, _LONGEST_WORD) if isinstance(value, str) else ""


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
