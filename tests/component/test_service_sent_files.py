"""Files of skills in the chat: each is a message of its own, whose body is the URL alone."""

import hashlib
import socket
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest

from component.skills import Context, Skill, skill
from component.skills.outputs import File, Link, Output
from component.tasks.protocol import CannotShare
from component.tasks.request import Request
from component.uploads import link_to
from tests.kit import Kit, Peer, Script, anyio_backend, service
from tests.kit.model import call
from tests.kit.xmpp import body
from xep.file_sharing import FileSharing
from xep.out_of_band import OutOfBand
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
SILENT = "[agent]\nnotice = ''\n"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4) + b"x" * 300_000
LARGE = File(PNG, "image/png", "map.png")
SMALL = File(PNG[:5000], "image/png", "map.png")


@skill(name="chart", title="Chart", read_only=True)
def chart() -> File:
    """Draw a chart."""
    return LARGE


@skill(name="report", title="Report", read_only=True)
def report() -> tuple[Output, File]:
    """Draw a small chart, and explain it."""
    return Output("It rises."), SMALL


@skill(name="later", title="Later", read_only=True, durable=True)
async def later(context: Context) -> File:
    """Draw a chart tomorrow."""
    await context.sleep(86_400, key="night")
    return LARGE


@skill(name="look", title="Look", read_only=True)
def look() -> File:
    """Show the model a chart."""
    return File(SMALL.data, "image/png", "seen.png", audience="model")


@skill(name="story", title="Story", read_only=True)
def story() -> str:
    """Tell a long story."""
    return "Once. " * 5_000


ALL: tuple[Skill, ...] = (chart, report, later, look, story)


