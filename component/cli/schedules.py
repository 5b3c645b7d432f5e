"""`xmpp-agent schedules`: everybody's schedules, with or without a running service."""

import click

from component.cli.operator import command_of
from component.features.schedules.commands import SCHEDULE

_WORK = ("text", "when", "goal", "skill", "params", "zone", "missed", "agent")


@click.group()
def schedules() -> None:
    """List, add, pause, resume and remove schedules.

    If the service is running on the same data directory, it executes these commands. Otherwise they
    change the database, and schedules that are added start to fire when the service does.
    """


schedules.add_command(
    command_of(
        SCHEDULE,
        "list",
        "xmpp-agent schedules list\n"
        "xmpp-agent schedules list --for juliet@example.com\n"
        "xmpp-agent schedules list --json | jq -r '.[].next'",
        hidden=("name", *_WORK),
        given={"action": "list"},
        about="list the schedules, the next one to fire first",
    )
)
schedules.add_command(
    command_of(
        SCHEDULE,
        "add",
        'xmpp-agent schedules add --for juliet@example.com --when "every monday at 9"'
        ' --goal "Sum up the week."\n'
        'xmpp-agent schedules add --for juliet@example.com --when "0 7 * * *" --zone Europe/Paris'
        ' --skill report --params \'{"topic": "rivers"}\'',
        hidden=("text",),
        given={"action": "add"},
        about="add a schedule for a person",
    )
)
for _action, _about in (
    ("pause", "keep a schedule from firing"),
    ("resume", "let a paused schedule fire again"),
    ("remove", "remove a schedule"),
):
    schedules.add_command(
        command_of(
            SCHEDULE,
            _action,
            f"xmpp-agent schedules {_action} 4f1c09aa\n"
            f"xmpp-agent schedules {_action} weekly-report --for juliet@example.com",
            hidden=_WORK,
            given={"action": _action},
            arguments=("name",),
            about=_about,
        )
    )
