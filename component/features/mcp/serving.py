"""Keeps a server running, and offers its tools while they change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from component.features.mcp.calls import Runner
from component.features.mcp.connection import ServerConnection, ToolDescription
from component.features.mcp.errors import ServerFailed
from component.features.mcp.guard import CLOSED
from component.features.mcp.pool import Backoff, Pool
from component.features.mcp.tools import skills_of

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from component.features.mcp.settings import McpServer
    from component.skills.skill import Invoke, Skill
    from component.skills.sources import Offer
    from component.skills.spec import Annotations

_log = structlog.get_logger("component.features.mcp")

_FIRST_S: Final = 0.1
_LONGEST_S: Final = 300.0
_CHECK_S: Final = 300.0
"""A server over HTTP may have been restarted without telling: its list is read again."""
_QUIET_S: Final = 60.0
"""A list that changes again within this time is read less and less often."""


class Serving:
    """Runs one server."""

    def __init__(self, name: str, entry: McpServer) -> None:
        self._name = name
        self._entry = entry
        self._offered: dict[str, Skill] = {}

    async def run(self, offer: Offer, task_status: TaskStatus[None]) -> None:
        """Run the server until cancelled; start it again, after a while, when it has ended."""
        backoff = Backoff()
        async with anyio.create_task_group() as group:
            pool = Pool(self._name, self._entry, group)
            runner = Runner(self._name, self._entry, pool)
            group.start_soon(runner.sweep)
            while True:
                began = anyio.current_time()
                reason = CLOSED
                try:
                    await self._serve(offer, pool, runner, task_status)
                except ServerFailed as error:
                    reason = str(error)
                wait = backoff.next(anyio.current_time() - began)
                pool.ended(reason)
                _log.warning(
                    "an MCP server is not available",
                    server=self._name,
                    reason=reason,
                    again_in_s=wait,
                )
                task_status.started()
                with anyio.move_on_after(wait):
                    await pool.wanted.wait()

    async def _serve(
        self, offer: Offer, pool: Pool, runner: Runner, task_status: TaskStatus[None]
    ) -> None:
        """Offer the tools of the server until it fails. Raises ServerFailed."""
        connection = ServerConnection(self._name, self._entry)
        async with connection.connected():
            wait = _FIRST_S
            while True:
                connection.changed = anyio.Event()
                tools = await connection.tools()
                listed = anyio.current_time()
                skills = self._unchanged(
                    skills_of(self._name, self._entry, tools, partial(_invoker, runner))
                )
                offer(skills)
                pool.listed(connection)
                _log.info(
                    "an MCP server is available",
                    server=self._name,
                    version=connection.server,
                    tools=len(tools),
                    offered=len(skills),
                )
                task_status.started()
                with anyio.move_on_after(_CHECK_S if self._entry.url else None):
                    await connection.changed.wait()
                quiet = anyio.current_time() - listed > _QUIET_S
                wait = _FIRST_S if quiet else min(wait * 2, _LONGEST_S)
                if wait == _LONGEST_S:
                    _log.warning("an MCP server changes its tools all the time", server=self._name)
                await anyio.sleep(wait)

    def _unchanged(self, skills: list[Skill]) -> list[Skill]:
        """Return the skills, those of an earlier offer where nothing has changed."""
        before = self._offered
        same = [
            there if (there := before.get(one.name)) and _is_same(there, one) else one
            for one in skills
        ]
        self._offered = {one.name: one for one in same}
        return same


def _is_same(one: Skill, other: Skill) -> bool:
    return one.digest == other.digest and one.claims == other.claims


def _invoker(runner: Runner, tool: ToolDescription, annotations: Annotations) -> Invoke:
    return partial(runner.invoke, tool, annotations)


async def probe(name: str, entry: McpServer) -> tuple[str, int, int]:
    """Ask a server once, for `xmpp-agent doctor`: return what it says it is, and the numbers of its
    tools and of those that are offered.

    Raises ServerFailed.
    """
    connection = ServerConnection(name, entry)
    async with connection.connected():
        tools = await connection.tools()
        skills = skills_of(name, entry, tools, _not_called)
        return connection.server, len(tools), len(skills)


def _not_called(_tool: ToolDescription, _annotations: Annotations) -> Invoke:
    return lambda _arguments, _context: None
