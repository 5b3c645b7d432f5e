"""The commands of the service on the command line: a group for each kind of thing, and single ones.

The modules that declare the commands are imported when the command, or the help of its group, is
asked for.
"""

from typing import Any, Final

import click

from component.cli.operator import ServiceCommand

_BESIDE: Final = (
    "If the service is running on the same data directory, it executes these commands. Otherwise"
    " they change the database"
)
_ADMIN: Final = "component.features.service_commands.commands"
_AGENTS: Final = "component.features.agents_admin.commands"
_MEMORY: Final = "component.features.memory_commands.commands"
_NOTIFICATIONS: Final = "component.features.notifications.commands"
_SCHEDULE: Final = "component.features.schedules.commands:SCHEDULE"
_TASKS: Final = "component.features.task_commands.commands"
_WATCH: Final = "component.features.watches.commands:WATCH"
_WORK: Final = ("text", "when", "goal", "skill", "params", "zone", "missed", "agent")
"""The parameters of a schedule that say what it does."""


class ServiceGroup(click.Group):
    """A group of commands of the service, which are made when they are asked for."""

    def __init__(self, name: str, about: str, *entries: ServiceCommand, **kwargs: Any) -> None:
        super().__init__(name, help=about, **kwargs)
        self._entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the alphabet."""
        return sorted(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of that name."""
        entry = self._entries.get(cmd_name)
        return None if entry is None else entry.command()


status = ServiceCommand(
    f"{_ADMIN}:STATUS", "status", "xmpp-agent status\nxmpp-agent status --json | jq .tasks"
)
pause = ServiceCommand(f"{_ADMIN}:PAUSE", "pause", "xmpp-agent pause")
resume = ServiceCommand(f"{_ADMIN}:RESUME", "resume", "xmpp-agent resume")
budget = ServiceCommand(
    f"{_AGENTS}:BUDGET",
    "budget",
    "xmpp-agent budget\nxmpp-agent budget --day 2026-11-21\nxmpp-agent budget --json | jq .",
)

agents = ServiceGroup(
    "agents",
    "List agents, give them instructions, and pause, resume or shut them down.\n\n"
    f"{_BESIDE} and take effect when the service starts.",
    ServiceCommand(
        f"{_AGENTS}:AGENTS", "list", "xmpp-agent agents list\nxmpp-agent agents list --json"
    ),
    ServiceCommand(
        f"{_AGENTS}:TELL",
        "tell",
        'xmpp-agent agents tell assistant "Sum up this week." --for juliet@example.com\n'
        'xmpp-agent agents tell assistant "Sum up." --for juliet@example.com --budget total --wait',
        options=("for",),
    ),
    ServiceCommand(f"{_AGENTS}:PAUSE_AGENT", "pause", "xmpp-agent agents pause researcher"),
    ServiceCommand(f"{_AGENTS}:RESUME_AGENT", "resume", "xmpp-agent agents resume researcher"),
    ServiceCommand(
        f"{_AGENTS}:KILL_AGENT",
        "kill",
        "xmpp-agent agents kill researcher\nxmpp-agent agents kill --yes researcher",
        asks="This shuts {name} down permanently: its current work is stopped, it no longer"
        " answers, and it cannot be resumed. Its memory stays on disk.\nKill {name}?",
    ),
)

memory = ServiceGroup(
    "memory",
    "Export, import and delete what agents remember about people. The service must be running.",
    ServiceCommand(
        f"{_MEMORY}:EXPORT_MEMORY",
        "export",
        "xmpp-agent memory export --json --for juliet@example.com > juliet.json",
        options=("for",),
    ),
    ServiceCommand(
        f"{_MEMORY}:IMPORT_MEMORY",
        "import",
        'xmpp-agent memory import --for juliet@example.com "$(cat juliet.json)"',
        options=("for",),
    ),
    ServiceCommand(
        f"{_MEMORY}:MISSING_MEMORIES",
        "missing",
        "xmpp-agent memory missing restore --for juliet@example.com",
        options=("for",),
    ),
    ServiceCommand(
        "component.features.conversation_commands.commands:FORGET_PERSON",
        "forget",
        "xmpp-agent memory forget --for juliet@example.com",
        asks="This deletes the conversation and the memories of {for}.\nDelete them?",
        options=("for",),
    ),
)

