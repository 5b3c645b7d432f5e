"""`xmpp-agent init`: writes agent.toml and the secret, and prints the server's configuration."""

import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from component import system
from component.cli.frame import Fault, interactive
from component.cli.prompts import Prompt, one_of
from component.private import make_directory, open_private

if TYPE_CHECKING:
    from component.config import Settings

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ComponentConnection:
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
"""The defaults of Prosody and Openfire. ejabberd has none: its guide uses that of Openfire."""

_PLACES: Mapping[str, tuple[str, ...]] = {
    "prosody": ("/usr/bin/prosodyctl", "/usr/local/bin/prosodyctl"),
    "ejabberd": ("/usr/sbin/ejabberdctl", "/opt/ejabberd"),
    "openfire": ("/usr/share/openfire", "/opt/openfire"),
}
"""Where Debian's packages and the installers of the projects put a server."""


def server_block(server: str, connection: ComponentConnection) -> str:
    """Return the block for "prosody", "ejabberd" or "openfire", with its secret in clear."""
    return _BLOCKS[server](connection)


def _prosody(to: ComponentConnection) -> str:
    # The guide (docs/how-to/prosody.md) has the same file.
    return f"""\
-- Prosody: write this to /etc/prosody/conf.d/{to.domain}.cfg.lua, then `systemctl restart prosody`
component_ports = {{ {to.port} }}
component_interfaces = {{ "{"127.0.0.1" if to.local else "*"}" }}

Component {_quoted(to.domain)}
	component_secret = {_quoted(to.secret)}
"""


def _ejabberd(to: ComponentConnection) -> str:
    # The guide (docs/how-to/ejabberd.md) has the same entry.
    return f"""\
# ejabberd: add this to the list under `listen:` in /etc/ejabberd/ejabberd.yml, then
# `ejabberdctl reload_config`
  -
    port: {to.port}
    ip: "{"127.0.0.1" if to.local else "::"}"
    module: ejabberd_service
    access: all
    hosts:
      {_quoted(to.domain)}:
        password: {_quoted(to.secret)}
"""


def _openfire(to: ComponentConnection) -> str:
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


_BLOCKS: Mapping[str, Callable[[ComponentConnection], str]] = {
    "prosody": _prosody,
    "ejabberd": _ejabberd,
    "openfire": _openfire,
}


_SECRET_NAME = "AGENT_SECRET"  # noqa: S105 the variable's name
_DATA = "XMPP_AGENT_STORAGE__PATH"
_SERVERS = tuple(DEFAULT_PORTS)


