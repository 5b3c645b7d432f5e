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
_GRANTS: Final = "component.features.peers.commands:GRANTS"
_MEMORY: Final = "component.features.memory_commands.commands"
_NOTIFICATIONS: Final = "component.features.notifications.commands"
_OBJECTS: Final = "component.features.objects.commands"
_ROOM: Final = "component.features.rooms.commands:ROOM"
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
        return None if entry is None else entry.command(f"{self.name} ")


status = ServiceCommand(f"{_ADMIN}:STATUS", "status", "\n--json | jq .tasks")
pause = ServiceCommand(f"{_ADMIN}:PAUSE", "pause", '\n--reason "upgrade of the database"')
reload = ServiceCommand(f"{_ADMIN}:RELOAD", "reload", "", as_text=True)
resume = ServiceCommand(f"{_ADMIN}:RESUME", "resume", "")
budget = ServiceCommand(f"{_AGENTS}:BUDGET", "budget", "\n--day 2026-11-21\n--json | jq .")

agents = ServiceGroup(
    "agents",
    "List agents, give them instructions, and pause, resume or shut them down.\n\n"
    f"{_BESIDE} and take effect when the service starts.",
    ServiceCommand(f"{_AGENTS}:AGENTS", "list", "\n--json"),
    ServiceCommand(
        f"{_AGENTS}:TELL",
        "tell",
        'assistant "Sum up this week." --for juliet@example.com\n'
        'assistant "Sum up." --for juliet@example.com --budget total --wait',
        options=("for",),
    ),
    ServiceCommand(f"{_AGENTS}:PAUSE_AGENT", "pause", "researcher"),
    ServiceCommand(f"{_AGENTS}:RESUME_AGENT", "resume", "researcher"),
    ServiceCommand(
        f"{_AGENTS}:KILL_AGENT",
        "kill",
        "researcher\n--yes researcher",
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
        "--json --for juliet@example.com > juliet.json",
        options=("for",),
    ),
    ServiceCommand(
        f"{_MEMORY}:IMPORT_MEMORY",
        "import",
        '--for juliet@example.com "$(cat juliet.json)"',
        options=("for",),
    ),
    ServiceCommand(
        f"{_MEMORY}:MISSING_MEMORIES",
        "missing",
        "restore --for juliet@example.com",
        options=("for",),
    ),
    ServiceCommand(
        "component.features.conversation_commands.commands:FORGET_PERSON",
        "forget",
        "--for juliet@example.com",
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
        "\n--person juliet@example.com\n--json | jq -r '.[].title'",
        about="list the notifications that are held",
    ),
    ServiceCommand(
        f"{_NOTIFICATIONS}:DROP",
        "drop",
        "0f3c9a\nall --person juliet@example.com",
        about="delete a held notification, or all of a person",
    ),
    ServiceCommand(
        f"{_NOTIFICATIONS}:QUIET",
        "quiet",
        "--person juliet@example.com\n"
        "--person juliet@example.com --hours 22:00-07:00"
        " --zone Europe/Paris",
        about="show or set the hours in which a person is not notified",
    ),
)

objects = ServiceGroup(
    "objects",
    "Export the objects of people. The service must be running.",
    ServiceCommand(
        f"{_OBJECTS}:EXPORT_OBJECTS",
        "export",
        "--json --for juliet@example.com > juliet.json",
        options=("for",),
    ),
)

