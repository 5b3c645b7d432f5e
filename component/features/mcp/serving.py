"""Keeps a server running and offers its tools while they change, with a connection for each person.

A server keeps state, such as open pages and sessions, so people do not share a connection unless
the settings say so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from component.features.mcp.calls import Runner
from component.features.mcp.connection import ServerConnection
from component.features.mcp.errors import ServerFailed
from component.features.mcp.guard import CLOSED
from component.features.mcp.tools import skills_of
from component.skills.errors import SkillUnavailable

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

    from component.features.mcp.settings import McpServer
    from component.skills.skill import Skill
    from component.skills.sources import Offer


_log = structlog.get_logger("component.features.mcp")

_STABLE_S: Final = 60.0


class Backoff:
    """Seconds to wait before a server is started again: they double with each failure in a row."""

    FIRST_S: Final = 1.0
    LONGEST_S: Final = 60.0

    def __init__(self) -> None:
        self._wait = self.FIRST_S

    def next(self, lasted_s: float) -> float:
        """Return the seconds to wait after a connection that lasted so long."""
        if lasted_s > _STABLE_S:
            self._wait = self.FIRST_S
        wait, self._wait = self._wait, min(self._wait * 2, self.LONGEST_S)
        return wait


class _Person:
    def __init__(self) -> None:
        self.connection: ServerConnection | None = None
        self.starting: anyio.Event | None = None
        self.backoff = Backoff()
        self.not_before = 0.0
        self.reason = ""


class Pool:
    """The connections to a server.

    Attributes:
        common: the connection that lists the tools; None while the server does not answer.
        wanted: set when a call waits for that connection.
    """

    def __init__(self, name: str, entry: McpServer, group: TaskGroup) -> None:
        self.common: ServerConnection | None = None
        self.wanted = anyio.Event()
        self._reason = "it is starting"
        self._begins_anew = False
        self._changed = anyio.Event()
        self._name = name
        self._entry = entry
        self._group = group
        self._people: dict[str, _Person] = {}

    def listed(self, connection: ServerConnection) -> None:
        """Note the connection that has listed the tools."""
        self.common = connection
        self._tell()

    def ended(self, reason: str) -> None:
        """Note that the connection that lists the tools has ended, or could not be made.

        If it had worked before, the next call opens a new one. Otherwise calls fail until the next
        attempt.
        """
        self._begins_anew = self.common is not None
        self.common, self._reason = None, reason
        self.wanted = anyio.Event()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def get(self, principal: str) -> ServerConnection:
        """Return the connection for a person's calls. If it was closed, open a new one.

        Raises SkillUnavailable, if the server does not answer, or too many people use it.
        """
        person = self._people.get(principal)
        if person is not None and person.connection is not None and person.connection.alive:
            return person.connection
        common = await self._common()
        if self._entry.shared:
            return common
        person = self._people.get(principal)
        if person is None:
            self._make_space()
            person = self._people[principal] = _Person()
        if person.starting is None and not (person.connection and person.connection.alive):
            if anyio.current_time() < person.not_before:
                raise self._unavailable(person.reason)
            person.starting = anyio.Event()
            self._group.start_soon(self._keep, principal, person)
        if person.starting is not None:
            await person.starting.wait()
        if person.connection is None or not person.connection.alive:
            raise self._unavailable(person.reason or CLOSED)
        return person.connection

    async def _common(self) -> ServerConnection:
        """Return the connection that lists the tools. Raises SkillUnavailable."""
        with anyio.move_on_after(self._entry.start_timeout_s):
            while self.common is None or not self.common.alive:
                if self.common is None and not self._begins_anew:
                    break
                self.wanted.set()
                await self._changed.wait()
        if self.common is None or not self.common.alive:
            raise self._unavailable(self._reason)
        return self.common

    def _unavailable(self, reason: str) -> SkillUnavailable:
        return SkillUnavailable(
            f"The MCP server {self._name} is not available: {reason}.", begun=False
        )

    def _make_space(self) -> None:
        """Close the connection that nobody has used for the longest time, if there are too many.

        Raises SkillUnavailable if all are in use.
        """
        now = anyio.current_time()
        for principal, person in list(self._people.items()):
            waits = person.starting is not None or now < person.not_before
            if person.connection is None and not waits:
                del self._people[principal]
        open_ones = {who: one.connection for who, one in self._people.items()}
        if len(open_ones) < self._entry.max_connections:
            return
        idle = [
            (one.last_used, who)
            for who, one in open_ones.items()
            if one is not None and not one.busy
        ]
        if not idle:
            raise self._unavailable("all of its connections are in use")
        _, principal = min(idle)
        found = open_ones[principal]
        assert found is not None
        found.close()
        del self._people[principal]

    async def _keep(self, principal: str, person: _Person) -> None:
        """Run the connection of a person until it ends."""
        connection = ServerConnection(self._name, self._entry, idle_s=self._entry.idle_s)
        started = person.starting
        assert started is not None
        began = anyio.current_time()

        try:
            async with connection.connected():
                person.connection, person.starting = connection, None
                started.set()
                await anyio.sleep_forever()
        except ServerFailed as error:
            lasted = anyio.current_time() - began
            if not connection.closed_here:
                person.reason = str(error)
                if not connection.opened:
                    person.not_before = anyio.current_time() + person.backoff.next(lasted)
                _log.warning(
                    "the connection of a person to an MCP server has ended",
                    server=self._name,
                    principal=principal,
                    reason=str(error),
                )
            if connection.lost.is_set() and self.common is not None:
                self.common.changed.set()  # the server was restarted: it may have other tools
        finally:
            if person.connection is connection:
                person.connection = None
            if person.starting is started:
                person.starting = None
            started.set()


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
                    skills_of(
                        self._name,
                        self._entry,
                        tools,
                        lambda tool, effects: partial(runner.invoke, tool, effects),
                    )
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
            there
            if (there := before.get(one.name))
            and (there.digest, there.claims) == (one.digest, one.claims)
            else one
            for one in skills
        ]
        self._offered = {one.name: one for one in same}
        return same


async def probe(name: str, entry: McpServer) -> tuple[str, int, int]:
    """Ask a server once, for `xmpp-agent doctor`: return what it says it is, and the numbers of its
    tools and of those that are offered.

    Raises ServerFailed.
    """
    connection = ServerConnection(name, entry)
    async with connection.connected():
        tools = await connection.tools()
        skills = skills_of(name, entry, tools, lambda _tool, _effects: lambda *_: None)
        return connection.server, len(tools), len(skills)
