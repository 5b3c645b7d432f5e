"""The configuration blocks for XMPP servers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Attachment:
    """The agent's settings for the connection to its server."""

    domain: str
    secret: str
    host: str
    port: int

    @property
    def local(self) -> bool:
        """Whether the server runs on the agent's own machine."""
        return self.host in _LOOPBACK


DEFAULT_PORTS: Mapping[str, int] = {"prosody": 5347, "ejabberd": 5275, "openfire": 5275}


def server_block(server: str, attachment: Attachment) -> str:
    """Return the block for "prosody", "ejabberd" or "openfire", with its secret in clear."""
    return _BLOCKS[server](attachment)


def _prosody(to: Attachment) -> str:
    interfaces = "" if to.local else '\n-- component_interfaces = { "*" }'
    ports = f"\n-- component_ports = {{ {to.port} }}"
    is_default = to.local and to.port == DEFAULT_PORTS["prosody"]
    above = (
        ""
        if is_default
        else (
            "-- In the global part, above the first VirtualHost, without the dashes:"
            f"{ports}{interfaces}\n"
        )
    )
    return f"""\
-- Prosody: at the end of /etc/prosody/prosody.cfg.lua, then `systemctl restart prosody`
{above}Component {_quoted(to.domain)}
    component_secret = {_quoted(to.secret)}
"""


def _ejabberd(to: Attachment) -> str:
    address = "127.0.0.1" if to.local else "::"
    return f"""\
# ejabberd: in /etc/ejabberd/ejabberd.yml add the entry to the list under `listen:`, then
# `ejabberdctl reload_config`
# Give each component a port of its own: ejabberd offers every domain in `hosts` to all who connect.
listen:
  -
    port: {to.port}
    ip: "{address}"
    module: ejabberd_service
    access: all
    hosts:
      {_quoted(to.domain)}:
        password: {_quoted(to.secret)}
"""


def _openfire(to: Attachment) -> str:
    label = to.domain.partition(".")[0]
    return f"""\
# Openfire: in the admin console, Server > Server Settings > External Components
#   Service enabled, plain-text port {to.port}
#   Allow to connect, subdomain:  {label}
#   Shared secret:                {to.secret}
"""


def _quoted(text: str) -> str:
    # Lua and YAML agree on this syntax; domains and secrets contain no control characters.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_BLOCKS: Mapping[str, Callable[[Attachment], str]] = {
    "prosody": _prosody,
    "ejabberd": _ejabberd,
    "openfire": _openfire,
}
