"""The command about rooms, for people, operators and occupants, and the other commands that can be
given in a room.
"""

from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import structlog

from component import DEFAULT_AGENT
from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
    agent_of,
    read_words,
)
from component.features.rooms.conversation import AT_FAULT, RoomConversation
from component.features.rooms.options import Key, RoomOptions
from component.kernel.kernel import Kernel
from component.kernel.rooms.occupants import RoomOccupant
from component.link.messages.inbound import InboundMessage
from component.personas.packages import PersonaError
from component.store import StorageError
from component.store.outages import log_failure
from xep.jid import JID, JIDError

if TYPE_CHECKING:
    from component.features.rooms.service import RoomService

_log = structlog.get_logger("component.rooms")

_MODES: Final[dict[str, str]] = {
    "mention": "messages that mention me or contain my nickname, and replies to mine",
    "reply": "replies to my messages",
    "always": "all messages of people",
    "never": "nothing",
}
_MAY_NOT: Final = (
    "Only admins of this service, and the owners and admins of the room or the people whom the"
    " settings name, may do that."
)
_CHANGING: Final = ("set", "forget", "import", "export", "delete", "share", "undo")
"""Words after /memory and /files that change something."""
_HELP: Final = (
    "I answer {mode}. Write to all: {nick}, and your question. “stop” stops what I am doing."
    " {nick} /new starts a new conversation, {nick} /memory shows what I remember of this room,"
    " {nick} /files the files that were sent to me here, and"
    " {nick} /room what applies here. For everything else, write to me directly: {address}"
)


class RoomParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do, with which room.

    Args:
        action: list, join, leave, mode or persona.
        room: Address of the room, such as lobby@conference.example.com. In the room, it can be left
            out.
        value: With join, the nickname if it is not the usual one. With mode: mention, reply, always
            or never. With persona: its id, or reset.
        agent: Name of the agent. Default: the one that you write to.
    """

    action: Literal["list", "join", "leave", "mode", "persona"] = "list"
    room: str = ""
    value: tuple[str, ...] = ()
    agent: str = ""


ROOM = Outline(
    name="room",
    title="Rooms",
    about="list the rooms that I am in, join or leave one, or choose what I answer there: mode"
    " mention, reply, always or never, or persona and its name",
    params=RoomParams,
    group="contact",
)


class RoomSheet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a room of an agent. `state` is empty while no service runs; `reason` says
    why the agent is not in the room.
    """

    agent: str
    room: str
    nick: str = ""
    state: str = ""
    reason: str = ""
    occupants: int = 0
    answer: str
    persona: str = ""
    invited_by: str = ""
    declared: bool = False


