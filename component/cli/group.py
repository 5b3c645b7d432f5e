"""`xmpp-agent`: the groups, and the tables of their commands."""

from typing import Final

import click

from component.cli.frame import ExitCode, Lazy, LazyGroup

_SERVICE: Final = "component.cli.service_commands"
COMMANDS = {
    "init": Lazy("component.cli.init:init", "Create agent.toml and show the server configuration."),
    "doctor": Lazy("component.cli.doctor:doctor", "Check the configuration and the connection."),
    "run": Lazy("component.cli.run:run", "Run the agent until it is stopped."),
    "worker": Lazy("component.cli.worker:worker", "Run skills for services on other machines."),
    "skills": Lazy("component.cli.group:skills", "List the skills."),
    "policy": Lazy("component.cli.policy:policy", "Explain who may use what, and why."),
    "status": Lazy(f"{_SERVICE}:status", "Show the state of the service."),
    "health": Lazy("component.cli.health:health", "Check whether the service runs and answers."),
    "tasks": Lazy(f"{_SERVICE}:tasks", "List, cancel and retry tasks."),
    "schedules": Lazy(f"{_SERVICE}:schedules", "List, add, pause and remove schedules."),
    "rooms": Lazy(f"{_SERVICE}:rooms", "List, enter and leave rooms."),
    "watches": Lazy(f"{_SERVICE}:watches", "List, pause and remove watches."),
    "peers": Lazy(f"{_SERVICE}:peers", "List the agents elsewhere that are used, or use this one."),
    "grants": Lazy(f"{_SERVICE}:grants", "List and revoke grants for other agents."),
    "notifications": Lazy(f"{_SERVICE}:notifications", "List and drop held notifications."),
    "audit": Lazy("component.cli.audit:audit", "Search and verify the audit log."),
    "pause": Lazy(f"{_SERVICE}:pause", "Reject new requests, except from admins."),
    "resume": Lazy(f"{_SERVICE}:resume", "Accept new requests again."),
    "reload": Lazy(f"{_SERVICE}:reload", "Apply the changes in the configuration file."),
    "agents": Lazy(f"{_SERVICE}:agents", "List, pause and shut down agents."),
    "memory": Lazy(f"{_SERVICE}:memory", "Export, import and delete memories."),
    "objects": Lazy(f"{_SERVICE}:objects", "Export objects."),
    "budget": Lazy(f"{_SERVICE}:budget", "Show what language models have cost."),
    "upgrade": Lazy("component.cli.upgrade:upgrade", "Upgrade the database of an older release."),
    "rollback": Lazy("component.cli.upgrade:rollback", "Undo the last upgrade of the database."),
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


SKILL_COMMANDS = {
    "new": Lazy("component.cli.skill_authoring:new", "Write a new skill into a directory."),
    "call": Lazy("component.cli.skill_authoring:call", "Call a skill on this machine."),
    "test": Lazy("component.cli.skill_authoring:test", "Check a skill and run its tests."),
    "list": Lazy("component.cli.skills:list_skills", "List the skills and their states."),
    "show": Lazy("component.cli.skills:show", "Show what an installed skill may do."),
    "approve": Lazy("component.cli.skills:approve", "Offer an installed skill."),
    "revoke": Lazy("component.cli.skills:revoke", "Stop offering an installed skill."),
    "reject": Lazy("component.cli.skills:reject", "Delete a proposed skill."),
}


@click.group(cls=LazyGroup, lazy=SKILL_COMMANDS)
def skills() -> None:
    """Write, call, list and approve skills."""
