"""`xmpp-agent watches`: everybody's watches, with or without a running service."""

import click

from component.cli.operator import command_of
from component.features.watches.commands import WATCH


@click.group()
def watches() -> None:
    """List, show, pause, resume and remove watches.

    If the service is running on the same data directory, it executes these commands. Otherwise they
    change the database.
    """


watches.add_command(
    command_of(
        WATCH,
        "list",
        "xmpp-agent watches list\nxmpp-agent watches list --json | jq -r '.[].id'",
        hidden=("name",),
        given={"action": "list"},
        about="list the watches",
    )
)
for _action, _about in (
    ("show", "show a watch and what it has done"),
    ("pause", "handle no events of a watch until it is resumed"),
    ("resume", "handle the events of a paused watch again"),
    ("remove", "remove a watch of a person"),
):
    watches.add_command(
        command_of(
            WATCH,
            _action,
            f"xmpp-agent watches {_action} failed-builds\n"
            f"xmpp-agent watches {_action} juliet@example.com/failed-builds --json",
            given={"action": _action},
            arguments=("name",),
            about=_about,
        )
    )
