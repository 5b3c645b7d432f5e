"""Memories at our own PubSub service, with its tables in a real database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.config.memory import Memory
from component.features.memory_nodes.agent_nodes import AgentNodes, node_of
from component.features.memory_nodes.store import PepStore
from component.features.pubsub.handlers import Allowances, PubSubHandler
from component.features.pubsub.owners import OwnerHandler
from component.link.router.addresses import ComponentAddresses
from component.memory.index import Index
from component.memory.index_database import FILE_NAME
from component.memory.knowledge import Knowledge, Memo
from component.memory.reconciler import SyncOptions
from component.memory.sharing import Sharing
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from component.pubsub.notifier import NodeInterests, NodeNotifier
from component.pubsub.service import PubSubService
from component.store import Storage
from component.store.database import Database
from tests.component.memory.remembering import ANN, BOB, Recording
from tests.waiting import LIMIT_S, eventually
from xep import pubsub, pubsub_owner
from xep.binding import RawXML
from xep.fluux_agent.memory import NAMESPACE
from xep.jid import JID
from xep.pubsub_owner import PubsubOwner
from xep.stanza_error import StanzaError

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

DOMAIN = JID.parse("agent.example")
ASSISTANT = JID.parse("assistant@agent.example")
HELPER = JID.parse("helper@agent.example")
NODE = f"{NAMESPACE}/{ANN}"


class Nobody:
    """Fails if anything is sent."""

    def send(self, message: Any) -> Any:
        raise AssertionError("nobody is subscribed")

    async def ready(self) -> None:
        pass


class Home:
    """The memories of two agents, synchronised with the nodes."""

    def __init__(self, storage: Storage, root: Path, index: Index) -> None:
        nobody: Any = Nobody()
        notifier = NodeNotifier(
            storage, nobody, NodeInterests(nobody), lambda _agent, _contact: True
        )
        self.service = PubSubService(storage, notifier, ())
        self.requests = PubSubHandler(self.service, Allowances())
        self.owners = OwnerHandler(self.service, Allowances())
        addresses = ComponentAddresses(DOMAIN, frozenset(("assistant", "helper")))
        self.nodes = AgentNodes(self.service, addresses, ("assistant", "helper"), Memory())
        sharing = Sharing(Layout(root))
        self.knowledge = Knowledge(index, sharing, Memory(), Recording())
        self.replica = self.knowledge.replicate(
            PepStore(self.nodes, addresses.address_of),
            SyncOptions(notify=lambda _whose, _sentence: None, timeout_s=LIMIT_S),
        )

    async def publish(self, key: str, text: str, who: JID = ANN, at: JID = ASSISTANT) -> None:
        address = await self.service.locate(at, NODE, who)
        payload = (
            f"<memory xmlns='{NAMESPACE}' key='{key}' version='5'><content>{text}</content>"
            "</memory>"
        )
        asker = self.service.requester(address, who)
        item = pubsub.Item(id=key, payloads=(RawXML(payload),))
        publish = pubsub.Publish(node=NODE, items=(item,))
        await self.requests.set(asker, pubsub.Pubsub(publish=publish))

    async def read(self, who: JID = ANN, at: JID = ASSISTANT) -> dict[str, str]:
        address = await self.service.locate(at, NODE, who)
        asker = self.service.requester(address, who)
        asked = pubsub.Pubsub(items=pubsub.Items(node=NODE))
        found = (await self.requests.get(asker, asked)).items
        assert found is not None
        return {each.id or "": each.payloads[0].text for each in found.items}

    async def get(self, key: str, agent: str = "assistant", who: JID = ANN) -> str | None:
        found = await self.knowledge.get(SessionKey(agent, who), key)
        return found[0].item.body if found else None


@asynccontextmanager
async def home(storage: Storage, path: Path) -> AsyncIterator[Home]:
    root = await anyio.to_thread.run_sync(open_root, path / "memory")
    index = await anyio.to_thread.run_sync(Index, root / FILE_NAME, None)
    async with anyio.create_task_group() as group:
        try:
            made = Home(storage, root, index)
            await group.start(made.service.run)
            yield made
        finally:
            group.cancel_scope.cancel()
            index.close()


async def test_an_item_of_the_person_is_used_before_the_first_memory(
    storage: Storage, tmp_path: Path
) -> None:
    async with home(storage, tmp_path) as here:
        assert await here.read() == {}
        await here.publish("tea", "I like tea")
        assert await here.get("tea") == "I like tea"
        await here.publish("tea", "I like coffee", at=DOMAIN)
        assert await here.get("tea") == "I like coffee"
        await here.knowledge.store(SessionKey("assistant", ANN), Memo("tea", "both"))
        assert "version='6'" in (await here.read())["tea"]


async def test_each_agent_has_its_own_node(storage: Storage, tmp_path: Path) -> None:
    async with home(storage, tmp_path) as here:
        await here.publish("tea", "for the helper", at=HELPER)
        assert await here.get("tea") is None
        assert await here.get("tea", "helper") == "for the helper"


async def test_the_node_is_hidden_from_others(storage: Storage, tmp_path: Path) -> None:
    async with home(storage, tmp_path) as here:
        for _ in range(2):
            with pytest.raises(StanzaError) as there:
                await here.read(BOB)
            with pytest.raises(StanzaError) as published:
                await here.publish("tea", "of Bob", BOB)
            assert (there.value.condition, published.value.condition) == ("item-not-found",) * 2
            await here.publish("tea", "of Ann")
        assert await here.get("tea", who=BOB) is None
        assert node_of(ANN) == NODE


async def test_an_edit_between_reading_and_writing_is_not_overwritten(
    storage: Storage, tmp_path: Path
) -> None:
    async with home(storage, tmp_path) as here:
        await here.publish("tea", "one")
        await here.get("tea")
        whose = SessionKey("assistant", ANN)
        (read,) = await here.nodes.items(whose)
        real = here.nodes.items

        async def items(whose: Any, ids: Any = ()) -> Any:
            found = await real(whose, ids)
            if here.nodes.items is items:
                here.nodes.items = real  # type: ignore[method-assign]  # it interferes once
                await here.publish("tea", "two")
            return found

        here.nodes.items = items  # type: ignore[method-assign]
        await here.knowledge.store(SessionKey("assistant", ANN), Memo("tea", "three"))
        texts = await here.read()
        assert "two" in texts["tea"]
        assert "three" in texts["tea (conflict)"]
        assert read.id == "tea"


async def test_a_configuration_that_opens_the_node_to_others_is_undone(
    storage: Storage, tmp_path: Path
) -> None:
    from xep.data_forms import Field, Form

    async with home(storage, tmp_path) as here:
        await here.publish("tea", "one")
        asker = here.service.requester(ASSISTANT, ANN)
        form = Form(
            type="submit",
            fields=(
                Field(
                    var="FORM_TYPE",
                    type="hidden",
                    values=("http://jabber.org/protocol/pubsub#node_config",),
                ),
                Field(var="pubsub#access_model", values=("open",)),
            ),
        )
        await here.owners.set_owned(
            asker, PubsubOwner(configure=pubsub_owner.Configure(node=NODE, form=form))
        )

        async def is_hidden() -> bool:
            try:
                await here.read(BOB)
            except StanzaError:
                return True
            return False

        await eventually(is_hidden)


async def test_a_node_that_its_owner_deletes_is_forgotten(storage: Storage, tmp_path: Path) -> None:
    async with home(storage, tmp_path) as here:
        await here.publish("tea", "one")
        assert await here.get("tea") == "one"
        await here.owners.set_owned(
            here.service.requester(ASSISTANT, ANN),
            PubsubOwner(delete=pubsub_owner.Delete(node=NODE)),
        )
        assert await here.get("tea") is None
        await here.knowledge.store(SessionKey("assistant", ANN), Memo("hat", "blue"))
        assert list(await here.read()) == ["hat"]


@pytest.mark.parametrize("how", ["retract", "purge", "delete"])
async def test_unnoticed_deletions_by_the_owner_are_applied_at_the_next_start(
    storage: Storage, tmp_path: Path, how: str
) -> None:
    async with home(storage, tmp_path) as here:
        for key in ("tea", "hat"):
            await here.knowledge.store(SessionKey("assistant", ANN), Memo(key, f"about {key}"))
    async with home(storage, tmp_path) as here:
        here.nodes._watchers.clear()
        asker = here.service.requester(ASSISTANT, ANN)
        match how:
            case "retract":
                both = (pubsub.Item(id="tea"), pubsub.Item(id="hat"))
                retract = pubsub.Retract(node=NODE, items=both)
                await here.requests.set(asker, pubsub.Pubsub(retract=retract))
            case "purge":
                purge = pubsub_owner.Purge(node=NODE)
                await here.owners.set_owned(asker, PubsubOwner(purge=purge))
            case _:
                delete = pubsub_owner.Delete(node=NODE)
                await here.owners.set_owned(asker, PubsubOwner(delete=delete))
    async with home(storage, tmp_path) as here:
        assert await here.get("tea") is None
        assert await here.get("hat") is None
        assert await here.read() == {}
        assert (await here.service.past(ASSISTANT, NODE)).retractions == {}


@pytest.mark.parametrize("tables", [("items",), ("items", "nodes", "affiliations")])
async def test_rows_that_are_lost_are_stored_again_from_the_files(
    storage: Storage, tmp_path: Path, tables: tuple[str, ...]
) -> None:
    def lose(database: Database) -> None:
        for table in tables:
            database.execute(f"DELETE FROM pubsub_{table}")

    keys = {f"key {number}" for number in range(8)}
    async with home(storage, tmp_path) as here:
        for key in keys:
            await here.knowledge.store(SessionKey("assistant", ANN), Memo(key, f"about {key}"))
    await storage.write(lose)
    async with home(storage, tmp_path) as here:
        for key in keys:
            assert await here.get(key) == f"about {key}"
        assert (await here.read()).keys() == keys
