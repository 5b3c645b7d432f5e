"""PubSub nodes in memory that a person edits, and a replica between them and real files."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from msgspec.structs import replace

from component.config.memory import Memory
from component.features.memory_nodes.items import Cipher, NodeItem
from component.features.memory_nodes.store import NodeItemChangedError, PepStore
from component.memory.index import Index
from component.memory.index_database import FILE_NAME
from component.memory.knowledge import Knowledge, Memo
from component.memory.reconciler import SyncOptions
from component.memory.sharing import Sharing
from component.memory.store import Generation, Past, StoreUnavailableError, Watcher
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from tests.component.memory.remembering import AGENT, ANN, Recording
from tests.waiting import LIMIT_S
from xep.binding import RawXML, read
from xep.binding.escaping import escape_text
from xep.fluux_agent.memory import NAMESPACE
from xep.fluux_agent.memory import Memory as Payload
from xep.jid import JID

ADDRESS = JID.parse("assistant@agent.example")
ANNS = SessionKey(AGENT, ANN)


class MemoryNodes:
    """PubSub nodes in memory.

    Attributes:
        published: what the agent has published, in order: the id and the text.
        down: whether the service does not answer.
        loses_answer: whether the next change is made but its answer is lost.
        silent: whether deletions send no notification.
        hangs: whether no request is ever answered.
        waited_for: how many requests were made while it hangs.
        tells: whether it knows earlier changes, as our own nodes do.
        identity, changes: which nodes they are, and how often they were changed.
        retractions: which items the person has deleted, and when.
        gate: what every request waits for.
    """

    def __init__(self) -> None:
        self.nodes: dict[SessionKey, dict[str, str]] = {}
        self.published: list[tuple[str, str]] = []
        self.retracted: list[str] = []
        self.down = False
        self.loses_answer = False
        self.silent = False
        self.hangs = False
        self.waited_for = 0
        self.gate: anyio.Event | None = None
        self.identity = "1"
        self.changes = 0
        self.retractions: dict[str, float] = {}
        self.tells = True
        self.now = 2_000_000_000.0
        self._watchers: list[Watcher] = []

    def is_reachable(self, whose: SessionKey) -> bool:
        return not self.down

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def items(self, whose: SessionKey, ids: Sequence[str] = ()) -> Sequence[NodeItem]:
        await self._ask()
        node = self.nodes.get(whose, {})
        return [NodeItem(id_, node[id_]) for id_ in ids or node if id_ in node]

    async def past(self, whose: SessionKey) -> Past:
        await self._ask()
        if not self.tells:
            return Past(None, {})
        return Past(Generation(self.identity, self.changes), dict(self.retractions))

    async def settled(self, whose: SessionKey, past: Past) -> None:
        await self._ask()
        for each in past.retracted:
            self.retractions.pop(each, None)

    async def publish(
        self, whose: SessionKey, id_: str, payload: RawXML, replaces: NodeItem | None
    ) -> None:
        await self._ask()
        if self.nodes.get(whose, {}).get(id_) != (replaces and replaces.payload):
            raise NodeItemChangedError
        self._put(whose, id_, payload.text)
        self.published.append((id_, read(payload.text, Payload).contents[0].text))
        self._lose()

    async def retract(self, whose: SessionKey, items: Sequence[NodeItem]) -> None:
        await self._ask()
        for item in items:
            self.nodes.get(whose, {}).pop(item.id, None)
            self.retracted.append(item.id)
            self.changes += 1
        self._lose()

    # What the person does with a client of their own.

    def edit(self, key: str, text: str, version: int = 1, more: str = "", tags: str = "") -> None:
        xml = (
            f"<memory xmlns='{NAMESPACE}' key='{key}' version='{version}'{more}>{tags}"
            f"<content>{escape_text(text)}</content></memory>"
        )
        self.write(key, xml)

    def write(self, key: str, xml: str) -> None:
        self._put(ANNS, key, xml)
        self._tell(key)

    def delete(self, key: str) -> None:
        if self.nodes.get(ANNS, {}).pop(key, None) is not None:
            self.changes += 1
            if self.tells:
                self.retractions[key] = self.now
        if not self.silent:
            self._tell(key)

    def texts(self) -> dict[str, str]:
        return {
            key: read(xml, Payload).contents[0].text
            for key, xml in self.nodes.get(ANNS, {}).items()
        }

    def payload(self, key: str) -> Payload:
        return read(self.nodes[ANNS][key], Payload)

    def _put(self, whose: SessionKey, id_: str, xml: str) -> None:
        self.nodes.setdefault(whose, {}).pop(id_, None)
        self.nodes[whose][id_] = xml
        self.changes += 1
        self.retractions.pop(id_, None)

    def _tell(self, key: str) -> None:
        for watcher in () if self.down else self._watchers:
            watcher(ANNS, (key,))

    async def _ask(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.hangs:
            self.waited_for += 1
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        if self.down:
            raise StoreUnavailableError("the service does not answer")

    def _lose(self) -> None:
        if self.loses_answer:
            self.loses_answer = False
            raise StoreUnavailableError("the answer was lost")


class World:
    """An agent with memories about Ann, who has a node."""

    def __init__(self, root: Path, index: Index, cipher: Cipher | None, **options: Any) -> None:
        self.root = root
        self.layout = Layout(root)
        self.sharing = Sharing(self.layout)
        self.nodes = MemoryNodes()
        self.record = Recording()
        self.told: list[str] = []
        self.now = 1_800_000_000.0
        self._index = index
        self._cipher = cipher
        self._options = SyncOptions(
            notify=lambda _whose, sentence: self.told.append(sentence),
            clock=lambda: self.now,
            **{"timeout_s": LIMIT_S, **options},
        )
        self.restart()

    def wait_at_most(self, seconds: float) -> None:
        """Change how long requests wait for the nodes."""
        self._options = replace(self._options, timeout_s=seconds)
        self.replica._options = self._options

    def restart(self) -> None:
        """Restart with the data on the disk."""
        self.nodes._watchers.clear()
        self.knowledge = Knowledge(self._index, self.sharing, Memory(), self.record)
        self.store = PepStore(self.nodes, lambda _agent: ADDRESS, self._cipher)
        self.replica = self.knowledge.replicate(self.store, self._options)
        self.states = self.replica.states

    @property
    def file(self) -> Path:
        return self.root / str(ANN) / "knowledge.jsonl"

    async def remember(self, key: str, text: str, **more: Any) -> None:
        await self.knowledge.store(SessionKey(AGENT, ANN), Memo(key, text, **more))

    async def forget(self, key: str) -> bool:
        return await self.knowledge.forget(SessionKey(AGENT, ANN), key)

    async def get(self, key: str) -> str | None:
        found = await self.knowledge.get(SessionKey(AGENT, ANN), key)
        return found[0].item.body if found else None

    async def texts(self) -> dict[str, str]:
        """Return the texts in the files."""
        place = self.sharing.private(ANNS)
        return {item.key: item.body for item in await self.knowledge.files.index.items(place)}

    async def reconcile(self) -> None:
        """Compare everything, as after connecting."""
        self.replica.connected()
        self.replica.noticed(ANNS, None)
        await self.replica.before_use(ANNS)


@asynccontextmanager
async def world(path: Path, cipher: Cipher | None = None, **options: Any) -> AsyncIterator[World]:
    root = await anyio.to_thread.run_sync(open_root, path)
    index = await anyio.to_thread.run_sync(Index, root / FILE_NAME, None)
    try:
        yield World(root, index, cipher, **options)
    finally:
        index.close()
