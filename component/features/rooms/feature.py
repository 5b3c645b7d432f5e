"""Conversations in rooms."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Self

from component.commands import AnyCommand, Asking, CommandError, CommandResult
from component.features.feature import Feature, Opened
from component.features.rooms import rows
from component.features.rooms.commands import ROOM, RoomParams, listed, sheet_of
from component.features.rooms.handlers import RoomHandlers
from component.features.rooms.invitations import Inviting
from component.features.rooms.options import all_options
from component.features.rooms.service import RoomService
from component.features.rooms.settings import INVITATIONS, ROOMS
from component.kernel.kernel import Kernel
from component.store import Storage


class RoomFeature(Feature):
    """Talks in rooms, answers their occupants, and accepts invitations."""

    reloads: ClassVar = (
        "rooms",
        "room_invitations",
        "agent.name",
        "limits.messages_per_sender",
    )

    _service: RoomService
    """Made by `open`."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the conversations."""
        entries, invitations = self.settings[ROOMS], self.settings[INVITATIONS]
        service = self._service = RoomService(kernel, entries, invitations)
        return Opened(
            handlers=(RoomHandlers(kernel, service, Inviting(kernel, service)),),
            commands=service.commands.commands(),
            loops=(service.run,),
            shared_changes={rows.TOPIC: service.reload},
            forget=service.forget,
        )

    def reopen(self, kernel: Kernel, before: Self) -> Opened:
        """Make them with other settings; what was heard is kept."""
        opened = self.open(kernel)
        self._service.continue_with(before._service)
        return opened

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about rooms, which can only list them."""
        return (ROOM.done_by(partial(self._list, storage)),)

    async def _list(self, storage: Storage, _asking: Asking, params: RoomParams) -> CommandResult:
        if params.action != "list":
            raise CommandError("This works only while the service runs.", "action")
        found = await storage.read(rows.all_rows)
        options = all_options(self.settings[ROOMS], self.settings[INVITATIONS], found)
        return listed([sheet_of(each) for each in options.values()])


FEATURE = RoomFeature
