"""`xmpp-agent`: the group, and the table that says where each command is."""

import os

import click

from component.cli.exit_codes import ExitCode
from component.cli.frame import Lazy, LazyGroup

COMMANDS = {
    "init": Lazy("component.cli.init:init", "Write agent.toml and show the server's part."),
    "doctor": Lazy("component.cli.doctor:doctor", "Check everything that can be wrong."),
    "run": Lazy("component.cli.run:run", "Run the agent until it is told to stop."),
    "skills": Lazy("component.cli.skills:skills", "Show the skills that are offered."),
    "status": Lazy("component.cli.admin:status", "How the service is."),
    "tasks": Lazy("component.cli.tasks:tasks", "See, end and begin again what is under way."),
    "audit": Lazy("component.cli.audit:audit", "See what was done and decided, and verify it."),
    "pause": Lazy("component.cli.admin:pause", "Take on no new work for the time being."),
    "resume": Lazy("component.cli.admin:resume", "Take on new work again."),
    "agents": Lazy("component.cli.agents:agents", "See the agents, pause and end them."),
    "budget": Lazy("component.cli.agents:budget", "What was spent on models, by whom."),
    "demo": Lazy("component.cli.demo:demo", "See it all work, with a server of its own."),
}

_EXAMPLES = """\b
Examples:
  xmpp-agent init --domain agent.example.com --server prosody
  xmpp-agent run --config agent.toml"""

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"  {c.value:<3} {c.meaning}" for c in ExitCode)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=f"{_EXAMPLES}\n\n{_EXIT_CODES}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="xmpp-agent-component", prog_name="xmpp-agent")
def group() -> None:
    """Serve AI agent skills over XMPP, as a component of your own server."""


def main() -> None:
    """Run the command line; ends the process with one of the documented exit codes.

    What it makes is for its user alone: conversations, memories and secrets are in it.
    """
    os.umask(0o077)
    group(prog_name="xmpp-agent")
