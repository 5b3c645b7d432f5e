"""`xmpp-agent`: the group, and the table of its commands."""

import os

import click

from component.cli.exit_codes import ExitCode
from component.cli.frame import Lazy, LazyGroup

COMMANDS = {
    "init": Lazy("component.cli.init:init", "Create agent.toml and show the server configuration."),
    "doctor": Lazy("component.cli.doctor:doctor", "Check the configuration and the connection."),
    "run": Lazy("component.cli.run:run", "Run the agent until it is stopped."),
    "worker": Lazy("component.cli.worker:worker", "Run skills for services on other machines."),
    "skills": Lazy("component.cli.skills:skills", "List the skills."),
    "status": Lazy("component.cli.admin:status", "Show the state of the service."),
    "tasks": Lazy("component.cli.tasks:tasks", "List, cancel and retry tasks."),
    "schedules": Lazy(
        "component.cli.schedules:schedules", "List, add, pause and remove schedules."
    ),
    "watches": Lazy("component.cli.watches:watches", "List, pause and remove watches."),
    "notifications": Lazy(
        "component.cli.notifications:notifications", "List and drop held notifications."
    ),
    "audit": Lazy("component.cli.audit:audit", "Search and verify the audit log."),
    "pause": Lazy("component.cli.admin:pause", "Reject new requests, except from admins."),
    "resume": Lazy("component.cli.admin:resume", "Accept new requests again."),
    "agents": Lazy("component.cli.agents:agents", "List, pause and shut down agents."),
    "memory": Lazy("component.cli.memory:memory", "Export, import and delete memories."),
    "budget": Lazy("component.cli.agents:budget", "Show what language models have cost."),
    "demo": Lazy("component.cli.demo:demo", "Run a demonstration with a built-in XMPP server."),
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
    """Connect AI agents and their skills to an XMPP server."""


def main() -> None:
    """Run the command line; end the process with one of the documented exit codes.

    Files are created for the user alone: they contain conversations, memories and secrets.
    """
    os.umask(0o077)
    group(prog_name="xmpp-agent")
