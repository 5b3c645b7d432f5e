"""Items that a PubSub service publishes, people who come and go, and the watches of both."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, ClassVar, Final
from xml.etree import ElementTree as ET

import anyio
import msgspec

from component.skills import Context, Skill, skill
from tests.kit.process import current_process
from tests.kit.pubsub import DOMAIN, PubSubService, Server
from tests.simulation.area import Area
from tests.simulation.areas import objects
from tests.simulation.areas.block_rules import BLOCK, UNBLOCK
from tests.simulation.areas.chat import BUDGET
from tests.simulation.history import Effect, Entry, Fault, KeptOut, Prompt, Wish
from tests.simulation.life import DAY_S, Action
from tests.simulation.rules import Rule, Violation

NODE: Final = "builds"
PUBLISHER: Final = "builds@pubsub"
"""Who publishes, in the history."""
_ITEMS: Final = 8
"""So many ids do items have: a later one with the same id is a new version."""
_ADMIN: Final = "nurse"
_WATCHED: Final = "romeo"
"""Whose presence is watched."""
_STARTED: Final = re.compile(r"(e\d+)\.([a-z]+)\.again")
_SETTLED_S: Final = 60.0
"""Seconds in which a service that nothing disturbs has recorded a notification."""
_HOUR_S: Final = 3600.0
_WATCH: Final = {
    "service": DOMAIN,
    "node": NODE,
    "principal": "nurse@capulet.example",
    "skill": "seen",
    "starts_per_hour": 100_000,
}
_PARAMS: Final = {"label": "{text}", "joined": "{events[].text}"}
RATE: Final = 3
"""Starts of the watch `thinned` in a minute."""
PER_HOUR: Final = 4
"""Starts of the watch `looping` in an hour, after which it is stopped."""


class Publish(Action, frozen=True, kw_only=True):
    """Items are published, one after another; others do not hear of `lost` ones."""

    items: tuple[int, ...]
    is_lost: bool = False


class Retract(Action, frozen=True, kw_only=True):
    """An item is retracted."""

    item: int


class Gone(Action, frozen=True, kw_only=True):
    """The PubSub service cannot be reached for some time."""

    seconds: float


class Resume(Action, frozen=True, kw_only=True):
    """An administrator starts a watch again that was stopped as a loop."""


def _publish(chance: Random, at: float, number: int) -> Publish:
    items = tuple(chance.randrange(_ITEMS) for _ in range(chance.choice((1, 1, 1, 2, 6))))
    return Publish(at=at, number=number, items=items, is_lost=chance.random() < 0.1)


def _retract(chance: Random, at: float, number: int) -> Retract:
    return Retract(at=at, number=number, item=chance.randrange(_ITEMS))


def _gone(chance: Random, at: float, number: int) -> Gone:
    return Gone(at=at, number=number, seconds=chance.choice((5.0, 600.0)) * chance.random())


def _resume(_chance: Random, at: float, number: int) -> Resume:
    return Resume(at=at, number=number)


_TELLS: Final = re.compile(r"Say what was built\.\nWhat happened, as JSON:\n[^\n]*\Z")
"""The end of a prompt that shows an event to a model for the first time."""


class _Item(msgspec.Struct):
    """A version of an item.

    Attributes:
        number: its place in the order of the node.
        first: the number of the first version of the item.
        how: "unwatched" if the node had no subscriber yet, "lost" if the notification was lost,
            "away" if the service was not connected.
        is_there: whether the node still has it.
    """

    number: int
    first: int
    at: float
    how: str
    is_there: bool = True


class Starts(Rule):
    """Each version of an item starts the work of each watch once, in order, within its rate."""

    def __init__(self) -> None:
        self._items: dict[str, _Item] = {}
        self._of_id: dict[str, str] = {}
        self._faults: list[float] = []
        self._started: dict[str, dict[str, float]] = defaultdict(dict)
        """By watch: when the work for each label has begun, which names the latest of its items."""
        self._joined: dict[str, dict[str, str]] = defaultdict(dict)
        self._told: set[str] = set()
        self._refused = -DAY_S
        """When a budget of the day was spent."""
        self._is_failing = False
        """Whether the budget was spent when a model was to be told: that is reported once, until
        a model can be told again.
        """
        self._resumed: list[float] = []
        self._is_ejabberd = False

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        elif isinstance(entry, Wish):
            self._wish(entry, entry.text.split())
        elif isinstance(entry, Effect):
            match = _STARTED.fullmatch(entry.label)
            if match is not None and match[1] not in self._started[match[2]]:
                self._start(match[1], match[2], entry.at)
        elif isinstance(entry, Prompt):
            self._told |= set(re.findall(r"\be\d+\b", entry.text))
            self._is_failing = self._is_failing and not _TELLS.search(entry.text)
        elif isinstance(entry, KeptOut):
            self._hear(entry.xml, entry.at)
        elif stanza is not None:
            self._hear(stanza.findtext("{*}body", ""), entry.at)

    def _hear(self, text: str, at: float) -> None:
        if BUDGET in text:
            self._refused = at
            self._is_failing = self._is_failing or "The watch told failed" in text

    def _wish(self, entry: Wish, words: list[str]) -> None:
        if entry.who == PUBLISHER:
            match words:
                case ["is", server]:
                    self._is_ejabberd = server == "ejabberd"
                case ["publishes", label, "as", id_, *how]:
                    before, first = self._of_id.get(id_), len(self._items)
                    if before is not None:
                        self._items[before].is_there, first = False, self._items[before].first
                    self._of_id[id_] = label
                    made = _Item(len(self._items), first, entry.at, " ".join(how))
                    self._items[label] = made
                case ["retracts", id_]:
                    self._items[self._of_id.pop(id_)].is_there = False
        elif words[:1] == ["joins"]:
            for label in words[2:]:
                before = self._joined[words[1]].setdefault(label, words[-1])
                if before != words[-1]:
                    raise Violation(f"{words[1]} has handled {label} with {before}, then {words}")
        elif entry.text.startswith("/watch resume"):
            self._resumed.append(entry.at)

    def _start(self, label: str, watch: str, at: float) -> None:
        item = self._items.get(label)
        if item is None:
            raise Violation(f"{watch} has started work for {label}, which was never published")
        if item.how == "unwatched":
            raise Violation(f"{watch} has started work for {label}, which was there before it")
        if watch == "builds" and self._started[watch] and item.how != "lost":
            before = self._items[next(reversed(self._started[watch]))]
            is_late = item.number < before.number
            # ejabberd lists an item where its first version was.
            if is_late and not (self._is_ejabberd and before.first < item.first):
                raise Violation(f"{label} was handled after an item that is newer than it")
        self._started[watch][label] = at

    def at_rest(self) -> None:
        wanted = [label for label, item in self._items.items() if self._must_start(item)]
        for label in wanted:
            for watch in ("builds", "thinned"):
                if label not in self._started[watch] and label not in self._joined[watch]:
                    raise Violation(f"the watch {watch} has never started work for {label}")
        is_refused = bool(wanted) and self._items[wanted[-1]].at < self._refused + DAY_S
        is_refused = is_refused or self._is_failing
        if wanted and not is_refused and self._told.isdisjoint(self._last(wanted[-1])):
            raise Violation(f"no model was shown {wanted[-1]}, which was the last one")
        self._check_rate("thinned", RATE, 60.0)
        self._check_rate("looping", PER_HOUR, _HOUR_S)

    def _last(self, label: str) -> Sequence[str]:
        """Return the last item, or those of which any may be: ejabberd lists new versions of items
        after it where their first versions were.
        """
        started = [*self._started["builds"]]
        if not self._is_ejabberd or label not in started:
            return (label,)
        return started[started.index(label) :]

    def _must_start(self, item: _Item) -> bool:
        if item.is_there or item.how:
            return item.is_there and item.how != "unwatched"
        begin, end = item.at - 1.0, item.at + _SETTLED_S
        return not any(begin <= at <= end for at in self._faults)

    def _check_rate(self, watch: str, most: int, window_s: float) -> None:
        """Check the starts between any two moments. A start is counted in a window after the first
        of its events, and before its work begins.
        """
        joined: dict[str, list[str]] = defaultdict(list)
        for label, latest in self._joined[watch].items():
            joined[latest].append(label)
        spans = [
            (min(self._items[one].at for one in (label, *joined[label])), at)
            for label, at in self._started[watch].items()
        ]
        for begin, _ in spans:
            within = sorted(end for first, end in spans if first >= begin)
            for number, end in enumerate(within, start=1):
                windows = (end - begin) // window_s + 2
                if watch == "looping":
                    windows += sum(begin <= at <= end for at in self._resumed)
                if number > most * windows:
                    raise Violation(
                        f"the watch {watch} has started work {number} times in {end - begin:.0f} s"
                    )


class Presences(Rule):
    """Work about somebody's presence starts when it changes, and knows the last one."""

    def __init__(self) -> None:
        self._last = ""
        self._shown = ""
        self._blocks, self._is_known = False, True
        """Whether servers tell the agent; not all do so when somebody blocks it no longer."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish) and entry.who.startswith(f"{_WATCHED}@"):
            if entry.text in (BLOCK, UNBLOCK):
                self._blocks, self._is_known = entry.text == BLOCK, False
        elif isinstance(entry, Effect) and entry.label.startswith("presence-"):
            if entry.label.startswith("presence-online"):
                self._is_known = not self._blocks
            if self._shown == entry.label:
                return  # the step is repeated
            self._shown, before = entry.label, self._last
            self._last = entry.label.split("-")[1]
            if before == self._last:
                raise Violation(f"{_WATCHED} was said to be {before} twice in a row")

    def at_rest(self) -> None:
        if self._is_known and self._last not in ("", "online"):
            raise Violation(f"{_WATCHED} is online, and was last said to be {self._last}")


class Events(Area):
    """Items that are published, people who come and go, and the watches of both."""

    draws: ClassVar = {_publish: 5, _retract: 1, _gone: 1, _resume: 1}
    actions = (Publish, Retract, Gone, Resume)
    rules = (Starts, Presences)
    settings: ClassVar = {
        "watches": {"check_s": 14_400},
        "watch": [
            {**_WATCH, "name": "builds", "params": {"watch": "builds", **_PARAMS}, "rate": "999/s"},
            {
                **_WATCH,
                "name": "thinned",
                "params": {"watch": "thinned", **_PARAMS},
                "rate": f"{RATE}/min",
            },
            {
                **_WATCH,
                "name": "looping",
                "params": {"watch": "looping", **_PARAMS},
                "rate": "999/s",
                "starts_per_hour": PER_HOUR,
            },
            {
                "name": "told",
                "service": DOMAIN,
                "node": NODE,
                "principal": "nurse@capulet.example",
                "goal": "Say what was built.",
                "rate": "4/h",
                "thinning": "latest",
            },
            {
                "name": "presence",
                "service": f"{_WATCHED}@capulet.example",
                "node": "presence",
                "principal": f"{_WATCHED}@capulet.example",
                "skill": "shown",
                "params": {"payload": "{payload}"},
            },
            objects.WATCH,
        ],
    }

    def skills(self) -> Sequence[Skill]:
        """Return the skills of the watches."""
        world, outside = self.world, self.world.outside

        @skill(destructive=False, open_world=False, durable=True)
        async def seen(
            watch: str, label: str, context: Context, joined: list[str] | None = None
        ) -> str:
            """Handle an item, and those that have come with it."""
            if joined and current_process().is_alive:
                told = f"joins {watch} {' '.join(joined)}"
                world.history.add(Wish(world.history.now(), "skill", told))
            work = partial(outside.do, f"{label}.{watch}.again", "s0")
            await context.step("s0", work, str, repeatable=True)
            return f"seen {label}" if watch == "builds" else ""

        @skill(destructive=False, open_world=False, durable=True)
        async def shown(payload: str, context: Context) -> str:
            """Handle a presence."""
            show = ET.fromstring(payload).get("show", "")
            work = partial(outside.do, f"presence-{show}-{context.key[:12]}.again", "s0")
            await context.step("s0", work, str, repeatable=True)
            return ""

        return (seen, shown)

    async def begin(self) -> None:
        """Create the node, with an item for which the watch owes no news."""
        world = self.world
        server: Server = world.chance.choice(("prosody", "ejabberd"))
        self._pubsub = PubSubService(world.xmpp, server=server)
        self._node = self._pubsub.create(NODE)
        self._was_watched = False
        self._tell(f"is {server}")
        self._publish("e0", 0, is_lost=False)

    async def perform(self, action: Any) -> None:
        """Let something happen at the node."""
        world = self.world
        match action:
            case Publish(items=items, is_lost=is_lost):
                for place, item in enumerate(items):
                    if self._pubsub.is_there:
                        self._publish(f"e{100 * action.number + place}", item, is_lost=is_lost)
                    await anyio.sleep(world.chance.choice((0.0, 0.0, 1.0)) * world.chance.random())
            case Retract(item=item):
                if self._pubsub.is_there and f"i{item}" in self._node.items:
                    self._tell(f"retracts i{item}")
                    self._node.retract(f"i{item}")
            case Gone(seconds=seconds):
                world.history.fault("error", f"the PubSub service is gone for {seconds:.0f} s")
                self._pubsub.go()
                await anyio.sleep(seconds)
                self._pubsub.come()
            case Resume():
                admin = world.residents[_ADMIN]
                admin.wants("/watch resume looping")
                await admin.say("/watch resume looping", f"resume-{action.number}")

    def heal(self) -> None:
        """End all faults."""
        self._pubsub.come()

    def _publish(self, label: str, item: int, *, is_lost: bool) -> None:
        subscribers = set(self._node.subscribers)
        self._was_watched = self._was_watched or bool(subscribers)
        how = "lost" if is_lost else ""
        if not self.world.xmpp.is_connected(self.world.kit.agent):
            how = "away"
        if not self._was_watched:
            how = "unwatched"
        self._tell(f"publishes {label} as i{item} {how}".strip())
        if is_lost:
            self._node.subscribers.clear()
        self._node.publish(f"i{item}", f"<build xmlns='urn:builds'>{label}</build>")
        self._node.subscribers |= subscribers

    def _tell(self, text: str) -> None:
        self.world.history.add(Wish(self.world.history.now(), PUBLISHER, text))