class Place:
    """Keeps files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}

    async def share(self, file: File, _request: Request) -> Link:
        url = f"https://agent.capulet.example/files/{len(self.files) + 1}/{file.name}"
        self.files[url] = file
        return await link_to(file, url)


def with_place(kit: Kit) -> Place:
    place = Place()
    kit.kernel.tasks.places.append(place.share)
    return place


async def said(kit: Kit, juliet: Peer, text: str) -> list[Incoming]:
    juliet.take()
    await juliet.say(text)
    await kit.settled()
    return [one for one in juliet.take() if body(one)]


def check_file(message: Incoming, place: Place) -> File:
    """Check a message that is a file, and return the file."""
    url = body(message)
    file = place.files[url]
    assert message.require(OutOfBand) == OutOfBand(url=url)
    shared = message.require(FileSharing)
    assert [one.target for one in shared.sources.urls] == [url]
    about = shared.file
    assert (about.name, about.media_type, about.size) == (
        file.name,
        file.media_type,
        len(file.data),
    )
    assert about.hashes[0].digest == hashlib.sha256(file.data).digest()
    if file.media_type == "image/png":
        assert (about.width, about.height) == (640, 480)
    return file


async def test_the_file_of_a_skill_in_the_chat_is_a_message_whose_body_is_its_url(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        place = with_place(kit)
        (message,) = await said(kit, kit.peer(JULIET), "/run chart")
        assert check_file(message, place) == LARGE
        fallback = "{urn:xmpp:fallback:0}fallback"
        (found,) = ET.fromstring(kit.stanzas[-1][1]).iter(fallback)
        assert found.get("for") == "urn:xmpp:sfs:0"


async def test_the_text_beside_a_file_comes_first_in_a_message_of_its_own(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        place = with_place(kit)
        text, file = await said(kit, kit.peer(JULIET), "/run report")
        assert body(text) == "It rises."
        assert text.payload(FileSharing) is None
        assert check_file(file, place) == SMALL


async def test_a_long_text_is_a_file(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        place = with_place(kit)
        (message,) = await said(kit, kit.peer(JULIET), "/run story")
        assert check_file(message, place).name == "output.txt"


async def test_the_file_of_a_task_comes_with_its_end(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        await said(kit, juliet, "/run later")
        await kit.jump(86_401)
        await kit.advance(10)
        (message,) = [one for one in juliet.take() if body(one)]
        assert check_file(message, place) == LARGE


async def test_a_file_that_cannot_be_shared_is_named_and_the_person_learns_why(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        (message,) = await said(kit, juliet, "/run report")
        assert "map.png: image/png, 5,000 bytes" in body(message)
        assert "can't send it as a file" in body(message)
        (message,) = await said(kit, juliet, "/run chart")
        assert "cannot be given as a file" in body(message)
        assert "no upload service" in body(message)


async def test_a_form_has_the_address_of_a_file(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        command = "<command xmlns='http://jabber.org/protocol/commands' node='skill/chart'/>"
        answer = await juliet.iq("set", command)
        (url,) = place.files
        media = [one.text for one in answer._element.iter("{urn:xmpp:media-element}uri")]
        assert media == [url]


@pytest.mark.parametrize("kill", [False, True])
async def test_a_person_gets_the_files_of_a_turn_once_after_the_answer(
    tmp_path: Path, kill: bool
) -> None:
    held = anyio.Event()

    async def answer(_request: object) -> str:
        held.set()
        if kill and len(model.requests) == 2:
            await anyio.sleep_forever()
        return "Here is your chart."

    model = Script(call("chart"), answer, answer)
    async with service(tmp_path, SILENT, model=model, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        await juliet.say("A chart, please.")
        await held.wait()
        if kill:
            await kit.restart(kill=True)
        answer_message = await juliet.receive(lambda one: bool(body(one)))
        assert body(answer_message) == "Here is your chart."
        await kit.settled()
        (file,) = [one for one in juliet.take() if body(one)]
        assert check_file(file, place) == LARGE
        assert len(place.files) == 1
        assert "map.png: image/png, 300,024 bytes. The person gets this file" in model.asked
        await kit.restart(kill=True)  # before it is recorded that the answer was sent
        await kit.advance(10)
        again = [one.id for one in juliet.take() if body(one)]
        assert again == [answer_message.id, file.id], "clients recognise them by their ids"
        await kit.restart(kill=True)
        await kit.advance(10)
        assert [one for one in juliet.take() if body(one)] == []


async def test_a_file_for_the_model_alone_is_not_sent(tmp_path: Path) -> None:
    model = Script(call("look"), "It rises.")
    async with service(tmp_path, SILENT, model=model, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        await juliet.say("What does it show?")
        assert await juliet.hear() == "It rises."
        await kit.settled()
        assert [body(one) for one in juliet.take() if body(one)] == []
        assert place.files == {}


async def test_a_model_learns_that_a_file_cannot_be_sent(tmp_path: Path) -> None:
    model = Script(call("report"), "I can't send the chart.")
    async with service(tmp_path, SILENT, model=model, skills=ALL) as kit:

        async def full(_file: File, _request: Request) -> Link:
            raise CannotShare("the disk is full")

        kit.kernel.tasks.places.append(full)
        juliet = kit.peer(JULIET)
        await juliet.say("A report, please.")
        assert await juliet.hear() == "I can't send the chart."
        assert "5,000 bytes. The person does not get this file" in model.asked


async def test_the_file_of_a_task_that_a_turn_waited_for_comes_with_its_answer(
    tmp_path: Path,
) -> None:
    model = Script(call("later"), "Here it is, as promised.")
    async with service(tmp_path, SILENT, model=model, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        with_place(kit)
        await juliet.say("A chart tomorrow, please.")
        await kit.advance(5)
        await kit.restart(kill=True)
        place = with_place(kit)
        juliet.take()
        await kit.jump(86_401)
        await kit.advance(10)
        text, file = [one for one in juliet.take() if body(one)]
        assert body(text) == "Here it is, as promised."
        assert check_file(file, place) == LARGE


async def test_the_files_of_a_sub_agent_come_with_the_answer_of_its_agent(tmp_path: Path) -> None:
    model = Script(
        call("spawn_agent", task="Draw a chart.", role="artist"),
        call("chart"),
        "It is drawn.",
        "My artist has drawn it.",
    )
    async with service(tmp_path, SILENT, model=model, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        await juliet.say("Have a chart drawn, please.")
        assert await juliet.hear() == "My artist has drawn it."
        await kit.settled()
        (file,) = [one for one in juliet.take() if body(one)]
        assert check_file(file, place) == LARGE


@pytest.mark.parametrize("work", ["skill = 'report'", "goal = 'Draw a chart.'"])
async def test_a_notification_has_the_files_of_its_work(tmp_path: Path, work: str) -> None:
    entry = (
        "[[schedule]]\nname = 'daily'\nwhen = 'every day at 9'\n"
        f"principal = 'juliet@capulet.example'\n{work}\n[notifications]\nquiet = ''\n"
    )
    model = Script(call("report"), "It rises.")
    async with service(tmp_path, SILENT + entry, model=model, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        await kit.jump(86_401)
        await kit.advance(60)
        text, file = [one for one in juliet.take() if body(one)]
        assert body(text) == "It rises."
        assert check_file(file, place) == SMALL


async def test_a_file_that_is_ready_while_the_stream_is_lost_waits_for_the_next(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        place, juliet = with_place(kit), kit.peer(JULIET)
        await said(kit, juliet, "/run later")
        await kit.jump(86_390)
        kit.xmpp.is_up = False
        kit.xmpp.disconnect(kit.agent)
        await kit.advance(60)
        assert place.files == {}, "the server is asked first"
        kit.xmpp.is_up = True
        await kit.advance(60)
        assert len(place.files) == 1
        (file,) = [one for one in juliet.take() if body(one)]
        assert check_file(file, place) == LARGE


async def test_files_are_kept_while_the_settings_say_so_and_deleted_after_their_time(
    tmp_path: Path,
) -> None:
    with socket.socket() as held:
        # Nobody else gets the port meanwhile; who reuses addresses may listen on it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        async with service(tmp_path, SILENT, skills=ALL) as kit:
            await kit.reload(f"{SILENT}[http]\nport = {port}\nurl = 'https://a.example/x'\n")
            (message,) = await said(kit, kit.peer(JULIET), "/run chart")
            url = body(message)
            assert url.startswith("https://a.example/x/files/")
            content = kit.settings.storage.path / "shared-files" / url.split("/")[-2]
            assert content.read_bytes() == PNG
            await kit.reload(SILENT)
            assert kit.kernel.tasks.places == []
            await kit.jump(8 * 86_400, stride_s=86_400)
            assert not content.exists()
