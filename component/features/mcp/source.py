"""The source of the skills of one MCP server. It imports the SDK when it runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from component import system
from component.skills.errors import SkillLoadError

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from component.features.mcp.settings import McpServer
    from component.skills.sources import Offer


class McpSource:
    """Offers the tools of an MCP server as skills.

    Args:
        server: the name of the server in the settings.
        entry: its settings.
    """

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
