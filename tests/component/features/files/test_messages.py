"""Files that people send reach the model, and everybody is told of those that do not."""

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.pdfs import with_pages
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.contents import adapted
from component.models.messages import ImagePart, ModelMessage, TextPart
from tests.component.features.files.sending import (
    JULIET,
    PNG,
    images,
    send,
    shared,
    uploading,
)
from tests.component.memory import office
from tests.component.web_server import Response, redirect
from tests.kit import AGENT, Script, call
from tests.kit.loop import real_time as anyio_backend
from tests.kit.xmpp import body
from xep.jid import JID
from xep.receipts import Received

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

MB = 1_000_000


async def test_a_model_sees_an_image_and_reads_what_is_beside_it(tmp_path: Path) -> None:
    model = Script("A cat.", "Still a cat.")
    async with uploading(tmp_path, {"cat.png": PNG}, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("cat.png")], "What is it?")
        assert await juliet.hear() == "A cat."
        assert images(model.requests[-1]) == [PNG]
        assert "What is it?" in model.asked
        assert "cat.png" in model.asked
        assert await juliet.ask("And now?") == "Still a cat."
        assert images(model.requests[-1]) == [PNG]


DOCUMENTS = {
    "report.pdf": (with_pages(["Sales went up.", "Costs went down."]), "Costs went down."),
    "letter.docx": (office.docx("Dear Juliet"), "Dear Juliet"),
    "page.html": (b"<!doctype html><h1>Title</h1>Hello<script>evil()</script>", "Title\nHello"),
    "notes": (b"buy milk", "buy milk"),
    "wrong.jpg": ("Größe".encode("utf-16"), "Größe"),
}


async def test_a_model_reads_documents_as_data(tmp_path: Path) -> None:
    model = Script(otherwise="I have read it.")
    files = {name: data for name, (data, _) in DOCUMENTS.items()}
    async with uploading(tmp_path, files, model) as (kit, uploads):
        for number, (name, (_, text)) in enumerate(DOCUMENTS.items()):
            person = f"person-{number}@capulet.example"
            peer = kit.peer(f"{person}/x")
            await send(peer, [uploads.url(name)])
            assert await peer.hear() == "I have read it."
            _, fenced = model.asked.split('from="a file">\n', 1)
            assert text in fenced.partition("</data-")[0], name
            assert "evil" not in model.asked
            key = SessionKey("assistant", JID.parse(person))
            history = await kit.kernel.environment.memories.sessions.read(key)
            said = [line for line in history.lines if isinstance(line, Said)]
            assert all("file" in line.taints for line in said), name
            assert text not in said[0].content


FAULTS: dict[str, tuple[Any, str]] = {
    "missing": (Response(status=404), "says that it is not there"),
    "broken": (Response(status=500), "answers with HTTP status 500"),
    "empty": (b"", "is empty"),
    "large": (b"x" * 11 * MB, "is larger than 10 MB"),
    "voice.ogg": (b"OggS\x00\x02" + b"\x00" * 20 + b"\x01\x13OpusHead", "I can't listen to"),
    "film.mp4": (b"\x00\x00\x00\x18ftypisom....", "I can't watch"),
    "scan.pdf": (with_pages([""]), "it has no text (a scan?)"),
    "bad.docx": (office.docx("x")[:-200] + b"x" * 200, "it is damaged"),
    "raw.tiff": (b"II*\x00....", "an image of the type image/tiff"),
    "big.png": (PNG + b"x" * 4 * MB, "I can look at images of at most 3.75 MB"),
    "a.zip": (office.package({"a": "b"}), "and it is application/zip"),
    "inside": (redirect("http://127.0.0.1:1/"), "I only fetch files from public servers"),
}


async def test_what_cannot_be_read_is_said_and_the_text_beside_is_answered(tmp_path: Path) -> None:
    model = Script(otherwise="Yes, I like cats.")
    files = {name: answer for name, (answer, _) in FAULTS.items()}
    async with uploading(tmp_path, files, model) as (kit, uploads):
        for number, (name, (_, sentence)) in enumerate(FAULTS.items()):
            peer = kit.peer(f"person-{number}@capulet.example/x")
            await send(peer, [uploads.url(name)])
            alone = await peer.hear()
            assert sentence in alone
            assert name in alone
            assert len(model.requests) == number, name
            await send(peer, [uploads.url(name)], "Do you like cats?")
            said = await peer.hear()
            assert said.startswith("Yes, I like cats.\n"), name
            assert sentence in said
            assert "Do you like cats?" in model.asked
            assert "is not shown to you" in model.asked
            assert sentence in model.asked