notifications = ServiceGroup(
    "notifications",
    f"List and drop held notifications, and set the quiet hours of people.\n\n{_BESIDE}.",
    ServiceCommand(
        f"{_NOTIFICATIONS}:HELD",
        "list",
        "xmpp-agent notifications list\n"
        "xmpp-agent notifications list --person juliet@example.com\n"
        "xmpp-agent notifications list --json | jq -r '.[].title'",
        about="list the notifications that are held",
    ),
    ServiceCommand(
        f"{_NOTIFICATIONS}:DROP",
        "drop",
        "xmpp-agent notifications drop 0f3c9a\n"
        "xmpp-agent notifications drop all --person juliet@example.com",
        about="delete a held notification, or all of a person",
    ),
    ServiceCommand(
        f"{_NOTIFICATIONS}:QUIET",
        "quiet",
        "xmpp-agent notifications quiet --person juliet@example.com\n"
        "xmpp-agent notifications quiet --person juliet@example.com --hours 22:00-07:00"
        " --zone Europe/Paris",
        about="show or set the hours in which a person is not notified",
    ),
)

schedules = ServiceGroup(
    "schedules",
    "List, add, pause, resume and remove schedules.\n\n"
    f"{_BESIDE}, and schedules that are added start to fire when the service does.",
    ServiceCommand(
        _SCHEDULE,
        "list",
        "xmpp-agent schedules list\n"
        "xmpp-agent schedules list --for juliet@example.com\n"
        "xmpp-agent schedules list --json | jq -r '.[].next'",
        hidden=("name", *_WORK),
        given={"action": "list"},
        about="list the schedules, the next one to fire first",
    ),
    ServiceCommand(
        _SCHEDULE,
        "add",
        'xmpp-agent schedules add --for juliet@example.com --when "every monday at 9"'
        ' --goal "Sum up the week."\n'
        'xmpp-agent schedules add --for juliet@example.com --when "0 7 * * *" --zone Europe/Paris'
        ' --skill report --params \'{"topic": "rivers"}\'',
        hidden=("text",),
        given={"action": "add"},
        about="add a schedule for a person",
    ),
    *(
        ServiceCommand(
            _SCHEDULE,
            action,
            f"xmpp-agent schedules {action} 4f1c09aa\n"
            f"xmpp-agent schedules {action} weekly-report --for juliet@example.com",
            hidden=_WORK,
            given={"action": action},
            arguments=("name",),
            about=about,
        )
        for action, about in (
            ("pause", "keep a schedule from firing"),
            ("resume", "let a paused schedule fire again"),
            ("remove", "remove a schedule"),
        )
    ),
)

tasks = ServiceGroup(
    "tasks",
    "List, cancel, retry or release tasks.\n\n"
    f"{_BESIDE}: a cancelled task ends immediately, and a retried one starts when the service"
    " does.",
    ServiceCommand(
        f"{_TASKS}:ALL_TASKS",
        "list",
        "xmpp-agent tasks list --state running\n"
        "xmpp-agent tasks list --principal juliet@example.com --limit 100\n"
        "xmpp-agent tasks list --json | jq -r '.[].id'",
        # The operator has no tasks, so there is no option to leave out those of others.
        hidden=("all",),
    ),
    ServiceCommand(
        f"{_TASKS}:TASK",
        "show",
        "xmpp-agent tasks show 9f86d081884c7d659a2feaa0c55ad015\n"
        "xmpp-agent tasks show --json 9f86d081884c7d659a2feaa0c55ad015 | jq .outputs",
    ),
    ServiceCommand(
        f"{_TASKS}:CANCEL", "cancel", "xmpp-agent tasks cancel 9f86d081884c7d659a2feaa0c55ad015"
    ),
    ServiceCommand(
        f"{_TASKS}:RETRY",
        "retry",
        "xmpp-agent tasks retry 9f86d081884c7d659a2feaa0c55ad015\n"
        "xmpp-agent tasks retry --force 9f86d081884c7d659a2feaa0c55ad015",
    ),
    ServiceCommand(
        f"{_TASKS}:RELEASE", "release", "xmpp-agent tasks release 9f86d081884c7d659a2feaa0c55ad015"
    ),
    ServiceCommand(f"{_TASKS}:QUEUES", "queues", "xmpp-agent tasks queues --json"),
)

watches = ServiceGroup(
    "watches",
    f"List, show, pause, resume and remove watches.\n\n{_BESIDE}.",
    ServiceCommand(
        _WATCH,
        "list",
        "xmpp-agent watches list\nxmpp-agent watches list --json | jq -r '.[].id'",
        hidden=("name",),
        given={"action": "list"},
        about="list the watches",
    ),
    *(
        ServiceCommand(
            _WATCH,
            action,
            f"xmpp-agent watches {action} failed-builds\n"
            f"xmpp-agent watches {action} juliet@example.com/failed-builds --json",
            given={"action": action},
            arguments=("name",),
            about=about,
        )
        for action, about in (
            ("show", "show a watch and what it has done"),
            ("pause", "handle no events of a watch until it is resumed"),
            ("resume", "handle the events of a paused watch again"),
            ("remove", "remove a watch of a person"),
        )
    ),
)
