"""`xmpp-agent tasks`: everybody's durable work, with the service running or without it."""

import click

from component.cli.operator import command_of
from component.commands.tasks import ALL_TASKS, CANCEL, RETRY, TASK


@click.group()
def tasks() -> None:
    """See, end and begin again what is under way.

    While the service runs on the same data directory, these go through it. Otherwise they work on
    the storage: what is cancelled ends at once, what is tried again begins at the next start.
    """


tasks.add_command(
    command_of(
        ALL_TASKS,
        "list",
        "xmpp-agent tasks list --state running\n"
        "xmpp-agent tasks list --principal juliet@example.com --limit 100\n"
        "xmpp-agent tasks list --json | jq -r '.[].id'",
        # The operator has no tasks of its own to leave the others out for.
        hidden=("all",),
    )
)
tasks.add_command(
    command_of(
        TASK,
        "show",
        "xmpp-agent tasks show 9f86d081884c7d659a2feaa0c55ad015\n"
        "xmpp-agent tasks show --json 9f86d081884c7d659a2feaa0c55ad015 | jq .outputs",
    )
)
tasks.add_command(
    command_of(CANCEL, "cancel", "xmpp-agent tasks cancel 9f86d081884c7d659a2feaa0c55ad015")
)
tasks.add_command(
    command_of(
        RETRY,
        "retry",
        "xmpp-agent tasks retry 9f86d081884c7d659a2feaa0c55ad015\n"
        "xmpp-agent tasks retry --force 9f86d081884c7d659a2feaa0c55ad015",
    )
)
