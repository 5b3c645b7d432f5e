"""Whatever the umask is, nobody else can read what the service writes."""

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from component.app.features import make_settings
from component.app.schema import SCHEMA
from component.audit.opening import CHAIN_FILE, check_writable, open_record
from component.cli.group import group
from component.commands import Commands
from component.config import Server
from component.config import Storage as Where
from component.control.server import ControlServer
from component.conversations.lines import Said
from component.kernel.memory import open_memories
from component.memory.knowledge import Memo
from component.memory_directory.layout import SessionKey
from component.private import close_to_others, exposed, make_directory, open_private
from component.store import Storage
from component.store.directory import home_of
from tests.component.audit.book import Book
from xep.jid import JID

pytestmark = pytest.mark.anyio

ANN = JID.parse("ann@example.com")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


async def test_everything_that_the_service_writes_is_its_owners_alone(tmp_path: Path) -> None:
    root = tmp_path / "new" / "data"
    settings = make_settings(
        server=Server(component_domain="agent.example", component_secret="s"),  # type: ignore[arg-type] # pydantic converts it
        storage=Where(path=root),
    )
    async with Storage.open(SCHEMA, root) as storage, open_memories(settings, Book()) as memories:
        await storage.write(lambda database: database.notify("x"))
        home_of(root)
        check_writable(root)
        opened = open_record(root, (True, ()), 1_000_000, "1.0")
        await memories.knowledge.store(SessionKey("assistant", ANN), Memo("tea", "green"))
        key = SessionKey("assistant", ANN)
        await memories.sessions.append(key, [Said(role="user", content="hi")], sync=True)
        await memories.sessions.archive(key)
        async with anyio.create_task_group() as tasks:
            await tasks.start(ControlServer(root, Commands((), ())).run)
            names = {path.name for path in root.rglob("*")}
            assert {"agent.db", "agent.lock", "home", CHAIN_FILE, "control.sock"} <= names
            assert {"knowledge.jsonl", ".index.db", "sessions", "memory"} <= names
            assert list(exposed(tmp_path / "new")) == []
            tasks.cancel_scope.cancel()
        opened.journal.close()


def test_what_init_writes_is_its_owners_alone(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        group,
        ["init", "-o", str(tmp_path / "a" / "b" / "agent.toml"), "--domain", "agent.example.com"],
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"agent.toml", "agent.env"}
    assert list(exposed(tmp_path / "a")) == []


def test_a_file_that_was_open_to_others_is_closed_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    assert list(exposed(path)) == [path]
    with open_private(path, "w") as file:
        file.write("new")
    assert list(exposed(path)) == []
    assert path.read_text() == "new"


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o750)
    make_directory(tmp_path / "shared" / "own")
    assert list(exposed(tmp_path / "shared")) == [tmp_path / "shared"]


def test_what_is_exposed_is_found_and_closed_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o755)
    inner = tmp_path / "data"
    inner.mkdir(mode=0o700)
    (inner / "link").symlink_to(tmp_path / "out")
    (inner / "open").write_text("x")
    (inner / "folder").mkdir(mode=0o711)
    assert sorted(exposed(inner)) == [inner / "folder", inner / "open"]
    for path in exposed(inner):
        close_to_others(path)
    assert list(exposed(inner)) == []
    assert list(exposed(tmp_path / "missing")) == []


def test_only_regular_files_get_another_mode(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o666)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_private(pipe, "w") as file:
        file.write("x")
    os.close(reader)
    assert pipe.stat().st_mode & 0o777 == 0o666, "as for /dev/null, which everybody uses"