async def test_a_server_that_is_slow_is_given_up(tmp_path: Path) -> None:
    never = anyio.Event()
    model = Script("Hello.", "Cats!")
    files = {"slow.txt": Response(b"x", wait=never), "cat.txt": b"cats"}
    async with uploading(tmp_path, files, model, timeout_s=0.3) as (kit, uploads):
        juliet, romeo = kit.peer(JULIET), kit.peer("romeo@capulet.example/x")
        await send(juliet, [uploads.url("slow.txt")], "Hi")
        await send(romeo, [uploads.url("cat.txt")])
        assert await romeo.hear() in ("Hello.", "Cats!")
        assert "did not deliver it within 0.3 seconds" in await juliet.hear()


async def test_nobody_waits_for_the_files_of_others(tmp_path: Path) -> None:
    gate = anyio.Event()
    model = Script(otherwise="Hello.")
    files = {"slow.txt": Response(b"slow", wait=gate), "cat.txt": b"cats"}
    async with uploading(tmp_path, files, model) as (kit, uploads):
        juliet, romeo = kit.peer(JULIET), kit.peer("romeo@capulet.example/x")
        urls = [uploads.url(f"slow.txt?{number}") for number in range(5)]
        uploads.files.update({f"slow.txt?{number}": files["slow.txt"] for number in range(5)})
        await send(juliet, urls, "Read them")
        assert await romeo.ask("Hi") == "Hello."
        await send(romeo, [uploads.url("cat.txt")])
        assert await romeo.hear() == "Hello."
        assert len(uploads.server.requests) == 3, "a person has two downloads at a time"
        assert not [one for one in juliet.take() if body(one)]
        await juliet.say("/ping")
        await juliet.hear()
        gate.set()
        assert await juliet.hear() == "Hello."
        assert model.asked.count("slow.txt") >= 5


async def test_ten_files_of_a_message_are_read_and_no_more(tmp_path: Path) -> None:
    model = Script("All read.")
    files = {f"{number}.txt": f"text {number}".encode() for number in range(11)}
    async with uploading(tmp_path, files, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url(name) for name in files], "Read them")
        answer = await juliet.hear()
        assert answer.startswith("All read.\nI did not take 10.txt")
        assert all(f"text {number}\n" in model.asked for number in range(10))
        assert "text 10" not in model.asked


OTHERS = (
    (b"righ", 5, b"right", "you have sent a file of 5 bytes, and what I got from its server has 4"),
    (b"right", 5, b"other", "because its sha-256 is another one"),
    (b"right", 11 * MB, b"right", "is larger than 10 MB"),
)


async def test_a_file_that_is_not_what_was_sent_is_not_read(tmp_path: Path) -> None:
    model = Script(otherwise="Sorry.")
    async with uploading(tmp_path, {}, model) as (kit, uploads):
        for number, (served, size, content, sentence) in enumerate(OTHERS):
            peer = kit.peer(f"person-{number}@capulet.example/x")
            uploads.files["a.txt"] = served
            digest = b64encode(hashlib.sha256(content).digest()).decode()
            await peer.send(shared(uploads.url("a.txt"), "a.txt", size=size, digest=digest))
            assert sentence in await peer.hear()
            assert "righ" not in model.asked


