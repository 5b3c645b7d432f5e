"""The tools of MCP servers as skills."""

from collections.abc import AsyncIterator

from component.features.feature import Feature, Opened
from component.features.mcp.settings import SERVERS
from component.features.mcp.source import McpSource
from component.kernel.check import Check
from component.kernel.kernel import Kernel


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
            from component.features.mcp.checks import look  # noqa: PLC0415
            from component.features.mcp.errors import ServerFailed  # noqa: PLC0415
        except ImportError:
            text = "MCP servers need the mcp extra: pip install 'xmpp-agent-component[mcp]'"
            yield Check("mcp", "failed", text)
            return
        for name, entry in self.settings[SERVERS].items():
            try:
                server, tools, offered = await look(name, entry)
            except ServerFailed as error:
                yield Check(f"mcp {name}", "failed", f"the server does not work: {error}")
                continue
            text = f"{server} has {tools} tools, of which {offered} are offered"
            yield Check(f"mcp {name}", "ok" if offered else "warning", text)


FEATURE = McpFeature
