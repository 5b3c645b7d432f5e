"""Asks a server once for its tools, for `xmpp-agent doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import anyio

from component.features.mcp.connection import Connection, ToolDescription
from component.features.mcp.errors import ServerFailed
from component.features.mcp.serving import Ready
from component.features.mcp.tools import skills_of

if TYPE_CHECKING:
    from component.features.mcp.settings import McpServer
    from component.skills.skill import Invoke
    from component.skills.spec import Annotations


async def look(name: str, entry: McpServer) -> tuple[str, int, int]:
    """Return what a server says it is, and the numbers of its tools and of those that are offered.

    Raises ServerFailed.
    """
    connection = Connection(name, entry)
    ready = Ready()
    failed: list[ServerFailed] = []
    found: list[tuple[str, int, int]] = []

    async with anyio.create_task_group() as group:

        async def keep() -> None:
            try:
                await connection.run(task_status=ready)
            except ServerFailed as error:
                failed.append(error)
            ready.started()

        group.start_soon(keep)
        await ready.event.wait()
        if not failed:
            try:
                tools = await connection.tools()
                skills = skills_of(name, entry, tools, _not_called)
                found.append((connection.server, len(tools), len(skills)))
            except ServerFailed as error:
                failed.append(error)
        group.cancel_scope.cancel()
    if found:
        return found[0]
    raise failed[0]


def _not_called(_tool: ToolDescription, _annotations: Annotations) -> Invoke:
    def invoke(*_: object) -> NoReturn:
        raise NotImplementedError

    return invoke
