"""Objects in a running service: skills, commands, nodes and watches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from component.features.objects.node import PREFIX
from component.skills import Skill, skill
from tests.component.features.rooms.lobby import NICK, ROOM, lobby
from tests.kit import Kit, Peer, Script, anyio_backend, call, service
from xep.binding import encode
from xep.binding.kept import read
from xep.caps import Caps
from xep.disco import ItemsQuery
from xep.fluux_agent.execute import Execute, Params, Result
from xep.jid import JID
from xep.json_containers import Json
from xep.pubsub import Create, Items, Publish, Pubsub, Subscribe
from xep.pubsub import Item as PublishedItem
from xep.pubsub_event import Event, Item
from xep.result_sets import ResultSet
from xep.stanza import Incoming

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example"
ROMEO = "romeo@montague.example"
AGENT = "assistant@agent.capulet.example"
TASKS = f"{PREFIX}{JULIET}/task"
RECIPES = f"{PREFIX}kitchen/recipe"
CAPS = Caps(hash="sha-1", node="https://client.example", ver="x")
SETTINGS = {
    "agent": {"notice": "", "admins": [ROMEO], "allowed_domains": ["*"]},
    "policy": {"confirm": "never"},
    "memory": {"scopes": [{"name": "kitchen", "members": [JULIET]}]},
}


@asynccontextmanager
async def both(
    directory: Path, *skills: Skill, **sections: Any
) -> AsyncIterator[tuple[Kit, Peer, Peer]]:
    """A service, with Juliet and Romeo, who is an admin."""
    features = (f"{RECIPES}+notify",)
    async with service(directory, SETTINGS | sections, skills=skills) as kit:
        yield (
            kit,
            kit.peer(f"{JULIET}/balcony", features=features),
            kit.peer(f"{ROMEO}/orchard", features=features),
        )


async def execute(peer: Peer, name: str, /, **params: Any) -> Any:
    """Return the JSON of a result, or the text of an error."""
    json = Params(json=msgspec.Raw(msgspec.json.encode(params)))
    answer = await peer.iq(
        "set", encode(Execute(skill=name, mode="inline", json_params=json)), to=AGENT
    )
    if answer.type == "error":
        return answer.error().text
    (output,) = answer.require(Result).outputs
    return msgspec.json.decode(output.text) if output.type == "application/json" else output.text


async def ask(peer: Peer, type_: str, **parts: Any) -> Pubsub | str:
    """Return the answer to a request to the PubSub service, or the condition of its error."""
    answer = await peer.iq(type_, encode(Pubsub(**parts)), to=AGENT)
    if answer.type == "error":
        return answer.error().condition
    return answer.payload(Pubsub) or Pubsub()


async def items(peer: Peer, node: str, page: ResultSet | None = None) -> Any:
    """Return the values of the items by their ids, or the condition of the error."""
    answer = await ask(peer, "get", items=Items(node=node), page=page)
    if isinstance(answer, str):
        return answer
    assert answer.items is not None
    return {each.id: value_of(each) for each in answer.items.items}


def value_of(item: Any) -> Any:
    return msgspec.json.decode(bytes(read(item.payloads[0].text, Json).value))


def is_event(stanza: Incoming) -> bool:
    return stanza.kind == "message" and stanza.payload(Event) is not None


async def heard(peer: Peer) -> Event:
    return (await peer.receive(is_event)).require(Event)


async def test_each_type_has_a_node_for_its_owner_alone(tmp_path: Path) -> None:
    async with both(tmp_path) as (kit, juliet, romeo):
        subscribing = Subscribe(node=TASKS, jid=JID.parse(JULIET))
        assert not isinstance(await ask(juliet, "set", subscribe=subscribing), str)
        assert await items(juliet, TASKS) == {}
        for number in (1, 2):
            data = {"title": f"<{number}>"}
            stored = await execute(juliet, "object_put", type="task", id=f"t{number}", data=data)
            assert stored == {"type": "task", "id": f"t{number}", "version": 1}
        first, second = await heard(juliet), await heard(juliet)
        assert first.items is not None
        assert second.items is not None
        told = {each.id: value_of(each) for each in (*first.items.items, *second.items.items)}
        assert (told["t1"]["data"], told["t1"]["created_by"]) == ({"title": "<1>"}, JULIET)
        assert await items(juliet, TASKS) == told
        assert await items(juliet, TASKS, ResultSet(max=1)) == {"t1": told["t1"]}
        answer = await juliet.iq("get", encode(ItemsQuery()), to=AGENT)
        assert TASKS in [each.node for each in answer.require(ItemsQuery).items]
        # Romeo is an admin, who may create nodes.
        assert await items(romeo, TASKS) == "item-not-found"
        subscribing = Subscribe(node=TASKS, jid=JID.parse(ROMEO))
        assert await ask(romeo, "set", subscribe=subscribing) == "item-not-found"
        assert await ask(romeo, "set", create=Create(node=TASKS)) == "conflict"
        published = Publish(node=TASKS, items=(PublishedItem(id="x"),))
        for peer in (juliet, romeo):
            assert await ask(peer, "set", publish=published) == "forbidden"
        answer = await romeo.iq("get", encode(ItemsQuery()), to=AGENT)
        assert PREFIX not in str([each.node for each in answer.require(ItemsQuery).items])
        assert await juliet.ask("/objects delete task t1") == "Deleted task t1."
        gone = await heard(juliet)
        assert gone.items is not None
        assert [each.id for each in gone.items.items if not isinstance(each, Item)] == ["t1"]
        await kit.kernel.forget_person("assistant", JID.parse(JULIET))
        emptied = await heard(juliet)
        assert emptied.purge is not None
        assert await items(juliet, TASKS) == {}
        await kit.settled()
        assert not any(map(is_event, romeo.take()))


async def test_members_of_a_scope_read_and_are_notified_until_they_leave_it(
    tmp_path: Path,
) -> None:
    kitchen = {"name": "kitchen", "members": [JULIET, ROMEO], "writers": [JULIET]}
    pie = {"type": "recipe", "id": "pie", "data": {"takes": 50}, "scope": "kitchen"}
    async with both(tmp_path, memory={"scopes": [kitchen]}) as (kit, juliet, romeo):
        subscribing = Subscribe(node=RECIPES, jid=JID.parse(ROMEO))
        assert not isinstance(await ask(romeo, "set", subscribe=subscribing), str)
        refused = await execute(romeo, "object_put", **pie)
        assert "The objects of kitchen are for you to read only" in refused
        await juliet.send(f"<presence to='{AGENT}'>{encode(CAPS)}</presence>")
        await kit.settled()
        await execute(juliet, "object_put", **pie)
        for peer in (juliet, romeo):  # one is interested, the other one has subscribed
            told = await heard(peer)
            assert told.items is not None
            assert value_of(told.items.items[0])["created_by"] == JULIET
        assert list(await items(romeo, RECIPES)) == ["pie"]
    async with both(tmp_path) as (kit, juliet, romeo):
        assert await items(romeo, RECIPES) == "item-not-found"
        assert (await execute(juliet, "object_put", **pie))["version"] == 2
        await kit.settled()
        assert not any(map(is_event, romeo.take()))


async def test_a_watch_starts_work_when_an_object_changes_for_its_owner_alone(
    tmp_path: Path,
) -> None:
    noted: list[tuple[str, str]] = []

    @skill(destructive=False, idempotent=True, open_world=False)
    def note(title: str, version: int) -> str:
        """Note the title of a task."""
        noted.append((title, version))
        return "noted"

    watch = {
        "service": AGENT,
        "node": TASKS,
        "skill": "note",
        "params": {"title": "{json.data.title}", "version": "{json.version}"},
        "json_filter": "data.status == 'done'",
    }
    watches = [
        watch | {"name": name, "principal": who} for name, who in (("a", JULIET), ("b", ROMEO))
    ]
    async with both(tmp_path, note, watch=watches) as (kit, juliet, romeo):
        await kit.advance(5)
        for status in ("open", "done"):
            data = {"title": "Write", "status": status}
            await execute(juliet, "object_put", type="task", id="t1", data=data)
        await kit.advance(5)
        assert noted == [("Write", 2)]
        wish = {"name": "c", "goal": "Say it.", "service": AGENT, "node": TASKS}
        refused = await execute(romeo, "watch_create", **wish)
        assert f"There is no node {TASKS} of {AGENT} for you" in refused
        assert "Watching" in await execute(juliet, "watch_create", **wish)


async def test_people_list_find_show_and_undo_in_the_chat(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, juliet, _romeo):
        assert "There are no objects" in await juliet.ask("/objects")
        for title, status in (("Write", "open"), ("Read", "done")):
            data = {"title": title, "status": status}
            await execute(juliet, "object_put", type="task", id=title, data=data)
        await execute(juliet, "object_put", type="task", id="Read", data={"title": "Read it"})
        assert await juliet.ask("/objects") == "- task: 2"
        found = await juliet.ask('/objects find task {"status": "open"}')
        assert found == "- task Write: title: Write, status: open"
        assert "- task Read: title: Read it" in await juliet.ask("/objects find task read")
        assert "There is no operator '$is'" in await juliet.ask(
            '/objects find task {"a": {"$is": 1}}'
        )
        assert "version 2" in await juliet.ask("/objects show task Read")
        await juliet.ask("/objects undo task Read")
        assert "- status: done" in await juliet.ask("/objects show task Read")
        exported = msgspec.json.decode(await juliet.ask("/objects export"))
        assert [each["id"] for each in exported["objects"]] == ["Write", "Read"]
        assert await juliet.ask("/objects delete task *") == "Deleted 2 task objects."
        assert "There is no task Read." in await juliet.ask("/objects show task Read")


async def test_a_room_has_objects_that_its_occupants_read(tmp_path: Path) -> None:
    node = f"{PREFIX}{ROOM}/task"
    put = call("object_put", type="task", id="t1", data={"title": "Buy nails"})
    async with lobby(tmp_path, Script(put, "Noted."), '[agent]\nnotice = ""') as it:
        it.room.shows_accounts = True
        await it.room.leave(it.juliet)
        await it.room.enter(it.juliet, "Juliet")
        await it.room.say(it.juliet, f"{NICK}: note that we need nails")
        await it.juliet.hear("Noted.")
        (sheet,) = (await items(it.juliet, node)).values()
        assert (sheet["created_by"], sheet["created_via"]) == (JULIET, "assistant")
        assert await items(it.juliet, TASKS) == {}
        await it.room.say(it.juliet, f"{NICK}: /objects")
        await it.juliet.hear("- task: 1")
        await it.room.leave(it.juliet)
        assert await items(it.juliet, node) == "item-not-found"
