"""A turn waits for the files of its message; what the model sees of them is stored once."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import pytest

from component.agent import message_files, sentences
from component.agent.requests import SentFile, TurnRequest, described
from component.conversations.stored_files import FileLimits, StoredFile
from component.link.messages.inbound import Attachment
from component.memory_directory.layout import SessionKey
from component.models.messages import ImagePart
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.world import JULIET, ROMEO, World, echo, message, says, shopping
from xep.jid import JID

pytestmark = pytest.mark.anyio

ROOM = JID.parse("garden@rooms.example.org")
PNG = b"\x89PNG\r\n\x1a\n"
LIMITS = FileLimits(10**8, 100, 10**7)


class Fetched:
    """Fetches files whose contents a test gives, when it permits that."""

    def __init__(self, world: World, **contents: bytes) -> None:
        world.fetch = self.fetch
        self.contents = contents
        self.may = anyio.Event()
        self.asked: list[str] = []
        self._world = world

    async def fetch(self, key: SessionKey, request: TurnRequest) -> tuple[SentFile, ...]:
        self.asked.append(request.id)
        await self.may.wait()
        return tuple([await self._one(key, file) for file in request.files])

    async def _one(self, key: SessionKey, file: SentFile) -> SentFile:
        name = file.sent.name or ""
        data = self.contents.get(name)
        if data is None:
            return msgspec.structs.replace(file, unread=f"{name} is missing.")
        stored = self._world.engine._files
        assert stored is not None
        folder = self._world.sessions.layout.folder(key)
        draft = StoredFile(name=name, url=file.sent.url)
        found = await stored._stored.add(folder, draft, data, LIMITS)
        return SentFile(
            sent=file.sent,
            name=found.name,
            sha256=found.sha256,
            media_type=found.media_type,
            size=found.size,
        )


def with_files(request: TurnRequest, *names: str, text: str = "") -> TurnRequest:
    files = [Attachment(url=f"https://u.example/{name}", name=name) for name in names]
    lines = [*([text] if text else []), *map(described, files)]
    return msgspec.structs.replace(
        request, files=tuple([SentFile(sent=file) for file in files]), text="\n".join(lines)
    )


def in_room(request: TurnRequest) -> TurnRequest:
    conversation = msgspec.structs.replace(request.conversation, peer=ROOM, in_room=True)
    return msgspec.structs.replace(request, conversation=conversation)


def images(request: ModelRequest) -> Sequence[bytes]:
    return [
        part.data for one in request.messages for part in one.parts if isinstance(part, ImagePart)
    ]


async def test_others_in_a_room_do_not_wait_for_the_files_of_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    fetched = Fetched(world, photo=PNG)
    async with world.life() as conversations:
        await conversations.received(in_room(with_files(message("m1"), "photo")))
        await conversations.received(in_room(message("m2", "of Romeo")))
        await conversations.received(in_room(message("m3", "of Juliet", JULIET)))
        await world.ear.hears(1, 60)
        assert [reply.id for reply in world.ear.said] == ["m3.answer"]
        fetched.may.set()
        await world.settled()
        assert [reply.id for reply in world.ear.said] == ["m3.answer", "m1.answer"]
        assert images(world.brain.asked[-1]) == [PNG]


async def test_files_are_fetched_again_after_a_kill_unless_that_is_stored(tmp_path: Path) -> None:
    world = World(tmp_path)
    fetched = Fetched(world, photo=PNG)
    async with world.life() as conversations:
        await conversations.received(with_files(message("m1"), "photo"))
    async with world.built() as conversations:
        await conversations.received(message("m2", "later"))
    world.ear.stream = False
    fetched.may.set()
    asked = anyio.Event()

    def think(request: ModelRequest) -> Completion:
        asked.set()
        return echo(request)

    world.brain.think = think
    async with world.life():
        await asked.wait()
    assert fetched.asked == ["m1", "m1"]
    world.ear.stream = True
    async with world.life():
        await world.settled()
    assert fetched.asked == ["m1", "m1"]
    assert images(world.brain.asked[-1]) == [PNG]


async def test_a_fault_of_the_service_is_a_sentence(tmp_path: Path) -> None:
    async def fails(_key: SessionKey, _request: TurnRequest) -> tuple[SentFile, ...]:
        raise RuntimeError("a bug")

    world = World(tmp_path)
    world.fetch = fails
    async with world.life() as conversations:
        await conversations.received(with_files(message("m1"), "photo"))
        await world.settled()
    assert [reply.text for reply in world.ear.said] == [sentences.NO_FILES]
    assert world.brain.asked == []


async def test_what_was_not_read_is_said_even_if_the_model_is_silent(tmp_path: Path) -> None:
    world = World(tmp_path)
    Fetched(world).may.set()
    world.brain.think = lambda _request: says("[[silent]]")
    async with world.life() as conversations:
        await conversations.received(with_files(message("m1"), "photo", text="Thanks!"))
        await world.settled()
    assert [reply.text for reply in world.ear.said] == ["photo is missing."]


async def test_tools_are_called_with_the_taint_of_a_file_in_later_turns_too(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    Fetched(world, list=b"milk").may.set()
    async with world.life() as conversations:
        world.brain.think = shopping("look")
        await conversations.received(with_files(message("m1"), "list"))
        await world.settled()
        world.brain.think = shopping("find")
        await conversations.received(message("m2", "And now?"))
        await world.settled()
    assert [{"file"} <= caller.taints for caller in world.shop.callers] == [True, True]
    assert all("milk" not in text for caller in world.shop.callers for text in caller.written)


async def test_a_file_that_is_sent_twice_is_shown_as_long_as_each_line_says(tmp_path: Path) -> None:
    world = World(tmp_path, tool_result_tokens=100)
    Fetched(world, long=b"word " * 1000, short=b"other").may.set()
    async with world.life() as conversations:
        await conversations.received(with_files(message("m1"), "long", "short"))
        await world.settled()
        await conversations.received(with_files(message("m2"), "long"))
        await world.settled()
    text = "\n".join(one.text for one in world.brain.asked[-1].messages)
    assert text.count("more characters are in the file") == 2


async def test_a_small_model_is_shown_only_as_many_images_as_fit(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.context_tokens = 8_000
    contents = {f"p{number}": PNG + bytes([number]) for number in range(5)}
    Fetched(world, **contents).may.set()
    async with world.life() as conversations:
        await conversations.received(with_files(message("m1"), *contents))
        await world.settled()
    assert images(world.brain.asked[0]) == [contents["p0"], contents["p1"]]
    assert sentences.TOO_MANY_IMAGES.format(name="p4") in world.ear.said[0].text


async def test_a_request_has_only_so_many_bytes_of_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_files, "_IMAGE_BYTES", 30)
    world = World(tmp_path)
    contents = {f"p{number}": PNG + bytes([number]) * 12 for number in range(2)}
    Fetched(world, **contents).may.set()
    async with world.life() as conversations:
        for name in contents:
            await conversations.received(with_files(message(f"m-{name}"), name))
            await world.settled()
    assert images(world.brain.asked[-1]) == [contents["p1"]]
    texts = "\n".join(one.text for one in world.brain.asked[-1].messages)
    assert "is not shown again" in texts


async def test_a_message_without_anything_to_read_joins_no_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    Fetched(world).may.set()
    async with world.life() as conversations:
        await conversations.received(message("m1", "Hello"))
        await conversations.received(with_files(message("m2", who=ROMEO), "photo"))
        await world.settled()
    assert [reply.id for reply in world.ear.said] == ["m1.answer", "m2.answer"]
    assert len(world.brain.asked) == 1
