"""The MCP servers that `tests/tools/mcp-servers.sh` installs."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "mcp-servers"


def python_server(name: str) -> str:
    """Return the path of a server from PyPI. Fails if it is not installed."""
    return _there(FOLDER / "python" / "bin" / f"mcp-server-{name}")


def node_server(name: str) -> str:
    """Return the path of a server from npm. Fails if it is not installed."""
    return _there(FOLDER / "node_modules" / ".bin" / f"mcp-server-{name}")


def _there(path: Path) -> str:
    assert path.exists(), f"{path} is missing: run tests/tools/mcp-servers.sh"
    return str(path)
