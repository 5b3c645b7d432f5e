"""Commands about notifications: quiet hours, and held notifications."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from component import system
from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
    person_or_caller,
    short_ids,
    shorten,
    whole_id,
)
from component.config.work import Notifications, quiet_hours, time_zone
from component.features.notifications.plan import effective
from component.kernel.contacts import PersonZones
from component.store.notifications import Notification, NotificationStore, Preferences, Priority
from component.zones import spoken_time
from xep.jid import JID

_ALL: Final = "all"
_LONGEST_LINE: Final = 200
_LONGEST_TITLE: Final = 60


class HeldParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the list of held notifications.

    Args:
        person: Address of the person, such as juliet@example.com. Only for admins. Default: you, or
            everybody on the command line.
    """

    person: str = ""


class QuietParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of quiet hours.

    Args:
        hours: Hours such as 22:00-07:00, off for none, or default for those of the service.
            Default: show the current ones.
        zone: Time zone such as Europe/Paris. Default: that of your client.
        urgent: Let notifications of high priority through in these hours.
        person: Address of the person, such as juliet@example.com. Only for admins. Default: you, or
            everybody on the command line.
    """

    hours: str = ""
    zone: Annotated[str, msgspec.Meta(title="Time zone")] = ""
    urgent: Annotated[bool, msgspec.Meta(title="Urgent ones")] = False
    person: str = ""


class DropParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of dropping a held notification.

    Args:
        id: ID of the notification, or its beginning, or all for all of them.
        person: Address of the person, such as juliet@example.com. Only for admins. Default: you, or
            everybody on the command line.
    """

    id: Annotated[str, msgspec.Meta(title="ID", min_length=1)]
    person: str = ""


class QuietSheet(msgspec.Struct, frozen=True, kw_only=True):
    """The quiet hours of a person; `hours` is empty for none. `zone` is a name or an offset."""

    hours: str
    zone: str
    urgent: bool


class HeldLine(msgspec.Struct, frozen=True, kw_only=True):
    """A held notification in a list; `created` is UTC."""

    id: str
    person: str
    title: str
    priority: Priority
    waits_for: str
    created: datetime
    text: str


QUIET = Outline(
    name="quiet",
    title="Quiet hours",
    about="set the hours in which I do not notify you",
    params=QuietParams,
    group="contact",
)
HELD = Outline(
    name="notifications",
    title="Held notifications",
    about="list the notifications that I hold for you",
    params=HeldParams,
    group="contact",
)
DROP = Outline(
    name="drop-notification",
    title="Drop a notification",
    about="delete a notification that I hold for you",
    params=DropParams,
    group="contact",
)


