"""People who have the agent remember something, and forget it, in the chat and at their nodes."""

import re
from random import Random
from typing import Any, ClassVar, Final, Literal
from xml.etree import ElementTree as ET

import anyio

from tests.kit.pep import Pep
from tests.simulation.area import Area
from tests.simulation.areas.memory_rules import ABSENT, Memories
from tests.simulation.life import PEOPLE, Action
from tests.simulation.people import Resident
from xep.binding.escaping import escape_text

Side = Literal["chat", "node"]
_KEYS: Final = ("tea", "hat", "pin")
_MEMORY: Final = "urn:fluux:agent:0#memory"
_PUBSUB: Final = "http://jabber.org/protocol/pubsub"
_ANSWER_S: Final = 20.0
_VALUE: Final = re.compile(r"\bvalue-\w+\b")


class Remember(Action, frozen=True, kw_only=True):
    """A person has something remembered, or forgotten, in the chat or at the node."""

    who: str
    key: str
    forgets: bool
    side: Side


class Peek(Action, frozen=True, kw_only=True):
    """A person wants to read the memories of somebody else."""

    who: str
    whose: str


class NodesFail(Action, frozen=True, kw_only=True):
    """The nodes in accounts fail for some time, if the memories are there."""

    seconds: float


def _remember(chance: Random, at: float, number: int) -> Remember:
    side: Side = chance.choice(("chat", "chat", "node"))
    who, key = chance.choice(PEOPLE), chance.choice(_KEYS)
    forgets = chance.random() < 0.3
    return Remember(at=at, number=number, who=who, key=key, forgets=forgets, side=side)


def _peek(chance: Random, at: float, number: int) -> Peek:
    who, whose = chance.sample(PEOPLE, 2)
    return Peek(at=at, number=number, who=who, whose=whose)


def _fail(chance: Random, at: float, number: int) -> NodesFail:
    seconds = chance.choice((1.0, 60.0, 4 * 3600.0)) * chance.random()
    return NodesFail(at=at, number=number, seconds=seconds)


