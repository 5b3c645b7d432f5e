"""`xmpp-agent run`: runs the service until it is stopped."""

from pathlib import Path

import click

from component.cli.frame import ExitCode, config_option, fault_of


@click.command()
@config_option
def run(config: Path) -> None:
    """Connect to the XMPP server and run until SIGTERM or Ctrl-C.

    On the first signal the agent finishes the current requests and then stops. On a second signal
    it stops immediately, with exit code 1.

    \b
    Examples:
      xmpp-agent run
      xmpp-agent run --config /etc/xmpp-agent/agent.toml
    """
    # Imported here, because --help needs none of it.
    from component.app.process import StartError, run_service  # noqa: PLC0415

    try:
        orderly = run_service(config)
    except StartError as error:
        raise fault_of(error) from None
    if not orderly:
        raise click.exceptions.Exit(ExitCode.FAILURE)
