"""The tools of MCP servers as skills (https://modelcontextprotocol.io).

`serving` keeps a server running, offers its tools and gives each person a connection; a
`connection` is one of them, over the streams of `stdio` or `http`, whose messages `guard`
bounds; `calls` runs a tool; `tools` makes skills of tools, `contents` outputs of results, and
`questions` questions of the server's requests. They import the SDK, so they are imported only where
a server is configured.

A server is not trusted: what it says about its tools is a claim, its texts may come from anybody,
and it may send anything at any rate. A server that misbehaves costs its own calls only.
"""

TURNED_ON_BY = ("mcp",)
"""The sections that turn it on; without one of them, its settings are not imported."""
