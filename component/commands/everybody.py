"""Commands for everybody: help, skills, ping, and opting out of messages."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from component.commands.definition import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
)
from component.skills.errors import SearchError
from component.skills.registry import View
from component.storage.contacts import StoppedContacts
from xep.jid import JID

_SKILLS_SHOWN = 50
_LONGEST_LINE = 200
_WITHOUT_SLASH = "You can also send help without the slash."


class HelpParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of help."""

    command: Annotated[
        str,
        msgspec.Meta(
            title="Command", description="Command to explain. Default: list all commands."
        ),
    ] = ""


class SkillsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of skills."""

    words: Annotated[
        tuple[str, ...],
        msgspec.Meta(title="Words", description="Only skills that match all these words."),
    ] = ()


class CommandHelp(msgspec.Struct, frozen=True):
    """A command in the help text."""

    name: str
    about: str


class Offered(msgspec.Struct, frozen=True):
    """A skill in a list."""

    name: str
    title: str
    description: str


HELP = Outline(name="help", title="Help", about="list my commands", params=HelpParams)
SKILLS = Outline(
    name="skills",
    title="Skills",
    about="list what I can do for you; add words to search",
    params=SkillsParams,
)
PING = Outline(name="ping", title="Ping", about="check whether I am online", params=NoParams)
STOP = Outline(
    name="stop-contact",
    title="Stop contact",
    about="stop me from writing to you first; I still answer you",
    params=NoParams,
)
START = Outline(
    name="start-contact",
    title="Start contact",
    about="let me write to you first again",
    params=NoParams,
)


def everybody(
    name: str,
    offered: Callable[[Asking], Sequence[AnyCommand]],
    view: Callable[[JID], View],
    contacts: StoppedContacts | None = None,
) -> tuple[AnyCommand, ...]:
    """Return the commands for everybody that are not about tasks.

    Args:
        name: the name of the agent.
        offered: returns the commands that a caller may use.
        view: the skills that a principal sees.
        contacts: the contacts that opted out; without it the commands for that are missing.
    """
    found: list[AnyCommand] = [
        HELP.done_by(_Help(name, offered)),
        SKILLS.done_by(_Skills(view)),
        PING.done_by(_ping),
    ]
    if contacts is not None:
        contact = _Contact(contacts)
        found += [STOP.done_by(contact.stop), START.done_by(contact.start)]
    return tuple(found)


class _Help:
    def __init__(self, name: str, offered: Callable[[Asking], Sequence[AnyCommand]]) -> None:
        self._name = name
        self._offered = offered

    async def __call__(self, asking: Asking, params: HelpParams) -> CommandResult:
        offered = self._offered(asking)
        if params.command:
            wanted = params.command.removeprefix("/").casefold()
            for command in offered:
                if command.name == wanted:
                    return CommandResult(
                        _explained(command), CommandHelp(command.name, command.about)
                    )
            raise CommandError(f"There is no command /{wanted[:40]}.", "command")
        lines = [f"/{command.name} - {command.about}" for command in offered]
        return CommandResult(
            "\n".join((f"I am {self._name}. These are my commands:", *lines, _WITHOUT_SLASH)),
            [CommandHelp(command.name, command.about) for command in offered],
        )


def _explained(command: AnyCommand) -> str:
    lines = [f"/{command.name} - {command.about}"]
    required = command.schema["required"]
    for name, schema in command.schema["properties"].items():
        mark = "" if name in required else " (optional)"
        described = schema.get("description", "")
        lines.append(f"  {name}{mark}: {described}" if described else f"  {name}{mark}")
    return "\n".join(lines)


class _Skills:
    def __init__(self, view: Callable[[JID], View]) -> None:
        self._view = view

    async def __call__(self, asking: Asking, params: SkillsParams) -> CommandResult:
        if asking.principal is None:
            raise CommandError("This works only over XMPP.")
        view = self._view(asking.principal)
        try:
            names = view.names(" ".join(params.words))
        except SearchError as error:
            raise CommandError(str(error), "words") from None
        if not names:
            none = "No skill matches." if params.words else "There are no skills for you."
            return CommandResult(none, ())
        shown = [skill for name in names[:_SKILLS_SHOWN] if (skill := view.get(name)) is not None]
        lines = [f"{skill.name} - {_first_line(skill.description)}" for skill in shown]
        if len(names) > len(lines):
            lines.append(f"… and {len(names) - len(lines)} more: add words to search.")
        return CommandResult(
            "\n".join(lines),
            [
                Offered(skill.name, skill.title or "", _first_line(skill.description))
                for skill in shown
            ],
        )


async def _ping(_asking: Asking, _params: NoParams) -> CommandResult:
    return CommandResult("pong")


class _Contact:
    def __init__(self, contacts: StoppedContacts) -> None:
        self._contacts = contacts

    async def stop(self, asking: Asking, _params: NoParams) -> CommandResult:
        await self._contacts.stop(*_between(asking))
        return CommandResult(
            "I will not write to you first any more, but I still answer you. Send /start-contact"
            " to undo this. Your running tasks continue; /tasks lists them."
        )

    async def start(self, asking: Asking, _params: NoParams) -> CommandResult:
        await self._contacts.start(*_between(asking))
        return CommandResult("I may write to you first again.")


def _between(asking: Asking) -> tuple[JID, JID]:
    if asking.principal is None or asking.at is None:
        raise CommandError("This works only over XMPP.")
    return asking.at, asking.principal


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"
