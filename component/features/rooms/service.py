"""The rooms in which agents take part: enters and leaves them, and remembers what people have
changed.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Self

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.features.rooms import rows as room_rows
from component.features.rooms.commands import RoomCommands
from component.features.rooms.conversation import RoomConversation
from component.features.rooms.options import Key, RoomOptions, all_options
from component.features.rooms.private import PrivateMessages
from component.features.rooms.rows import RoomRow
from component.features.rooms.settings import Invitations, RoomEntry
from component.kernel.exchange_limit import Admitted, ExchangeLimit
from component.kernel.kernel import Kernel
from component.kernel.options import agent_titles
from component.kernel.rooms.membership import Change, Membership, Stay
from component.kernel.rooms.occupants import Joined, Moved, Out, OwnChanged
from component.link.router.table import Request
from component.memory_directory.layout import SessionKey
from component.store.database import Database
from component.store.forgetting import Forgotten
from xep.jid import JID

_log = structlog.get_logger("component.rooms")

USER: Final = "conversation"
"""The name of conversations among the users of a membership."""


class RoomError(Exception):
    """A room cannot be entered or changed. The message is a sentence for the person."""


class RoomService:
    """The rooms in which agents take part.

    Args:
        entries: the rooms of the settings.
        invitations: what the settings say about invitations.
        clock: seconds that only go forward.

    Attributes:
        conversations: by the name of the agent and the room.
        private: answers private messages of occupants.
        commands: the command about rooms, and those that can be given in a room.
    """

    def __init__(
        self,
        kernel: Kernel,
        entries: Sequence[RoomEntry],
        invitations: Invitations,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.clock = clock
        self.invitations = invitations
        self.conversations: dict[Key, RoomConversation] = {}
        self.private = PrivateMessages(self, kernel)
        self.commands = RoomCommands(self, kernel)
        self._kernel = kernel
        self._entries = entries
        self._titles = agent_titles(kernel.settings)
        self._rows: Mapping[Key, RoomRow] = {}
        self._options: Mapping[Key, RoomOptions] = {}
        self._exchanges = ExchangeLimit(kernel.settings.limits.messages_per_sender, clock)
        self._told: dict[Key, JID] = {}
        """Who has sent an agent to a room that it has not entered yet."""
        self._group: TaskGroup | None = None
        self._lock = anyio.Lock()

    def continue_with(self, before: Self) -> None:
        """Take over the conversations of the service whose place this one takes."""
        self.conversations = before.conversations
        for one in self.conversations.values():
            one.service = self

    # What is there.

    def get(self, agent: JID, room: JID) -> RoomConversation | None:
        """Return the conversation of the agent at an address in a room."""
        return self.conversations.get((self._kernel.stream.addresses.agent_at(agent), room.bare))

    def of_room(self, room: JID) -> Iterator[RoomConversation]:
        """Iterate over the conversations of all agents in a room."""
        return (each for each in self.conversations.values() if each.options.room == room)

    def admits(self, account: JID) -> bool:
        """Return whether somebody may use the agents: not those themselves, or a room."""
        stream = self._kernel.stream
        is_room = stream.is_room(account) or stream.addresses.is_own(account)
        return not is_room and self._kernel.environment.catalog.admits(account)

    def is_admin(self, account: JID) -> bool:
        """Return whether somebody is an admin of this service."""
        return account in self._kernel.environment.catalog.admins

    def is_exchange(self, occupant: JID) -> bool:
        """Count a request of an occupant, and return whether it is one too many: two programs may
        be answering each other. The resource of the address identifies the occupant.
        """
        verdict = self._exchanges.next(occupant)
        if isinstance(verdict, Admitted):
            return False
        if verdict.first:
            _log.warning(
                "stopped answering an occupant who asks more than a person; the limit is"
                " limits.messages_per_sender",
                occupant=str(occupant),
            )
        return True

    def options(self) -> Collection[RoomOptions]:
        """Return what applies to each room, sorted."""
        return [each for _, each in sorted(self._options.items(), key=lambda each: str(each[0]))]

    # What people change.

    def refusal(self, agent: str, room: JID, inviter: JID | None) -> str | None:
        """Return why an agent does not enter a room for this person, or with None for the operator,
        as a sentence; None if it does.
        """
        accept, most = self.invitations.accept, self.invitations.most
        is_admin = inviter is None or self.is_admin(inviter)
        may = is_admin or (accept == "admitted" and inviter is not None and self.admits(inviter))
        if accept == "nobody" and not is_admin:
            return "I do not accept invitations to rooms. My operator can send me there."
        if not may:
            return (
                "I enter rooms only if an admin of this service invites me. Ask one of them, or"
                f" write to me directly: {self._kernel.stream.addresses.address_of(agent)}"
            )
        if room.local is None or room.resource is not None:
            return f"{room} is not the address of a room, such as lobby@conference.example.com."
        if self._kernel.stream.addresses.is_own(room):
            return f"{room} is an address of this service, and not that of a room."
        servers = self.invitations.servers
        if servers and room.domain not in servers:
            return f"I may enter rooms of these servers only: {', '.join(servers)}."
        count = sum(each.agent == agent and not each.is_declared for each in self.options())
        if count >= most and (agent, room) not in self._options:
            return (
                f"I am in {most} rooms already, which is the maximum. Let me leave one first, with"
                " /room leave and its address."
            )
        return None

    async def join(
        self, agent: str, room: JID, inviter: JID | None, *, nick: str = "", password: str = ""
    ) -> None:
        """Have an agent enter a room from now on. Raises StorageError, and RoomError if the person
        may not do that.
        """
        refusal = self.refusal(agent, room, inviter)
        if refusal is not None:
            raise RoomError(refusal)
        key = agent, room
        row = self._row(key)
        if inviter is not None:
            self._told[key] = inviter.bare
        await self._put(
            msgspec.structs.replace(
                row,
                inviter="" if inviter is None else str(inviter.bare),
                nick=nick or row.nick,
                password=password or row.password,
                is_left=False,
            )
        )
        found = self.conversations.get(key)
        if found is not None and not found.membership.is_in:
            found.membership.connected()  # try again now

    async def leave(self, key: Key) -> None:
        """Have an agent leave a room for good. Raises StorageError."""
        declared = any((each.agent, JID.parse(each.jid)) == key for each in self._entries)
        if declared:
            await self._put(msgspec.structs.replace(self._row(key), is_left=True))
        else:
            async with self._lock:
                agent, room = key
                remove = partial(room_rows.remove, agent=agent, room=str(room))
                await self._kernel.storage.write(remove)
                self._apply({other: row for other, row in self._rows.items() if other != key})
        if self._kernel.agents is not None:
            await self._kernel.agents.conversations.stop(SessionKey(key[0], key[1]))

    async def change(self, key: Key, *, answer: str = "", persona: str | None = None) -> None:
        """Change which messages an agent answers, or its persona. Raises StorageError."""
        row = self._row(key)
        await self._put(
            msgspec.structs.replace(
                row,
                answer=answer or row.answer,
                persona=row.persona if persona is None else persona,
            )
        )

    def forget(self, database: Database, who: Forgotten) -> Callable[[], None]:
        """Forget who has invited an agent, within a transaction; see `Opened.forget`."""
        room_rows.forget(database, who)
        return lambda: self.spawn(self.reload())

    def _row(self, key: Key) -> RoomRow:
        return self._rows.get(key) or RoomRow(agent=key[0], room=str(key[1]))

    async def _put(self, row: RoomRow) -> None:
        async with self._lock:
            await self._kernel.storage.write(partial(room_rows.put, row=row))
            self._apply({**self._rows, (row.agent, JID.parse(row.room)): row})

    # The work.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Be in the rooms until cancelled. Raises StorageError if they cannot be read."""
        async with anyio.create_task_group() as self._group:
            await self.reload()
            task_status.started()
            await anyio.sleep_forever()

    async def reload(self, _changed: Collection[str] | None = None) -> None:
        """Read the rows, which another instance may have changed. Raises StorageError."""
        async with self._lock:
            rows = await self._kernel.storage.read(room_rows.all_rows)
            self._apply({(each.agent, JID.parse(each.room)): each for each in rows})

    def _apply(self, rows: Mapping[Key, RoomRow]) -> None:
        """Enter, change and leave rooms so that all is as it should be. Never waits."""
        self._rows = rows
        agents = self._kernel.settings.agent_names
        found = all_options(self._entries, self.invitations, rows.values())
        self._options = {key: each for key, each in found.items() if key[0] in agents}
        self._kernel.environment.catalog.rooms = frozenset(
            each.room for each in self._options.values() if each.principal == each.room
        )
        address_of, rooms = self._kernel.stream.addresses.address_of, self._kernel.rooms
        for key in [key for key in self.conversations if key not in self._options]:
            del self.conversations[key]
            rooms.leave(address_of(key[0]), key[1], USER)
        for key, options in self._options.items():
            known = self.conversations.get(key)
            if known is not None and known.options == options:
                continue
            agent, room = key
            stay = Stay(
                self._changed,
                nick=options.nick,
                history=options.section.history,
                password=options.password,
                said=self._said,
            )
            membership = rooms.enter(address_of(agent), room, USER, stay, self._titles[agent])
            if known is None:
                self.conversations[key] = RoomConversation(self, self._kernel, options, membership)
            else:
                known.change(options)

    def _said(self, membership: Membership, request: Request[None]) -> None:
        found = self.conversations.get(self._key(membership))
        work = None if found is None else found.receive(request)
        if work is not None:
            self.spawn(work)

    def _changed(self, membership: Membership, change: Change) -> None:
        key = self._key(membership)
        if isinstance(change, Joined):
            self._told.pop(key, None)
            self._voice_changed(key)
            if self._kernel.agents is not None:
                self._kernel.agents.conversations.connected()  # answers have waited for the room
        elif isinstance(change, OwnChanged):
            self._voice_changed(key)
        elif isinstance(change, Out):
            inviter = self._told.pop(key, None)
            if inviter is not None:
                self.private.tell(membership.address.bare, inviter, _cannot(key[1], change))
        elif isinstance(change, Moved) and change.what == "left":
            self.spawn(self.private.left(membership, change.occupant))

    def _voice_changed(self, key: Key) -> None:
        found = self.conversations.get(key)
        if found is not None:
            found.voice_changed()

    def _key(self, membership: Membership) -> Key:
        return self._kernel.stream.addresses.agent_at(membership.address), membership.room

    def spawn(self, work: Awaitable[None]) -> None:
        """Do something in the background. What has been said is stored even if the settings change
        at the same time.
        """
        if self._group is not None:
            self._group.start_soon(_guarded, work)


async def _guarded(work: Awaitable[None]) -> None:
    try:
        with anyio.CancelScope(shield=True):
            await work
    except Exception:  # noqa: BLE001 - a fault in one room must not end the conversations in others
        _log.exception("a message in a room cannot be handled")


def _cannot(room: JID, out: Out) -> str:
    again = "" if out.again == "next session" else " I try again from time to time."
    return f"I can't enter {room}: {out.reason}.{again}"
