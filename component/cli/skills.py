"""`xmpp-agent skills`: the group, and the table of its commands."""

import click

from component.cli.frame import Lazy, LazyGroup

COMMANDS = {
    "new": Lazy("component.cli.skills_new:new", "Write a new skill into a directory."),
    "call": Lazy("component.cli.skills_call:call", "Call a skill on this machine."),
    "test": Lazy("component.cli.skills_test:test", "Check a skill and run its tests."),
    "list": Lazy("component.cli.skills_list:list_skills", "List the skills and their states."),
    "show": Lazy("component.cli.skills_installed:show", "Show what an installed skill may do."),
    "approve": Lazy("component.cli.skills_installed:approve", "Offer an installed skill."),
    "revoke": Lazy("component.cli.skills_installed:revoke", "Stop offering an installed skill."),
    "reject": Lazy("component.cli.skills_installed:reject", "Delete a proposed skill."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def skills() -> None:
    """Write, call, list and approve skills."""
