"""Watches: the events that an agent observes, and the work that they start."""

from hashlib import sha256
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from component.agent_addresses import canonical_address
from component.features.watches.filters import Condition, fill_params
from component.features.watches.settings import WatchEntry, read_rate
from component.kernel.triggers import Work, work_of
from xep.jid import JID
from xep.tree import Tree

PRESENCE: Final = "presence"
"""The value of `node` for the presence of a person."""

ROOM: Final = "room"
"""The value of `node` for the occupants of a room (XEP-0045)."""

Thinning: TypeAlias = Literal["latest", "digest", "drop"]
"""The policy for events above the rate of a watch: handle only the latest of them, all of them
together, or none of them."""

WatchState: TypeAlias = Literal["active", "paused", "tripped"]
"""Whether events are handled: `paused` by a person, `tripped` by the breaker against loops."""


class StartRate(msgspec.Struct, frozen=True):
    """A bound: `events` starts of work in each window of `seconds`."""

    events: int
    seconds: float


class Source(NamedTuple):
    """A source of events: a node, and the address that observes it. `node` is `PRESENCE` for the
    presence of the account, `ROOM` for the occupants of the room.
    """

    subscriber: JID
    service: JID
    node: str

    @property
    def key(self) -> str:
        """The key of its rows in the database: the same for both addresses of an agent."""
        agent = canonical_address(self.subscriber)
        text = "\n".join((str(agent), str(self.service), self.node))
        return sha256(text.encode()).hexdigest()[:32]

    @property
    def is_presence(self) -> bool:
        """Whether it is the presence of an account."""
        return self.node == PRESENCE

    @property
    def is_room(self) -> bool:
        """Whether it is the occupants of a room."""
        return self.node == ROOM and self.service.local is not None

    @property
    def is_of_account(self) -> bool:
        """Whether it is a node of an account (XEP-0163)."""
        return self.service.local is not None and not self.is_presence and not self.is_room


class Watch(Work, frozen=True, kw_only=True, omit_defaults=True):
    """A watch as a person or an administrator has defined it: the events, and their work.

    `params` can have expressions; see `component.features.watches.filters`. `filled` is not used.

    Attributes:
        owner: the bare JID of the person who asked for it; empty if it is in the settings.
        nick: the nickname of the agent in the room; empty for its name.
        json: a JMESPath expression that must hold for a JSON payload (XEP-0335); empty for none.
        starts_per_hour: number of starts in an hour at which the watch is stopped as a loop.
    """

    name: str
    owner: str = ""
    service: JID
    node: str
    nick: str = ""
    where: tuple[Condition, ...] = ()
    json: str = ""
    rate: StartRate = StartRate(60, 60.0)
    thinning: Thinning = "digest"
    starts_per_hour: int = 1000

    @property
    def id(self) -> str:
        """Its id in the database and as the name of its triggers."""
        return f"{self.owner}/{self.name}" if self.owner else self.name

    def work_for(self, event: bytes) -> Work:
        """Return the work for an event, the JSON of its `EventData`. Raises FilterError."""
        params = fill_params(bytes(self.params), event)
        values = {name: getattr(self, name) for name in Work.__struct_fields__}
        filled = params != bytes(self.params)
        return Work(**values | {"params": msgspec.Raw(params), "filled": filled})


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a source, as it was read from the wire.

    Attributes:
        item: the id of the item; the bare JID for presence, the nickname for an occupant. Empty for
            an item without an id.
        version: a digest of the payload. The same id with another digest is a new event.
        publisher: the publisher according to the service; empty if it does not report one.
        chain: the bare JIDs of the agents whose work has led to it.
        json: the JSON of the event for parameters and models, if it is not that of the payload.
    """

    item: str
    version: str
    payload: str = ""
    tree: Tree | None = None
    publisher: str = ""
    chain: tuple[str, ...] = ()
    json: msgspec.Raw | None = None


class EventData(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an event, for models and for the parameters of skills. `text` is the text of
    the payload, without its tags. `json` is the value of a JSON payload (XEP-0335).
    """

    service: str
    node: str
    item: str = ""
    publisher: str = ""
    text: str = ""
    payload: str = ""
    json: msgspec.Raw = msgspec.Raw(b"null")


def watch_of(entry: WatchEntry) -> Watch:
    """Return the watch of an entry of the settings."""
    return Watch(
        **msgspec.structs.asdict(work_of(entry)),
        name=entry.name,
        service=JID.parse(entry.service),
        node=entry.node,
        nick=entry.nick,
        where=tuple(Condition(**each.model_dump()) for each in entry.where),
        json=entry.json_filter,
        rate=StartRate(*read_rate(entry.rate)),
        thinning=entry.thinning,
        starts_per_hour=entry.starts_per_hour,
    )
