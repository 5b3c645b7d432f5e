"""`xmpp-agent notifications`: quiet hours and held notifications, with or without the service."""

import click

from component.cli.operator import command_of
from component.features.notifications.commands import DROP, HELD, QUIET


@click.group()
def notifications() -> None:
    """List and drop held notifications, and set the quiet hours of people.

    If the service is running on the same data directory, it executes these commands. Otherwise they
    change the database.
    """


notifications.add_command(
    command_of(
        HELD,
        "list",
        "xmpp-agent notifications list\n"
        "xmpp-agent notifications list --person juliet@example.com\n"
        "xmpp-agent notifications list --json | jq -r '.[].title'",
        about="list the notifications that are held",
    )
)
notifications.add_command(
    command_of(
        DROP,
        "drop",
        "xmpp-agent notifications drop 0f3c9a\n"
        "xmpp-agent notifications drop all --person juliet@example.com",
        about="delete a held notification, or all of a person",
    )
)
notifications.add_command(
    command_of(
        QUIET,
        "quiet",
        "xmpp-agent notifications quiet --person juliet@example.com\n"
        "xmpp-agent notifications quiet --person juliet@example.com --hours 22:00-07:00"
        " --zone Europe/Paris",
        about="show or set the hours in which a person is not notified",
    )
)
