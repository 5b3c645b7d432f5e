"""Lets people and operators define, list, pause, resume and remove watches."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from component.features.watches import filters
from component.features.watches import rows as watch_rows
from component.features.watches.rows import COUNTS, WatchRow
from component.features.watches.settings import read_rate
from component.features.watches.watch import PRESENCE, StartRate, Watch
from component.kernel.triggers import Work
from component.skills.context import Context
from component.store.storage import Storage
from xep.binding import RawXML
from xep.jid import JID, JIDError

if TYPE_CHECKING:
    from component.features.watches.watcher import Watcher

_SHORTEST_S: Final = 1.0
"""A person's watch has a rate that counts in windows of at least so many seconds, and starts at
most once a second on average."""


class WatchError(Exception):
    """A watch cannot be made. The message is a sentence for the person who asked for it."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A watch that a person wants: the parameters of the skill that creates it.

    Args:
        name: Short name for it, of letters, digits, - and _, such as failed-builds.
        goal: What you will do each time it happens, in full sentences to yourself, such as: Tell
            the person which build failed.
        node: The PubSub node. Nodes of an account are for example http://jabber.org/protocol/mood,
            http://jabber.org/protocol/activity, http://jabber.org/protocol/tune,
            http://jabber.org/protocol/geoloc and urn:xmpp:microblog:0; presence stands for whether
            it is online. With the address of a room as the service, room stands for its
            occupants: the payload is <presence event='joined' nick='…' jid='…' affiliation='…'
            role='…'/>, and event is joined, changed, renamed or left.
        service: Address of the PubSub service, account or room; empty for the person's own account.
        where: Conditions on the XML of an item; all must hold.
        json_filter: JMESPath expression that must hold for a JSON item.
        rate: Maximum number of times, such as 10/min or 5/h.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    goal: Annotated[str, Meta(max_length=2_000)]
    node: Annotated[str, Meta(min_length=1, max_length=1024)]
    service: Annotated[str, Meta(max_length=1024)] = ""
    where: Annotated[list[filters.Condition], Meta(max_length=8)] = []
    json_filter: Annotated[str, Meta(max_length=filters.LONGEST_EXPRESSION)] = ""
    rate: Annotated[str, Meta(max_length=32)] = "10/min"