class NotificationCommands:
    """The commands about notifications. `zones` finds the time zones of people. `changed` is called
    when a person's quiet hours have changed, so that held notifications are sent; `dropped` with
    an agent and a person whose notifications were deleted.
    """

    def __init__(
        self,
        store: NotificationStore,
        settings: Notifications,
        zones: PersonZones,
        changed: Callable[[], None] = lambda: None,
        dropped: Callable[[JID, JID], None] = lambda _agent, _person: None,
    ) -> None:
        self._changed = changed
        self._dropped = dropped
        self._store = store
        self._settings = settings
        self._zones = zones

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (
            QUIET.done_by(self._quiet),
            HELD.done_by(self._held),
            DROP.done_by(self._drop, {"id": self._titles}),
        )

    async def _quiet(self, asking: Asking, params: QuietParams) -> CommandResult:
        person = person_or_caller(asking, params.person)
        if person is None:
            raise CommandError("Say whose quiet hours: give person.", "person")
        before = await self._store.preferences(person)
        changes = params.hours or params.zone or params.urgent
        if changes:
            hours = _hours(params.hours) if params.hours else before.quiet
            zone = _zone(params.zone) if params.zone else before.zone
            await self._store.set_quiet(person, hours, zone, urgent=params.urgent)
            self._changed()
        sheet = self._sheet(await self._store.preferences(person))
        return CommandResult(_quiet_hours_text(sheet), sheet)

    def _sheet(self, preferences: Preferences) -> QuietSheet:
        found = effective(preferences, self._settings, self._zones.default, system.now())
        hours = "" if found is None else f"{found.begin:%H:%M}-{found.end:%H:%M}"
        zone = "" if found is None else str(found.zone)
        return QuietSheet(hours=hours, zone=zone, urgent=preferences.urgent)

    async def _held(self, asking: Asking, params: HeldParams) -> CommandResult:
        person = person_or_caller(asking, params.person)
        held = await self._store.held(person, asking.at)
        lines = [_line(one) for one in held]
        if not lines:
            return CommandResult("There are no held notifications.", lines)
        zone = await self._zones.of_caller(asking)
        now, ids = system.now(), short_ids([line.id for line in lines])
        texts = [
            _notification_text(line, spoken_time(line.created, now, zone), whose=person is None)
            for line in lines
        ]
        listed = [f"- {text} (id {ids[line.id]})" for text, line in zip(texts, lines, strict=True)]
        return CommandResult("\n".join(listed), lines)

    async def _titles(self, asking: Asking) -> Mapping[str, str]:
        held = await self._store.held(asking.principal, asking.at)
        titles = {one.id: f"{one.title}: {shorten(one.text, _LONGEST_TITLE)}" for one in held}
        return {**titles, _ALL: "All of them"} if titles else {}

    async def _drop(self, asking: Asking, params: DropParams) -> CommandResult:
        person = person_or_caller(asking, params.person)
        wanted = params.id.strip()
        is_all = wanted.casefold() == _ALL
        if is_all and person is None:
            raise CommandError("Say whose notifications: give person.", "person")
        if not is_all:
            held = await self._store.held(person, asking.at)
            wanted = whole_id(wanted, [one.id for one in held], "id")
        count = await self._store.drop(person, None if is_all else wanted, asking.at)
        if not count and not is_all:
            raise CommandError(
                "This notification does not exist. It may have been sent in the meantime: "
                "/notifications lists those that are held.",
                "id",
            )
        if asking.at is not None and person is not None:
            self._dropped(asking.at, person)
        return CommandResult(
            "1 notification dropped." if count == 1 else f"{count} notifications dropped."
        )


def _hours(text: str) -> str | None:
    word = text.strip().casefold()
    if word in ("off", "none"):
        return ""
    if word == "default":
        return None
    if quiet_hours(text) is None:
        raise CommandError(
            "Write two different times such as 22:00-07:00, or off, or default.", "hours"
        )
    return text.strip()


def _zone(text: str) -> str | None:
    word = text.strip()
    if word.casefold() == "default":
        return None
    if time_zone(word) is None:
        raise CommandError(
            "I do not know this time zone. Write it as in Europe/Paris, or default for the one "
            "that your client reports.",
            "zone",
        )
    return word


def _quiet_hours_text(sheet: QuietSheet) -> str:
    if not sheet.hours:
        return "You have no quiet hours: I notify you at any time."
    urgent = "except urgent ones" if sheet.urgent else "urgent ones as well"
    return (
        f"Your quiet hours are {sheet.hours} ({sheet.zone}). I hold notifications in these hours,"
        f" {urgent}. I still answer you at any time."
    )


def _line(one: Notification) -> HeldLine:
    return HeldLine(
        id=one.id,
        person=str(one.person),
        title=one.title,
        priority=one.priority,
        waits_for="online" if one.waits_online else "time",
        created=datetime.fromtimestamp(one.created / 1000, UTC),
        text=one.text,
    )


def _notification_text(line: HeldLine, created: str, *, whose: bool) -> str:
    shown = shorten(line.text.partition("\n")[0], _LONGEST_LINE)
    held = "until you are online" if line.waits_for == "online" else "for now"
    person = f" for {line.person}" if whose else ""
    return f"{line.title}{person}, {created}, held {held}: {shown}"
