"""Files that the service serves itself: kept for people, fetched by anybody who has the address."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.features.http_listener.listener import HttpListener
from component.features.shared_files import rows
from component.features.shared_files.app import PREFIX, FilesApp, headers_of
from component.features.shared_files.place import Place
from component.features.shared_files.rows import SharedFile
from component.features.shared_files.settings import SharedFiles
from component.http.gate import Access, HttpGate, HttpRequest, HttpResponse
from component.kernel.http_routes import HttpRoute, HttpRoutes
from component.skills.outputs import File
from component.store import Storage
from component.store.forgetting import Forgotten
from component.tasks.protocol import CannotShare
from xep.jid import JID

pytestmark = pytest.mark.anyio

JULIET = JID.parse("juliet@example.com")
DATA = bytes(range(256)) * 1000
PICTURE = File(DATA, "image/png", "map.png")
URL = "https://agent.example.com"


class World:
    """A place, and the listener that serves it."""

    def __init__(self, storage: Storage, directory: Path, settings: SharedFiles) -> None:
        self.storage = storage
        self.directory = directory
        self.place = Place(storage, directory, URL, settings)
        routes = HttpRoutes()
        routes.routes.append(HttpRoute(PREFIX, FilesApp(storage, self.place, settings)))
        self.listener = HttpListener(routes, "127.0.0.1", 0)

    async def fetch(self, url: str, method: str = "GET", **headers: str) -> HttpResponse:
        path = url.removeprefix(URL)
        access = Access("127.0.0.1", "http", self.listener.port, private=True)
        given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        here = f"http://127.0.0.1:{self.listener.port}{path}"
        return await HttpGate((access,)).send(HttpRequest(here, method, given))


@asynccontextmanager
async def serving(directory: Path, **settings: Any) -> AsyncIterator[World]:
    async with Storage.open(SCHEMA, directory / "data") as storage:
        world = World(storage, directory / "files", SharedFiles(**settings))
        async with anyio.create_task_group() as group:
            await group.start(world.listener.run)
            yield world
            group.cancel_scope.cancel()


@pytest.mark.ports
async def test_a_file_is_fetched_from_the_address_of_its_link(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        link = await world.place.keep(PICTURE, "assistant", JULIET)
        assert link.url.startswith(f"{URL}/files/")
        assert link.url.endswith("/map.png")
        found = await world.fetch(link.url)
    assert (found.status, found.body) == (200, DATA)
    assert link.sha256 == hashlib.sha256(found.body).digest()
    assert found.header("content-type") == "image/png"
    assert found.header("x-content-type-options") == "nosniff"
    assert found.header("content-security-policy") == "default-src 'none'; sandbox"
    assert found.header("content-disposition").startswith('inline; filename="map.png"')
    assert found.header("cache-control") == "private, max-age=3600"


@pytest.mark.ports
async def test_another_process_serves_it_until_it_expires(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        link = await world.place.keep(PICTURE, "assistant", JULIET)
    async with serving(tmp_path) as world:
        assert (await world.fetch(link.url)).body == DATA
        await world.storage.write(lambda db: db.execute("UPDATE shared_files SET expires = 0"))
        assert (await world.fetch(link.url)).status == 404
        for path in world.directory.iterdir():
            os.utime(path, (0, 0))
        await world.place.sweep()
        assert list(world.directory.iterdir()) == []


@pytest.mark.ports
@pytest.mark.parametrize(
    ("given", "status", "body", "content_range"),
    [
        ("bytes=0-9", 206, DATA[:10], "bytes 0-9/256000"),
        ("bytes=255990-", 206, DATA[-10:], "bytes 255990-255999/256000"),
        ("bytes=-10", 206, DATA[-10:], "bytes 255990-255999/256000"),
        ("bytes=0-999999", 200, DATA, ""),
        ("bytes=256000-", 416, b"There is no such range.\n", "bytes */256000"),
        ("bytes=9-1", 416, b"There is no such range.\n", "bytes */256000"),
        ("bytes=0-1,4-5", 200, DATA, ""),
        ("lines=0-1", 200, DATA, ""),
    ],
)
async def test_a_range_is_sent(
    tmp_path: Path, given: str, status: int, body: bytes, content_range: str
) -> None:
    async with serving(tmp_path) as world:
        link = await world.place.keep(PICTURE, "assistant", JULIET)
        found = await world.fetch(link.url, Range=given)
    assert (found.status, found.body) == (status, body)
    assert found.header("content-range") == content_range


@pytest.mark.ports
async def test_requests_for_other_things_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        link = await world.place.keep(PICTURE, "assistant", JULIET)
        head = await world.fetch(link.url, "HEAD")
        assert (head.status, head.body, head.header("content-length")) == (200, b"", "256000")
        old = await world.fetch(link.url, Range="bytes=0-9", If_Range='"other"')
        assert old.body == DATA
        assert (await world.fetch(link.url, "POST")).status == 405
        another = link.url.replace("/files/", "/files/x")
        for path in ("/", "/files/", another, "/files/../data", f"{link.url}/more"):
            assert (await world.fetch(path)).status == 404, path


@pytest.mark.ports
async def test_too_many_requests_are_answered_with_429(tmp_path: Path) -> None:
    async with serving(tmp_path, requests_per_minute=2) as world:
        link = await world.place.keep(PICTURE, "assistant", JULIET)
        unknown = [await world.fetch(f"/files/{'x' * 32}/map.png") for _ in range(3)]
        found = [await world.fetch(link.url) for _ in range(3)]
    assert [one.status for one in unknown] == [404, 404, 404]
    assert [one.status for one in found] == [200, 200, 429]
    assert int(found[-1].header("retry-after")) > 0


@pytest.mark.ports
async def test_a_large_file_and_one_beyond_the_quota_are_refused(
    tmp_path: Path, storage: Storage
) -> None:
    settings = SharedFiles(max_file_bytes=256_000, quota_bytes=300_000)
    place = Place(storage, tmp_path / "files", URL, settings)
    with pytest.raises(CannotShare, match="at most 256,000 bytes"):
        await place.keep(File(DATA + b"x", "image/png"), "assistant", JULIET)
    await place.keep(PICTURE, "assistant", JULIET)
    with pytest.raises(CannotShare, match="maximum size together"):
        await place.keep(PICTURE, "assistant", JULIET)
    await place.keep(PICTURE, "assistant", JID.parse("romeo@example.com"))
    assert len(list((tmp_path / "files").iterdir())) == 2


@pytest.mark.ports
async def test_forgetting_a_person_deletes_their_files(tmp_path: Path, storage: Storage) -> None:
    place = Place(storage, tmp_path / "files", URL, SharedFiles())
    await place.keep(PICTURE, "assistant", JULIET)
    kept = await place.keep(PICTURE, "scout", JULIET)
    address = JID.parse("assistant@agent.example.com")
    who = Forgotten(agent="assistant", address=address, person=JULIET)
    delete = await storage.write(partial(place.forget, who=who))
    assert delete is not None
    delete()
    (left,) = (tmp_path / "files").iterdir()
    assert left.name in kept.url


@pytest.mark.ports
async def test_content_without_a_row_is_deleted_later(tmp_path: Path, storage: Storage) -> None:
    place = Place(storage, tmp_path / "files", URL, SharedFiles())
    await place.sweep()
    link = await place.keep(PICTURE, "assistant", JULIET)
    (kept,) = (tmp_path / "files").iterdir()
    orphan, young, other = [kept.with_name(name) for name in ("o" * 32, "y" * 32, "thesis.pdf")]
    for path in (orphan, young, other):
        path.write_bytes(b"x")
    os.utime(orphan, (0, 0))
    os.utime(other, (0, 0))
    os.utime(kept, (0, 0))
    await place.sweep()
    assert {path.name for path in kept.parent.iterdir()} == {kept.name, "y" * 32, "thesis.pdf"}
    assert kept.name in link.url


@pytest.mark.ports
async def test_a_cancelled_file_leaves_nothing(tmp_path: Path, storage: Storage) -> None:
    place = Place(storage, tmp_path / "files", URL, SharedFiles())
    writing = anyio.Event()

    async def write(_op: Any) -> bool:
        writing.set()
        await anyio.sleep_forever()
        return True

    place._storage = SimpleNamespace(write=write)  # type: ignore[assignment]  # a slow one
    async with anyio.create_task_group() as group:
        group.start_soon(place.keep, PICTURE, "assistant", JULIET)
        await writing.wait()
        group.cancel_scope.cancel()
    assert list((tmp_path / "files").iterdir()) == []


def shared(name: str, media_type: str) -> SharedFile:
    return SharedFile("i" * 32, "assistant", str(JULIET), name, media_type, 1, "00" * 32, 1)


@pytest.mark.parametrize(
    "kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", "x\r\ny: z"]
)
def test_what_a_browser_could_run_is_only_downloaded(kind: str) -> None:
    headers = dict(headers_of(shared("page", kind), 10))
    assert headers[b"content-type"] == b"application/octet-stream"
    assert headers[b"content-disposition"].startswith(b"attachment;")
    assert headers[b"cache-control"] == b"private, max-age=10"


@given(st.text(), st.text(max_size=30))
def test_any_name_and_type_give_headers_of_one_line(name: str, kind: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    for header, value in headers_of(shared(name, kind), 5):
        text = (header + value).decode("latin-1")
        assert text.isascii()
        assert text.isprintable()
    disposition = dict(headers_of(shared(name, kind), 5))[b"content-disposition"].decode()
    assert disposition.count('"') == 2


@pytest.mark.ports
async def test_files_that_are_known_are_those_with_a_row(tmp_path: Path, storage: Storage) -> None:
    place = Place(storage, tmp_path / "files", URL, SharedFiles())
    link = await place.keep(PICTURE, "assistant", JULIET)
    id_ = link.url.split("/")[-2]
    assert len(id_) == 32
    assert await storage.read(partial(rows.known, ids=[id_, "other"])) == {id_}
