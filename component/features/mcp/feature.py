"""The tools of MCP servers as skills."""

import importlib
from collections.abc import AsyncIterator

from anyio.abc import TaskStatus

from component import system
from component.features.feature import Feature, Opened
from component.features.mcp.settings import SERVERS, McpServer
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.skills.errors import SkillLoadError
from component.skills.sources import Offer


class McpSource:
    """Offers the tools of an MCP server as skills."""

    def __init__(self, server: str, entry: McpServer) -> None:
        self.name = f"mcp.{server}"
        self._server = server
        self._entry = entry

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Keep the server running, and offer its tools until cancelled.

        While it is down its skills stay, and a call fails at once. Raises SkillLoadError if the SDK
        is not installed.
        """
        try:
            # It takes a second, in which the event loop has other work.
            serving = await system.in_thread(
                importlib.import_module, "component.features.mcp.serving"
            )
        except ImportError as error:
            raise SkillLoadError(
                f"The MCP server {self._server} needs the mcp extra:"
                " pip install 'xmpp-agent-component[mcp]'."
            ) from error
        await serving.Serving(self._server, self._entry).run(offer, task_status)


class McpFeature(Feature):
    """The MCP servers of the settings."""

    def open(self, kernel: Kernel) -> Opened:
        """Make a source of skills for each server."""
        servers = self.settings[SERVERS].items()
        return Opened(remote_sources=[McpSource(name, entry) for name, entry in servers])

    async def availability(self) -> AsyncIterator[Check]:
        """Start or call each server, and list its tools."""
        try:
            # Loading the SDK takes a second.
            from component.features.mcp.errors import ServerFailed  # noqa: PLC0415
            from component.features.mcp.serving import probe  # noqa: PLC0415
        except ImportError:
            text = "MCP servers need the mcp extra: pip install 'xmpp-agent-component[mcp]'"
            yield Check("mcp", "failed", text)
            return
        for name, entry in self.settings[SERVERS].items():
            try:
                server, tools, offered = await probe(name, entry)
            except ServerFailed as error:
                yield Check(f"mcp {name}", "failed", f"the server does not work: {error}")
                continue
            text = f"{server} has {tools} tools, of which {offered} are offered"
            yield Check(f"mcp {name}", "ok" if offered else "warning", text)


FEATURE = McpFeature
