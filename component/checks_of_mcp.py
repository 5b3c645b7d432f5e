"""The checks of `xmpp-agent doctor` about MCP servers: whether each answers."""

from collections.abc import AsyncIterator

from component.kernel.check import Check
from component.settings import Settings


async def check_mcp(settings: Settings) -> AsyncIterator[Check]:
    """Start or call each MCP server, and list its tools."""
    if not settings.mcp:
        return
    try:
        # Only who has such servers needs the SDK, which takes a second to load.
        from component.sources.mcp.errors import ServerFailed  # noqa: PLC0415
        from component.sources.mcp.looking import look  # noqa: PLC0415
    except ImportError:
        yield Check(
            "mcp",
            "failed",
            "MCP servers need the mcp extra: pip install 'xmpp-agent-component[mcp]'",
        )
        return
    for name, entry in settings.mcp.items():
        try:
            server, tools, offered = await look(name, entry)
        except ServerFailed as error:
            yield Check(f"mcp {name}", "failed", f"the server does not work: {error}")
            continue
        text = f"{server} has {tools} tools, of which {offered} are offered"
        yield Check(f"mcp {name}", "ok" if offered else "warning", text)
