"""`xmpp-agent tasks`: everybody's tasks, with or without a running service."""

import click

from component.cli.operator import command_of
from component.features.task_commands.commands import (
    ALL_TASKS,
    CANCEL,
    QUEUES,
    RELEASE,
    RETRY,
    TASK,
)


@click.group()
def tasks() -> None:
    """List, cancel, retry or release tasks.

    If the service is running on the same data directory, it executes these commands. Otherwise they
    change the database: a cancelled task ends immediately, and a retried one starts when the
    service does.
    """


tasks.add_command(
    command_of(
        ALL_TASKS,
        "list",
        "xmpp-agent tasks list --state running\n"
        "xmpp-agent tasks list --principal juliet@example.com --limit 100\n"
        "xmpp-agent tasks list --json | jq -r '.[].id'",
        # The operator has no tasks, so there is no option to leave out those of others.
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
tasks.add_command(
    command_of(RELEASE, "release", "xmpp-agent tasks release 9f86d081884c7d659a2feaa0c55ad015")
)
tasks.add_command(command_of(QUEUES, "queues", "xmpp-agent tasks queues --json"))
