"""The tools of MCP servers as skills."""

from collections.abc import AsyncIterator, Iterable
from typing import ClassVar, Final

from component.features.feature import Feature, Opened
from component.features.mcp import TURNED_ON_BY
from component.features.mcp.settings import SERVERS, McpServer
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.skills.sources import ExtraSource, SkillSource

_INSTALL: Final = "the mcp extra: pip install 'xmpp-agent-component[mcp]'"


def mcp_source(server: str, entry: McpServer) -> ExtraSource:
    """Return the source of the tools of an MCP server."""
    missing = f"The MCP server {server} needs {_INSTALL}."
    module = "component.features.mcp.serving"
    return ExtraSource(f"mcp.{server}", module, missing, server, entry)


class McpFeature(Feature):
    """The MCP servers of the settings."""

    reloads: ClassVar = TURNED_ON_BY

    def remote_sources(self) -> Iterable[SkillSource]:
        """Return a source of skills for each server."""
        return [mcp_source(name, entry) for name, entry in self.settings[SERVERS].items()]

    def open(self, kernel: Kernel) -> Opened:
        """Contribute nothing else."""
        return Opened()

    async def availability(self) -> AsyncIterator[Check]:
        """Start or call each server, and list its tools."""
        try:
            # Loading the SDK takes a second.
            from component.features.mcp.errors import ServerFailed  # noqa: PLC0415
            from component.features.mcp.serving import probe  # noqa: PLC0415
        except ImportError:
            yield Check("mcp", "failed", f"MCP servers need {_INSTALL}")
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
