"""`xmpp-agent health`: whether the service works, for the health checks of containers."""

import json
from pathlib import Path

import click

from component.cli.frame import Fault, config_option, load_settings

_TIMEOUT_S = 10.0


@click.command()
@config_option
@click.option(
    "--connected", is_flag=True, help="Also fail while the service is not connected to its server."
)
def health(config: Path, *, connected: bool) -> None:
    """Check whether the service runs and answers. The exit code is 0 if it does, otherwise 1.

    An instance that waits for another one to disconnect is healthy, but not connected.

    \b
    Examples:
      xmpp-agent health
      xmpp-agent health --connected --config /etc/xmpp-agent/agent.toml
    """
    # --help needs none of it.
    from component.control.client import ControlError, ControlRequest, ask  # noqa: PLC0415

    directory = load_settings(config).storage.path
    try:
        answer = ask(directory, ControlRequest("status"), _TIMEOUT_S)
    except ControlError as error:
        raise Fault(str(error)) from None
    if answer is None:
        raise Fault(f"The service is not running on {directory}.")
    if answer.error is not None:
        raise Fault(answer.error)
    since = json.loads(bytes(answer.value))["connected_since"]
    if connected and since is None:
        raise Fault("The service runs, and is not connected to the XMPP server.")
    click.echo(f"The service runs, connected since {since}." if since else "The service runs.")