@click.command(
    epilog="""\b
Examples:
  xmpp-agent init --domain agent.example.com --server prosody
  xmpp-agent init -o /etc/xmpp-agent/agent.toml --domain agent.example.com
  xmpp-agent init --domain agent.localhost --server ejabberd >> component.yml"""
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="XMPP_AGENT_CONFIG",
    default="agent.toml",
    show_default=True,
    help="Path of the file.",
)
@click.option("--domain", help="Domain of the agent, such as agent.example.com.")
@click.option("--host", help="Host name of the XMPP server.  [default: localhost]")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port on which the server accepts components.  [default: 5275 for ejabberd and Openfire,"
    " else 5347]",
)
@click.option(
    "--server",
    type=click.Choice(_SERVERS),
    help="Show only the configuration of this server.  [default: the one that is installed here]",
)
@click.option("--full", is_flag=True, help="Write every setting, with its description.")
@click.option(
    "--force", is_flag=True, help="Overwrite agent.toml, but keep the secret in agent.env."
)
def init(
    output: Path,
    domain: str | None,
    host: str | None,
    port: int | None,
    server: str | None,
    *,
    full: bool,
    force: bool,
) -> None:
    """Create agent.toml and show the server configuration.

    The command generates a secret and stores it in agent.env, next to agent.toml; only you can read
    that file. The server configuration, which contains the secret, goes to stdout; everything else
    goes to stderr. On a terminal the command asks for missing options.

    The data directory is XMPP_AGENT_STORAGE__PATH if that is set.
    """
    path = output
    if path.exists() and not force:
        raise Fault(f"{path} already exists: choose another --output, or overwrite it with --force")
    if path.suffix == ".env":
        raise Fault(
            f"{path}: the name must not end in .env, because the secret is stored in a"
            " file of that name"
        )

    if interactive():
        label = "Domain of the agent, such as agent.example.com"
        domain = domain or Prompt(label, _domain).ask()
        server = server or _ask_server(host)
        host = host or Prompt("Host name of the XMPP server", _host, "localhost").ask()
        port = (
            port
            or Prompt(
                "Port on which the server accepts components", _port, str(_default_port(server))
            ).ask()
        )
    if not domain:
        raise click.UsageError(
            "--domain is missing: give the domain of the agent, such as agent.example.com"
        )
    if not server and not interactive() and (installed := _installed(host)):
        server = installed
        click.echo(
            f"This is for {server}, which is installed here; --server names another one.", err=True
        )
    host = host or "localhost"
    port = port or _default_port(server)

    text = _text(_settings(domain, host, port), full=full)
    secret, kept = _secret(path.with_suffix(".env"))
    connection = ComponentConnection(domain=domain, secret=secret, host=host, port=port)
    try:
        make_directory(path.parent)
        if not kept:
            _keep(path.with_suffix(".env"), secret)
        with open_private(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise Fault(f"{error.filename} cannot be written: {error.strerror}") from None

    _report(path, connection, server, kept)


def _ask_server(host: str | None) -> str | None:
    choices = (*_SERVERS, "other")
    default = _installed(host) or _SERVERS[0]
    answer = Prompt(f"XMPP server ({', '.join(choices)})", one_of(*choices), default).ask()
    return None if answer == "other" else answer


def _installed(host: str | None) -> str | None:
    """Return the server that is installed on this machine, unless another `host` or several."""
    if host and host not in _LOOPBACK:
        return None
    found = [
        name for name, places in _PLACES.items() if any(Path(each).exists() for each in places)
    ]
    return found[0] if len(found) == 1 else None


def _domain(text: str) -> str:
    try:
        _settings(text.strip(), "localhost", DEFAULT_PORTS["prosody"])
    except Fault as fault:
        raise ValueError(" ".join(fault.sentences)) from None
    return text.strip()


def _host(text: str) -> str:
    if not re.fullmatch(r"[\w.:-]+", text.strip()):
        raise ValueError("expected a host name or an IP address")
    return text.strip()


def _port(text: str) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= 65535:
        raise ValueError("expected a number from 1 to 65535")
    return int(text)


def _default_port(server: str | None) -> int:
    return DEFAULT_PORTS[server or "prosody"]


def _settings(domain: str, host: str, port: int) -> "Settings":
    # Imported here, because --help needs no pydantic.
    from pydantic import ValidationError  # noqa: PLC0415

    from component.config import Settings  # noqa: PLC0415
    from component.config.problems import dotted, sentences  # noqa: PLC0415

    if not domain.partition(".")[2]:
        raise Fault(
            f"the domain {domain} has only one label: use a subdomain of your users' domain, such"
            " as agent.example.com"
        )
    # The secret is not needed to check the other settings.
    server = {"host": host, "port": port, "component_domain": domain, "component_secret": "-"}
    try:
        return Settings.model_validate({"server": server})
    except ValidationError as error:
        wrong = [f"{dotted(key)} {sentence}" for key, sentence in sentences(error, Settings)]
        raise Fault(*wrong) from None


def _text(settings: "Settings", *, full: bool) -> str:
    """Return the text of the file, with every setting if it is to be `full`."""
    # --help needs none of it.
    from component.cli.reference import agent_toml  # noqa: PLC0415
    from component.cli.starter import starter_toml  # noqa: PLC0415
    from component.config.describe import toml  # noqa: PLC0415
    from component.config.toml_file import escape  # noqa: PLC0415

    server = {
        "host": toml(escape(settings.server.host)),
        "port": toml(settings.server.port),
        "component_domain": toml(escape(settings.server.address)),
        "component_secret": toml(f"${{{_SECRET_NAME}}}"),
    }
    allowed_domains = toml([escape(each) for each in settings.allowed_domains])
    data = os.environ.get(_DATA)
    if full:
        values = {f"server.{name}": value for name, value in server.items()}
        values["agent.allowed_domains"] = allowed_domains
        if data:
            values["storage.path"] = toml(escape(data))
        return agent_toml(values)
    return starter_toml(
        {
            **server,
            "allowed_domains": allowed_domains,
            "somebody": toml([f"juliet@{settings.allowed_domains[0]}"]),
            "data": toml(escape("./data" if data is None else data)),
        }
    )


def _secret(beside: Path) -> tuple[str, str | None]:
    """Return the secret, and where it is already stored (None for a new one).

    The secret that `load` would find is preferred, so that the server gets the one that the agent
    will use.
    """
    from dotenv import dotenv_values  # noqa: PLC0415

    try:
        written = dotenv_values(beside, interpolate=False).get(_SECRET_NAME)
    except (OSError, UnicodeDecodeError):
        raise Fault(f"{beside} cannot be read: correct or remove it") from None
    if secret := os.environ.get(_SECRET_NAME):
        kept = f"the environment ({_SECRET_NAME})"
    elif secret := written:
        kept = str(beside)
    else:
        return system.token_urlsafe(32), None
    if not secret.isprintable():
        raise Fault(
            f"the secret from {kept} contains line breaks or control characters: choose another one"
        )
    return secret, kept


def _keep(beside: Path, secret: str) -> None:
    # Created with its final mode, so that others can never read it. Other variables stay.
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
        if file.tell() > 0:
            file.write("\n")
        file.write(f"{_SECRET_NAME}={secret}\n")


def _report(
    path: Path, connection: ComponentConnection, server: str | None, kept: str | None
) -> None:
    def say(text: str) -> None:
        click.echo(text, err=True)

    if kept:
        say(f"Wrote {path}; it uses the existing secret from {kept}.")
    else:
        say(f"Wrote {path}, and the secret to {path.with_suffix('.env')}.")
    if not connection.local:
        say(
            "The server is on another machine: without TLS, anybody on the network between can"
            " read the messages. Set tls = true in [server], or use a private network."
        )
    this = "this" if server else "the block for your server"
    say(f"\n1. Add {this} to the configuration of the server (it contains the secret):\n")
    for index, name in enumerate([server] if server else _SERVERS):
        click.echo(("\n" if index else "") + server_block(name, connection), nl=False)
    found = path == Path(os.environ.get("XMPP_AGENT_CONFIG") or "agent.toml")
    config = "" if found else f" --config {shlex.quote(str(path))}"
    say(f"\n2. Check the set-up:   xmpp-agent doctor{config}")
    say(f"3. Start the agent:    xmpp-agent run{config}")
    say(f"4. Send /help to {connection.domain} from any client.")