class WatchSheet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a watch. `owner` is empty if it is in the settings, `subscription` while
    the service is not running; `reason` says why it is not active or not subscribed. Of the events,
    `thinned` were joined, replaced or dropped because of the rate, `refused` could not start work,
    and `cut` were ignored, because too many agents' work had led to them.
    """

    id: str
    name: str
    owner: str = ""
    agent: str
    service: str
    node: str
    filter: str = ""
    work: str
    rate: str
    state: str
    subscription: str = ""
    reason: str = ""
    received: int = 0
    started: int = 0
    thinned: int = 0
    refused: int = 0
    cut: int = 0
    pending: int = 0


class WatchService:
    """The watches. `watcher` observes them; None while the service is not running. `services` are
    patterns of the services that people may watch.
    """

    def __init__(
        self,
        storage: Storage,
        watcher: "Watcher | None" = None,
        services: Sequence[str] = (),
        per_person: int = 0,
    ) -> None:
        self._storage = storage
        self._watcher = watcher
        self._services = tuple(services)
        self._per_person = per_person

    async def list(self, owner: str | None) -> Sequence[WatchSheet]:
        """Return the watches of one owner, or of everybody, by id. Raises StorageError."""
        rows = await self._storage.read(lambda database: watch_rows.rows(database, owner))
        return [self._sheet(row) for row in rows]

    async def create(self, wish: Wish, work: Work) -> Watch:
        """Make a watch for the principal of some work. It replaces one of the same name that the
        person has. The work has the rights and the labels; its goal is that of the wish. Raises
        WatchError, StorageError.
        """
        watch = self.checked(wish, work)
        await self._check_own_node(watch)
        if not await self._storage.write(lambda db: watch_rows.add(db, watch, self._per_person)):
            raise WatchError(
                f"You have {self._per_person} watches, which is the maximum. Remove one with /watch"
                " remove NAME first."
            )
        await self._reload()
        return watch

    def checked(self, wish: Wish, work: Work) -> Watch:
        """Return the definition of a wish. Raises WatchError."""
        person = work.principal.bare
        service = self._service(person, wish.service)
        if wish.node == PRESENCE and service.local is None:
            raise WatchError("Only an account has presence: give its address as the service.")
        try:
            filters.ItemFilter(wish.where, wish.json_filter)
        except filters.FilterError as error:
            raise WatchError(str(error)) from None
        try:
            events, seconds = read_rate(wish.rate)
        except ValueError as error:
            raise WatchError(f"The rate {wish.rate!r} {error}.") from None
        if events > seconds / _SHORTEST_S:
            raise WatchError("The rate may be one start a second at most, such as 60/min.")
        if not wish.goal.strip():
            raise WatchError("Say what I should do when it happens.")
        return Watch(
            **msgspec.structs.asdict(work) | {"principal": person, "goal": wish.goal.strip()},
            name=wish.name,
            owner=str(person),
            service=service,
            node=wish.node,
            where=tuple(wish.where),
            json=wish.json_filter,
            rate=StartRate(events, seconds),
        )

    async def pause(self, id_: str) -> bool:
        """Handle no events of a watch until it is resumed; whether there is such a watch."""
        return await self._storage.write(lambda db: watch_rows.set_state(db, id_, "paused"))

    async def resume(self, id_: str) -> bool:
        """Handle events again, without those of the pause; whether there is such a watch."""
        return await self._storage.write(lambda db: watch_rows.set_state(db, id_, "active"))

    async def remove(self, id_: str) -> bool:
        """Remove a watch; return whether there was one."""
        removed = await self._storage.write(lambda db: watch_rows.remove(db, id_))
        await self._reload()
        return removed

    async def _reload(self) -> None:
        if self._watcher is not None:
            await self._watcher.reload()

    async def publish(
        self, context: Context, to: tuple[JID, str], payload: RawXML, item: str
    ) -> str | None:
        """Publish an item at a node of a service for a skill; return its id. `item` is empty for a
        new one. Raises StanzaError, StorageError.
        """
        assert self._watcher is not None, "skills are called while the service runs"
        return await self._watcher.publish(context, to, payload, item or None)

    def may_use(self, person: JID, service: JID) -> bool:
        """Return whether a person may watch or publish at a service by means of an agent."""
        if service == person.bare:
            return True
        return any(fnmatchcase(str(service), pattern) for pattern in self._services)

    def _is_own(self, service: JID) -> bool:
        return self._watcher is not None and self._watcher.is_own(service)

    async def _check_own_node(self, watch: Watch) -> None:
        """Raise WatchError if a watch is for a node of this service that its person may not read:
        the agent may read all of them.
        """
        watcher, service, node = self._watcher, watch.service, watch.node
        if watcher is None or not watcher.is_own(service):
            return
        if not await watcher.may_read(service, node, watch.principal):
            raise WatchError(f"There is no node {node} of {service} for you.")

    def _service(self, person: JID, text: str) -> JID:
        if not text.strip():
            return person.bare
        try:
            service = JID.parse(text.strip()).bare
        except JIDError as error:
            raise WatchError(f"{text[:100]!r} is not an address: {error}") from None
        if not (self._is_own(service) or self.may_use(person, service)):
            known = f" and {', '.join(self._services)}" if self._services else ""
            raise WatchError(f"I may only watch your own account{known} for you, not {service}.")
        return service

    def _sheet(self, row: WatchRow) -> WatchSheet:
        watch, reason, subscription = row.watch, row.reason, ""
        if self._watcher is not None:
            status = self._watcher.status(watch)
            subscription, reason = status.state, reason or status.reason
        return WatchSheet(
            id=watch.id,
            name=watch.name,
            owner=watch.owner,
            agent=watch.agent,
            service=str(watch.service),
            node=watch.node,
            filter=" and ".join(filter(None, (*map(_condition, watch.where), watch.json))),
            work=watch.goal or f"run {watch.skill}",
            rate=f"{watch.rate.events} in {watch.rate.seconds:g} s, then {watch.thinning}",
            state=row.state,
            subscription=subscription,
            reason=reason,
            **{name: getattr(row, name) for name in COUNTS},
        )


def _condition(condition: filters.Condition) -> str:
    what = condition.element or "the payload"
    if condition.attribute:
        what = f"{condition.attribute} of {what}"
    tests = {
        "is": condition.equals,
        "contains": condition.contains,
        "is above": condition.above,
        "is below": condition.below,
    }
    words = [
        f"{word} {value:g}" if isinstance(value, float | int) else f"{word} {value!r}"
        for word, value in tests.items()
        if value is not None
    ]
    if condition.exists is not None:
        words.append("exists" if condition.exists else "does not exist")
    return f"{what} {' and '.join(words)}"
