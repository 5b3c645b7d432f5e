"""`xmpp-agent agents` and `xmpp-agent budget`: the agents, and what is spent on models."""

import click

from component.cli.operator import command_of
from component.commands.agents import AGENTS, BUDGET, KILL_AGENT, PAUSE_AGENT, RESUME_AGENT


@click.group()
def agents() -> None:
    """See the agents, and let them pause, go on, or end.

    While the service runs on the same data directory, these go through it. Otherwise they work on
    the storage, and hold from the next start on.
    """


agents.add_command(
    command_of(AGENTS, "list", "xmpp-agent agents list\nxmpp-agent agents list --json")
)
agents.add_command(command_of(PAUSE_AGENT, "pause", "xmpp-agent agents pause researcher"))
agents.add_command(command_of(RESUME_AGENT, "resume", "xmpp-agent agents resume researcher"))
agents.add_command(
    command_of(
        KILL_AGENT,
        "kill",
        "xmpp-agent agents kill researcher\nxmpp-agent agents kill --yes researcher",
        asks="{name} ends for good: what it is at is stopped, it answers nobody any more, and it"
        " cannot be resumed. Its memory stays on disk.\nKill {name}?",
    )
)

budget = command_of(
    BUDGET,
    "budget",
    "xmpp-agent budget\nxmpp-agent budget --day 2026-11-21\nxmpp-agent budget --json | jq .",
)
