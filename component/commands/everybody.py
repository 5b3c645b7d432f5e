"""What everybody may ask of an agent: what it understands and can do, whether it is there."""

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec

from component.commands.definition import (
    Answer,
    AnyCommand,
    Asking,
    CommandError,
    NoParams,
    Outline,
)
from component.skills.errors import SearchError
from component.skills.registry import View
from xep.jid import JID

_SKILLS_SHOWN = 50
_LONGEST_LINE = 200


class Contacts(Protocol):
    """Who wants to hear nothing more. The methods raise StorageError."""

    async def stop(self, agent: JID, contact: JID) -> None:
        """The contact wants to hear nothing more from the agent but answers."""

    async def start(self, agent: JID, contact: JID) -> None:
        """The contact wants to hear from the agent again."""


class HelpParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to explain."""

    command: Annotated[
        str, msgspec.Meta(title="Command", description="Explain this one; all unless given.")
    ] = ""


class SkillsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which skills."""

    words: Annotated[
        tuple[str, ...],
        msgspec.Meta(title="Words", description="Only skills in which all of these occur."),
    ] = ()


class About(msgspec.Struct, frozen=True):
    """A command, as help tells of it."""

    name: str
    about: str


class Offered(msgspec.Struct, frozen=True):
    """A skill, as a list tells of it."""

    name: str
    title: str
    description: str


HELP = Outline(name="help", title="Help", about="what I understand", params=HelpParams)
SKILLS = Outline(
    name="skills",
    title="Skills",
    about="what I can do for you; add words to search",
    params=SkillsParams,
)
PING = Outline(name="ping", title="Ping", about="whether I am here", params=NoParams)
STOP = Outline(
    name="stop-contact",
    title="Stop contact",
    about="I write to you no more, but answer what you ask",
    params=NoParams,
)
START = Outline(
    name="start-contact", title="Start contact", about="I may write to you again", params=NoParams
)


def everybody(
    name: str,
    offered: Callable[[Asking], Sequence[AnyCommand]],
    view: Callable[[JID], View],
    contacts: Contacts | None = None,
) -> tuple[AnyCommand, ...]:
    """The commands that are for everybody and about no task.

    Args:
        name: what the agent is called.
        offered: the commands that are there for the one who asks.
        view: the skills that a principal sees.
        contacts: who wants to hear nothing more; without it nobody can say so.
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

    async def __call__(self, asking: Asking, params: HelpParams) -> Answer:
        offered = self._offered(asking)
        if params.command:
            wanted = params.command.removeprefix("/").casefold()
            for command in offered:
                if command.name == wanted:
                    return Answer(_explained(command), About(command.name, command.about))
            raise CommandError(f"I do not know /{wanted[:40]}.", "command")
        lines = [f"/{command.name} - {command.about}" for command in offered]
        return Answer(
            "\n".join((f"I am {self._name}. I understand:", *lines)),
            [About(command.name, command.about) for command in offered],
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

    async def __call__(self, asking: Asking, params: SkillsParams) -> Answer:
        if asking.principal is None:
            raise CommandError("Skills are shown to who asks over XMPP.")
        view = self._view(asking.principal)
        try:
            names = view.names(" ".join(params.words))
        except SearchError as error:
            raise CommandError(str(error), "words") from None
        if not names:
            none = (
                "No skill of yours matches that." if params.words else "There is no skill for you."
            )
            return Answer(none, ())
        shown = [skill for name in names[:_SKILLS_SHOWN] if (skill := view.get(name)) is not None]
        lines = [f"{skill.name} - {_first_line(skill.description)}" for skill in shown]
        if len(names) > len(lines):
            lines.append(f"… and {len(names) - len(lines)} more: add words to search.")
        return Answer(
            "\n".join(lines),
            [
                Offered(skill.name, skill.title or "", _first_line(skill.description))
                for skill in shown
            ],
        )


async def _ping(_asking: Asking, _params: NoParams) -> Answer:
    return Answer("pong")


class _Contact:
    def __init__(self, contacts: Contacts) -> None:
        self._contacts = contacts

    async def stop(self, asking: Asking, _params: NoParams) -> Answer:
        await self._contacts.stop(*_between(asking))
        return Answer(
            "I will not write to you any more, but answer what you ask. /start-contact takes it"
            " back. Work of yours goes on: /tasks shows it."
        )

    async def start(self, asking: Asking, _params: NoParams) -> Answer:
        await self._contacts.start(*_between(asking))
        return Answer("I will write to you again when there is something to say.")


def _between(asking: Asking) -> tuple[JID, JID]:
    if asking.principal is None or asking.at is None:
        raise CommandError("Only who asks over XMPP can say so.")
    return asking.at, asking.principal


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"
