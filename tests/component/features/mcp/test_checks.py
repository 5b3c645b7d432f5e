"""`xmpp-agent doctor` names each MCP server, whether it answers, and how many tools it has."""

import pytest

from component.app.features import make_settings
from component.config import Server
from component.features.mcp.feature import McpFeature
from tests.component.features.mcp.serving import scripted

pytestmark = pytest.mark.anyio


async def test_each_server_is_named() -> None:
    settings = make_settings(
        server=Server(component_domain="agent.example.com", component_secret="s"),
        mcp={
            "good": scripted(tools=["e*"]),
            "none": scripted(tools=["x"]),
            "bad": scripted("exit"),
            "mute": scripted("mute", start_timeout_s=0.2),
        },
    )
    checks = McpFeature(settings).availability()
    found = {check.name: (check.verdict, check.text) async for check in checks}
    assert found == {
        "mcp good": ("ok", "scripted 1, MCP 2025-11-25 has 19 tools, of which 2 are offered"),
        "mcp none": ("warning", "scripted 1, MCP 2025-11-25 has 19 tools, of which 0 are offered"),
        "mcp bad": (
            "failed",
            "the server does not work: it ended with exit code 3: no configuration",
        ),
        "mcp mute": ("failed", "the server does not work: it does not answer within 0.2 seconds"),
    }