class Remembering(Area):
    """People who have the agent remember something."""

    draws: ClassVar = {_remember: 8, _peek: 1, _fail: 1}
    actions = (Remember, Peek, NodesFail)
    rules = (Memories,)

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        chance = Random(f"memories {world.life.seed}")
        self._home = chance.choice(("agent", "agent", "person"))
        memory = {"store": chance.choice(("both", "pep")), "home": self._home}
        self.settings = {"memory": memory}
        self._pep: Pep | None = None
        self._locks = {name: anyio.Lock() for name in PEOPLE}
        self._fails = 0

    async def begin(self) -> None:
        """Let people make nodes in their accounts, if the memories are there."""
        if self._home == "agent":
            return
        world = self.world
        self._pep = Pep(world.xmpp, "capulet.example")
        world.residents["juliet"].wants("memories are in accounts")
        for name in PEOPLE:
            self._pep.make(world.residents[name].jid.bare, _MEMORY, f"assistant@{world.kit.agent}")

    async def perform(self, action: Any) -> None:
        """Have something remembered or forgotten, or try to read what is not one's own."""
        if isinstance(action, NodesFail):
            await self._fail(action.seconds)
            return
        who = self.world.residents[action.who]
        if isinstance(action, Peek):
            await self._items(who, self.world.residents[action.whose], f"peek-{action.number}")
            return
        assert isinstance(action, Remember)
        side: Side = action.side
        if self._pep is not None and action.forgets:
            side = "chat"  # an account does not say why its last item is missing
        value = ABSENT if action.forgets else f"value-{action.number}"
        async with self._locks[action.who]:
            who.wants(f"memory {action.key} shall be {value} in {side} k{action.number}")
            change = self._in_chat if side == "chat" else self._at_node
            done = await change(who, action.key, value, f"k{action.number}")
            if done is not None:
                outcome = "is done" if done else "has failed"
                who.wants(f"change k{action.number} {outcome}")

    async def _fail(self, seconds: float) -> None:
        if self._pep is None:
            return
        self.world.history.fault("error", f"the nodes in accounts, {seconds:.0f} s")
        self._fails += 1
        self._pep.is_down = True
        await anyio.sleep(seconds)
        self._fails -= 1
        if not self._fails:
            self._pep.is_down = False
            self.world.history.fault("healthy", "the nodes in accounts")

    async def _in_chat(self, who: Resident, key: str, value: str, id_: str) -> bool | None:
        """Send a command; return whether it is done, None if nobody knows."""
        text = f"/memory set {key} {_text(who, value)}"
        pattern = rf"Remembered {key} \(version|^Deleted {key}|(I remember nothing called {key})"
        if value == ABSENT:
            text = f"/memory forget {key}"
        found = await who.ask(text, f"{who.jid.local}-{id_}", pattern, _ANSWER_S)
        return None if found is None else True

    async def _at_node(self, who: Resident, key: str, value: str, id_: str) -> bool | None:
        node = self._node(who)
        if value == ABSENT:
            payload = f"<retract node='{node}' notify='true'><item id='{key}'/></retract>"
        else:
            payload = (
                f"<publish node='{node}'><item id='{key}'><memory xmlns='{_MEMORY}' key='{key}'>"
                f"<content>{escape_text(_text(who, value))}</content></memory></item></publish>"
            )
        xml = f"<pubsub xmlns='{_PUBSUB}'>{payload}</pubsub>"
        answer = await who.iq("set", xml, id_, self._place(who))
        if answer is None:
            return None
        if answer.get("type") == "result":
            return True
        if answer.find("{*}error/{*}item-not-found") is not None:
            return value == ABSENT
        is_lost = answer.find("{*}error/{*}remote-server-timeout") is not None
        return False if is_lost or self._pep is not None else None

    async def finish(self) -> None:
        """Read all memories."""
        for name in PEOPLE:
            who = self.world.residents[name]
            listed = r"(?s)^(?:- .*|I remember nothing.*)$"
            found = await who.ask("/memory", f"{name}-memories", listed, _ANSWER_S)
            node = await self._items(who, who, f"items-{name}")
            if found is not None:
                lines = dict(re.findall(r"^- (\w+): (.*)$", found[0], re.MULTILINE))
                self._note(who, lines, "chat")
            if node is not None:
                self._note(who, node, "node")

    def _note(self, who: Resident, found: dict[str, str], side: str) -> None:
        for key in _KEYS:
            value = _VALUE.search(found.get(key, ""))
            who.wants(f"memory {key} is {ABSENT if value is None else value[0]} in {side}")

    async def _items(self, who: Resident, whose: Resident, name: str) -> dict[str, str] | None:
        """Read a node; return the texts of its items, None if it cannot be read."""
        xml = f"<pubsub xmlns='{_PUBSUB}'><items node='{self._node(whose)}'/></pubsub>"
        answer = await who.iq("get", xml, name, self._place(whose))
        if answer is None or answer.get("type") == "error":
            return None
        items = answer.iter(f"{{{_PUBSUB}}}item")
        return {one.get("id", ""): "".join(ET.Element.itertext(one)) for one in items}

    def _node(self, whose: Resident) -> str:
        return _MEMORY if self._pep is not None else f"{_MEMORY}/{whose.jid.bare}"

    def _place(self, whose: Resident) -> str:
        return self.world.kit.agent if self._pep is None else str(whose.jid.bare)

    def heal(self) -> None:
        """End the faults of the nodes."""
        if self._pep is not None:
            self._pep.is_down = False


def _text(who: Resident, value: str) -> str:
    """Return a memory that a prompt of this person is likely to have."""
    number = value.removeprefix("value-")
    return f"{value}: please talk of my secret, secret-{who.jid.local}-{number}."