class RoomCommands:
    """The command about rooms, and commands in rooms."""

    def __init__(self, service: "RoomService", kernel: Kernel) -> None:
        self._service = service
        self._kernel = kernel

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the command."""
        return (ROOM.done_by(self._room),)

    async def _room(self, asking: Asking, params: RoomParams) -> CommandResult:
        agent = self._agent(asking, params)
        if params.action == "list":
            return self._list(asking, params)
        room, rest = _room_of((params.room, *params.value))
        if room is None:
            raise CommandError(
                f"Give the address of the room: /room {params.action} lobby@conference.example.com",
                "room",
            )
        if params.action == "join":
            return await self._join(asking, (agent, room), " ".join(rest))
        options = self._options((agent, room))
        if not self._may(asking, options):
            raise CommandError(_MAY_NOT)
        return await self._change(options, params.action, rest)

    def _agent(self, asking: Asking, params: RoomParams) -> str:
        names = self._kernel.settings.agent_names
        return agent_of(params.agent, names, asking.agent or DEFAULT_AGENT)

    def _options(self, key: Key) -> RoomOptions:
        found = [each for each in self._service.options() if each.key == key]
        if not found:
            raise CommandError(
                f"{key[0]} is not in the room {key[1]}. /room lists the rooms.", "room"
            )
        return found[0]

    def _may(self, asking: Asking, options: RoomOptions) -> bool:
        """Return whether somebody may change what an agent does in a room."""
        if asking.admin or asking.principal is None:
            return True
        if options.people and options.names(asking.principal):
            return True
        if asking.principal == options.inviter:
            return True
        found = self._service.conversations.get(options.key)
        occupants = () if found is None else found.membership.view.occupants.values()
        return any(
            each.jid == str(asking.principal) and found is not None and found.may_command(each)
            for each in occupants
        )

    def _list(self, asking: Asking, params: RoomParams) -> CommandResult:
        only = params.agent or ("" if asking.principal is None else asking.agent)
        sheets = [
            self._sheet(each)
            for each in self._service.options()
            if self._may(asking, each) and (not only or each.agent == only)
        ]
        return listed(sheets)

    def _sheet(self, options: RoomOptions) -> RoomSheet:
        sheet = sheet_of(options)
        found = self._service.conversations.get(options.key)
        if found is None:
            return sheet
        membership = found.membership
        return msgspec.structs.replace(
            sheet,
            nick=membership.view.nick or membership.nick,
            state=membership.state,
            reason="" if membership.is_in else membership.reason,
            occupants=len(membership.view.occupants) if membership.is_in else 0,
        )

    async def _join(self, asking: Asking, key: Key, nick: str) -> CommandResult:
        from component.features.rooms.service import RoomError  # noqa: PLC0415 - it imports this one

        agent, room = key
        try:
            who = asking.principal
            if nick:
                nick = room.with_resource(nick).resource or ""
            await self._service.join(agent, room, who, nick=nick)
        except JIDError as error:
            raise CommandError(f"{nick!r} cannot be a nickname: {error}", "value") from None
        except RoomError as error:
            raise CommandError(str(error), "room") from None
        return CommandResult(
            f"I enter {room} and stay there. I answer {_MODES[self._options(key).answer]}."
            " If I can't enter it, I tell you."
        )

    async def _change(
        self, options: RoomOptions, action: str, rest: Sequence[str]
    ) -> CommandResult:
        room, value = options.room, " ".join(rest)
        if action == "leave":
            await self._service.leave(options.key)
            return CommandResult(f"I have left {room}.")
        if action == "mode":
            mode = value.casefold()
            if mode not in _MODES:
                raise CommandError(f"The mode is one of {', '.join(_MODES)}.", "value")
            await self._service.change(options.key, answer=mode)
            return CommandResult(f"In {room} I answer {_MODES[mode]} from now on.")
        if not value:
            name = options.persona or "my own"
            return CommandResult(f"My persona in {room} is {name}.", only_read=True)
        persona = await self._persona(value)
        await self._service.change(options.key, persona=persona)
        now = f"I am {persona}" if persona else "I am myself"
        return CommandResult(f"In {room} {now} from now on.")

    async def _persona(self, value: str) -> str:
        if value.casefold() == "reset":
            return ""
        fault = await self._kernel.environment.memories.personas.fault(value)
        if fault is not None:
            raise CommandError(f"I can't be {value!r}: {fault}", "value")
        return value

    # In a room.

    def in_room(
        self,
        here: RoomConversation,
        occupant: RoomOccupant,
        line: str,
        message: InboundMessage,
    ) -> Awaitable[None] | None:
        """Carry out a command that an occupant gives in a room."""
        if not here.may_say_command():
            return None
        name, _, words = line[1:].partition(" ")
        return self._answer(here, occupant, (name.casefold(), words.strip()), message)

    async def _answer(
        self,
        here: RoomConversation,
        occupant: RoomOccupant,
        command: tuple[str, str],
        message: InboundMessage,
    ) -> None:
        try:
            said = await self._run(here, occupant, *command)
        except CommandError as error:
            said = str(error)
        except (StorageError, PersonaError) as error:
            if isinstance(error, StorageError):
                log_failure(_log, "a command in a room failed", error, command=command[0])
            said = AT_FAULT
        here.say(said, message, occupant)

    async def _run(
        self, here: RoomConversation, occupant: RoomOccupant, name: str, words: str
    ) -> str:
        may, options = here.may_command(occupant), here.options
        if name in ("help", ""):
            return _HELP.format(
                mode=_MODES[options.answer], nick=here.membership.view.nick, address=here.agent
            )
        if name == "room":
            return await self._about_room(here, occupant, read_words(ROOM, words))
        if name in ("new", "reset") and self._kernel.agents is not None:
            _check(may)
            await self._kernel.agents.conversations.new(here.session)
            return "Started a new conversation."
        if name in ("memory", "files", "objects"):
            _check(may or not words.casefold().startswith(_CHANGING))
            asking = Asking(
                principal=here.account(occupant) or options.principal,
                at=here.agent,
                agent=options.agent,
                room=options.room,
            )
            found = self._kernel.commands.get(name, asking)
            if found is not None:
                return (await found.run(asking, read_words(found, words))).text
        return f"I can't do that in a room. Write to me directly: {here.agent}"

    async def _about_room(
        self, here: RoomConversation, occupant: RoomOccupant, params: RoomParams
    ) -> str:
        options, account = here.options, here.proven(occupant)
        room, rest = _room_of((params.room, *params.value))
        if params.action == "list":
            return _line(self._sheet(options)).removeprefix("- ")
        if params.action == "join" or room not in (None, options.room):
            if account is None:
                raise CommandError(f"Write to me directly: {here.agent}")
            asking = self._kernel.commands.asking(account, here.agent)
            return (await self._room(asking, params)).text
        _check(here.may_command(occupant))
        return (await self._change(options, params.action, rest)).text


def _check(may: bool) -> None:
    if not may:
        raise CommandError(_MAY_NOT)


def _room_of(words: Sequence[str]) -> tuple[JID | None, Sequence[str]]:
    """Return the room that the first of these words is, if it is one, and the others."""
    words = [each for each in words if each]
    if words and "@" in words[0]:
        address = words[0].removeprefix("xmpp:").partition("?")[0]
        try:
            return JID.parse(address).bare, words[1:]
        except JIDError as error:
            raise CommandError(f"{words[0][:80]!r} is not an address: {error}", "room") from None
    return None, words


def sheet_of(options: RoomOptions) -> RoomSheet:
    """Return what is known of a room while no service runs."""
    return RoomSheet(
        agent=options.agent,
        room=str(options.room),
        nick=options.nick,
        answer=options.answer,
        persona=options.persona,
        invited_by="" if options.inviter is None else str(options.inviter),
        declared=options.is_declared,
    )


def listed(sheets: Collection[RoomSheet]) -> CommandResult:
    """Return a list of rooms."""
    none = "I am in no room that you may see. Invite me to one, or send /room join and its address."
    lines = [_line(sheet) for sheet in sheets]
    return CommandResult("\n".join(lines) or none, tuple(sheets), only_read=True)


def _line(sheet: RoomSheet) -> str:
    where = f" as {sheet.nick}" if sheet.nick else ""
    at = f"{sheet.agent}: " if sheet.agent != DEFAULT_AGENT else ""
    said = f"- {at}{sheet.room}{where}"
    if sheet.state == "in":
        said += f", with {sheet.occupants} others"
    elif sheet.reason:
        said += f", not there: {sheet.reason}"
    elif sheet.state:
        said += f", {sheet.state}"
    said += f". I answer {_MODES[sheet.answer]}."
    if sheet.persona:
        said += f" My persona is {sheet.persona}."
    if sheet.invited_by:
        said += f" {sheet.invited_by} has invited me."
    return said
