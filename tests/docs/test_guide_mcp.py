"""The guide to MCP servers: each section that it shows is valid."""

import re
import tomllib
from pathlib import Path

from component.features.mcp.settings import McpServer

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "mcp.md"


def test_every_server_of_the_mcp_guide_is_valid() -> None:
    blocks = re.findall(r"^( *)```toml\n(.*?)^ *```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    found = [tomllib.loads(text) for _, text in blocks]
    servers = {name: entry for block in found for name, entry in block["mcp"].items()}
    assert servers.keys() >= {"time", "issues", "files", "github", "git"}
    for entry in servers.values():
        McpServer.model_validate(entry)


def test_the_mcp_guide_declares_a_server_in_two_lines() -> None:
    program = "/opt/mcp-server-time/bin/mcp-server-time"
    assert f'\n[mcp.time]\ncommand = ["{program}"]\n```' in GUIDE.read_text()