async def test_a_file_that_is_what_was_sent_is_read(tmp_path: Path) -> None:
    model = Script("Thanks.")
    digest = b64encode(hashlib.sha256(b"right").digest()).decode()
    async with uploading(tmp_path, {"x": b"right"}, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await juliet.send(shared(uploads.url("x"), "../evil name.txt", size=5, digest=digest))
        assert await juliet.hear() == "Thanks."
        assert "right" in model.asked
        await juliet.say("/files")
        assert "evil name.txt: text/plain, 5 bytes" in await juliet.hear()


ELSEWHERE = "I only fetch files from public servers by HTTPS"
ADDRESSES = {
    "aesgcm://u.example/a.jpg#" + "ab" * 44: "is encrypted for OMEMO",
    "xmpp:romeo@montague.example?sendfile": "its address is not one of HTTPS",
    "http://u.example/a.jpg": ELSEWHERE,
    "https://u.example:8443/a.jpg": ELSEWHERE,
    "https://127.0.0.1/a.jpg": ELSEWHERE,
    "https://[::1]:5443/a.jpg": ELSEWHERE,
    "https://169.254.169.254/a.jpg": ELSEWHERE,
    "https://localhost/a.jpg": ELSEWHERE,
    "https://0x7f.1/a.jpg": "I have not got",
}


async def test_no_other_address_is_reached(tmp_path: Path) -> None:
    async with uploading(tmp_path, {}, Script()) as (kit, uploads):
        for number, (url, sentence) in enumerate(ADDRESSES.items()):
            peer = kit.peer(f"person-{number}@capulet.example/x")
            await send(peer, [url])
            assert sentence in await peer.hear(), url
        assert uploads.server.requests == []


async def test_the_upload_service_is_only_asked_for_its_files(tmp_path: Path) -> None:
    async with uploading(tmp_path, {}, Script()) as (kit, uploads):
        juliet = kit.peer(JULIET)
        for path in ("/admin", "/up/../admin", "/up/%2e%2e/admin", "/up"):
            await send(juliet, [uploads.server.url + path])
            assert "I only fetch files from public servers" in await juliet.hear()
        assert uploads.server.requests == []


async def test_a_message_is_acknowledged_before_its_files_are_there(tmp_path: Path) -> None:
    gate = anyio.Event()
    model = Script("Read.")
    files = {"a.txt": Response(b"precious", wait=gate)}
    async with uploading(tmp_path, files, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        url = uploads.url("a.txt")
        await juliet.send(
            f"<message to='{AGENT}' type='chat' id='m1'><body>{url}</body>"
            f"<x xmlns='jabber:x:oob'><url>{url}</url></x><request xmlns='urn:xmpp:receipts'/>"
            "</message>"
        )
        await juliet.receive(lambda one: Received.xml.tag in one.child_names)
        await kit.restart(kill=True)
        gate.set()
        assert await juliet.hear() == "Read."
        assert "precious" in model.asked


async def test_after_a_restart_the_file_is_shown_from_the_disk(tmp_path: Path) -> None:
    model = Script("A cat.", "Gone.")
    async with uploading(tmp_path, {"cat.png": PNG}, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("cat.png")], "What is it?")
        await juliet.hear("A cat.")
        uploads.files.clear()
        await kit.restart(kill=True)
        await juliet.say("/files delete cat.png")
        await juliet.hear("Deleted cat.png.")
        await juliet.ask("And now?", "Gone.")
        assert images(model.requests[-1]) == []
        assert "was deleted since" in model.asked


async def test_a_long_document_is_cut_and_the_model_can_read_on(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(20_000))
    model = Script(
        call("file_read", path="long.txt", start=150_000),
        "Done.",
    )
    async with uploading(tmp_path, {"long.txt": lines.encode()}, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("long.txt")], "How long is it?")
        assert await juliet.hear() == "Done."
        first = "\n".join(message.text for message in model.requests[0].messages)
        assert "line 1\n" in first
        assert "more characters are in the file" in first
        assert len(first) < len(lines) // 2
        assert lines[150_000:150_100] in model.asked


async def test_a_correction_keeps_the_file_and_a_retraction_removes_it(tmp_path: Path) -> None:
    gate = anyio.Event()
    model = Script("Purple.", "Nothing.")
    files = {"cat.png": Response(PNG, wait=gate)}
    async with uploading(tmp_path, files, model) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("cat.png")], "Which color?", id_="m1")
        await juliet.send(
            f"<message to='{AGENT}' type='chat' id='m2'><body>Which colour?</body>"
            "<replace xmlns='urn:xmpp:message-correct:0' id='m1'/></message>"
        )
        await juliet.say("/ping")
        await juliet.hear()
        gate.set()
        assert await juliet.hear() == "Purple."
        assert "Which colour?" in model.asked
        assert images(model.requests[-1]) == [PNG]


async def test_a_stop_ends_the_fetching_and_nothing_is_stored(tmp_path: Path) -> None:
    never = anyio.Event()
    files = {"cat.png": Response(PNG, wait=never)}
    async with uploading(tmp_path, files, Script()) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("cat.png")], "Look")
        await uploads.asked.wait()
        await juliet.say("/forget")
        await juliet.hear("Deleted what I knew about you")
        never.set()
        await juliet.say("/files")
        assert await juliet.hear() == "There are no files."


async def test_a_model_that_cannot_see_says_so() -> None:
    shown = adapted([ModelMessage("user", (ImagePart("image/png", PNG),))])
    (part,) = shown[0].parts
    assert isinstance(part, TextPart)
    assert "I can't look at pictures with the model I have" in part.text


async def test_files_beside_a_command_are_mentioned(tmp_path: Path) -> None:
    async with uploading(tmp_path, {"a.txt": b"a"}, Script()) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("a.txt")], "/ping")
        assert "I have not taken a.txt" in await juliet.hear("not taken")
        await juliet.hear("pong")
        assert uploads.server.requests == []


async def test_files_can_be_turned_off(tmp_path: Path) -> None:
    async with uploading(tmp_path, {"a.txt": b"a"}, Script(), receive=False) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("a.txt")])
        assert "my operator has turned off that I take files" in await juliet.hear()
        assert uploads.server.requests == []
