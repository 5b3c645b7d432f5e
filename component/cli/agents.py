"""`xmpp-agent agents` and `xmpp-agent budget`: the agents, and the cost of models."""

import click

from component.cli.operator import command_of
from component.features.agents_admin.commands import (
    AGENTS,
    BUDGET,
    KILL_AGENT,
    PAUSE_AGENT,
    RESUME_AGENT,
)
from component.features.agents_admin.tell import TELL


@click.group()
def agents() -> None:
    """List agents, give them instructions, and pause, resume or shut them down.

    If the service is running on the same data directory, it executes these commands. Otherwise they
    change the database and take effect when the service starts.
    """


agents.add_command(
    command_of(AGENTS, "list", "xmpp-agent agents list\nxmpp-agent agents list --json")
)
agents.add_command(
    command_of(
        TELL,
        "tell",
        'xmpp-agent agents tell assistant "Sum up this week." --for juliet@example.com\n'
        'xmpp-agent agents tell assistant "Sum up." --for juliet@example.com --budget total --wait',
        options=("for",),
    )
)
agents.add_command(command_of(PAUSE_AGENT, "pause", "xmpp-agent agents pause researcher"))
agents.add_command(command_of(RESUME_AGENT, "resume", "xmpp-agent agents resume researcher"))
agents.add_command(
    command_of(
        KILL_AGENT,
        "kill",
        "xmpp-agent agents kill researcher\nxmpp-agent agents kill --yes researcher",
        asks="This shuts {name} down permanently: its current work is stopped, it no longer"
        " answers, and it cannot be resumed. Its memory stays on disk.\nKill {name}?",
    )
)

budget = command_of(
    BUDGET,
    "budget",
    "xmpp-agent budget\nxmpp-agent budget --day 2026-11-21\nxmpp-agent budget --json | jq .",
)
