"""`xmpp-agent memory`: what agents remember about people."""

import click

from component.cli.operator import command_of
from component.features.conversation_commands.commands import FORGET_PERSON
from component.features.memory_commands.commands import (
    EXPORT_MEMORY,
    IMPORT_MEMORY,
    MISSING_MEMORIES,
)


@click.group()
def memory() -> None:
    """Export, import and delete what agents remember about people. The service must be running."""


memory.add_command(
    command_of(
        EXPORT_MEMORY,
        "export",
        "xmpp-agent memory export --json --for juliet@example.com > juliet.json",
        options=("for",),
    )
)
memory.add_command(
    command_of(
        IMPORT_MEMORY,
        "import",
        'xmpp-agent memory import --for juliet@example.com "$(cat juliet.json)"',
        options=("for",),
    )
)
memory.add_command(
    command_of(
        MISSING_MEMORIES,
        "missing",
        "xmpp-agent memory missing restore --for juliet@example.com",
        options=("for",),
    )
)
memory.add_command(
    command_of(
        FORGET_PERSON,
        "forget",
        "xmpp-agent memory forget --for juliet@example.com",
        asks="This deletes the conversation and the memories of {for}.\nDelete them?",
        options=("for",),
    )
)