schedules = ServiceGroup(
    "schedules",
    "List, add, pause, resume and remove schedules.\n\n"
    f"{_BESIDE}, and schedules that are added start to fire when the service does.",
    ServiceCommand(
        _SCHEDULE,
        "list",
        "\n--for juliet@example.com\n--json | jq -r '.[].next'",
        hidden=("name", *_WORK),
        given={"action": "list"},
        about="list the schedules, the next one to fire first",
    ),
    ServiceCommand(
        _SCHEDULE,
        "add",
        '--for juliet@example.com --when "every monday at 9"'
        ' --goal "Sum up the week."\n'
        '--for juliet@example.com --when "0 7 * * *" --zone Europe/Paris'
        ' --skill report --params \'{"topic": "rivers"}\'',
        hidden=("text",),
        given={"action": "add"},
        about="add a schedule for a person",
    ),
    *(
        ServiceCommand(
            _SCHEDULE,
            action,
            "4f1c09aa\nweekly-report --for juliet@example.com",
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
        "--state running\n--principal juliet@example.com --limit 100\n--json | jq -r '.[].id'",
        # The operator has no tasks, so there is no option to leave out those of others.
        hidden=("all",),
    ),
    ServiceCommand(
        f"{_TASKS}:TASK",
        "show",
        "9f86d081884c7d659a2feaa0c55ad015\n--json 9f86d081884c7d659a2feaa0c55ad015 | jq .outputs",
    ),
    ServiceCommand(f"{_TASKS}:CANCEL", "cancel", "9f86d081884c7d659a2feaa0c55ad015"),
    ServiceCommand(
        f"{_TASKS}:RETRY",
        "retry",
        "9f86d081884c7d659a2feaa0c55ad015\n--force 9f86d081884c7d659a2feaa0c55ad015",
    ),
    ServiceCommand(f"{_TASKS}:RELEASE", "release", "9f86d081884c7d659a2feaa0c55ad015"),
    ServiceCommand(f"{_TASKS}:QUEUES", "queues", "--json"),
)

watches = ServiceGroup(
    "watches",
    f"List, show, pause, resume and remove watches.\n\n{_BESIDE}.",
    ServiceCommand(
        _WATCH,
        "list",
        "\n--json | jq -r '.[].id'",
        hidden=("name",),
        given={"action": "list"},
        about="list the watches",
    ),
    *(
        ServiceCommand(
            _WATCH,
            action,
            "failed-builds\njuliet@example.com/failed-builds --json",
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

rooms = ServiceGroup(
    "rooms",
    "List the rooms that agents are in, enter and leave them, and choose what agents answer there."
    "\n\nThe service has to run on the same data directory, but for `list`.",
    ServiceCommand(
        _ROOM,
        "list",
        "\n--json | jq -r '.[].room'",
        hidden=("room", "value"),
        given={"action": "list"},
        about="list the rooms, and say why an agent is not there",
    ),
    *(
        ServiceCommand(
            _ROOM,
            action,
            f"lobby@conference.example.com{more}",
            given={"action": action},
            hidden=("value",) if action == "leave" else (),
            arguments=("room",) if action in ("join", "leave") else ("room", "value"),
            about=about,
        )
        for action, more, about in (
            ("join", " --value FluuxBot", "enter a room, under the usual nickname or this one"),
            ("leave", "", "leave a room until it is joined again"),
            ("mode", " always", "choose what is answered: mention, reply, always or never"),
            ("persona", " concierge", "choose the persona in a room; reset for none"),
        )
    ),
)

peers = ServiceGroup(
    "peers",
    f"List the agents elsewhere that this one uses, and that use it.\n\n{_BESIDE}.",
    ServiceCommand(
        "component.features.peers.peer_list:PEERS",
        "list",
        "\n--json | jq -r '.[] | select(.answers == \"no\") | .name'",
    ),
)

grants = ServiceGroup(
    "grants",
    "List and revoke what other agents may do for people of this one, and make new keys.\n\n"
    f"{_BESIDE}.",
    ServiceCommand(
        _GRANTS,
        "list",
        "\n--json | jq -r '.[].id'",
        hidden=("grant", "work"),
        given={"do": "list"},
        about="list the grants for calls of peers",
    ),
    ServiceCommand(
        _GRANTS,
        "revoke",
        "5e884898da280471\n5e884898da280471 --work keep",
        given={"do": "revoke"},
        arguments=("grant",),
        about="revoke a grant, and cancel its call unless --work keep",
    ),
    ServiceCommand(
        _GRANTS,
        "new-keys",
        "",
        hidden=("grant", "work"),
        given={"do": "new-keys"},
        about="make new keys for all agents",
    ),
)
