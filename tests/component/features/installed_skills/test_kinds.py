"""Skills of each kind run where they belong, with what their manifests declare and no more."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import h11
import pytest
from anyio.abc import SocketStream

from component.features.installed_skills.commands import InstalledError
from component.skill_directories.host_functions import Credential, Services, functions_of
from component.skill_directories.version import Artefact
from component.skills import CapabilityMissing, Context, InvalidParam, SkillUnavailable
from component.skills.host import HasCredential, HostError, HttpRequest
from component.skills.manifest import read_manifest
from component.skills.operations import ReportProgress
from component.skills.ports import ContextMemory
from component.store import Storage
from tests.component.features.installed_skills.world import install, opened

pytestmark = pytest.mark.anyio
ADMIN = "admin@example.com"
EXAMPLES = Path(__file__).parents[4] / "examples" / "skills"


async def test_a_python_skill_is_confined_unless_it_is_trusted(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    code = '''
import pathlib
from component.skills import skill

@skill(read_only=True)
def greet(who: str) -> str:
    """Read a file."""
    return pathlib.Path(who).read_text()
'''
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    install(root, code=code)
    async with opened(storage, root) as world:
        await world.directories.approve("greet", ADMIN)
        with pytest.raises(Exception, match="greet failed"):
            await world.says(who=str(secret))
        await world.directories.approve("greet", ADMIN, trusted=True)
        assert await world.says(who=str(secret)) == "a secret"
        install(root, code=code, capabilities=f'filesystem_read = ["{secret}"]')
        await world.directories.approve("greet", ADMIN)
        assert await world.says(who=str(secret)) == "a secret"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("checksum", {"text": "abc"}, {"crc32": "352441c2", "bytes": 3}),
        pytest.param(
            "word-count",
            {"text": "a b"},
            {"words": 2, "lines": 1, "characters": 3},
            marks=pytest.mark.thorough,
        ),
    ],
)
async def test_the_samples_in_webassembly_can_be_approved_and_called(
    storage: Storage, tmp_path: Path, name: str, arguments: dict[str, str], expected: object
) -> None:
    async with opened(storage, EXAMPLES) as world:
        await world.directories.approve(name, ADMIN)
        result = await world.says(name, **arguments)
        assert json.loads(result) == expected


@pytest.mark.parametrize("trusted", [False, True])
async def test_modules_beside_the_entry_are_its_own(
    storage: Storage, tmp_path: Path, trusted: bool
) -> None:
    root = tmp_path / "skills"
    code = """
from helper import WORD
from component.skills import skill

@skill(name="{name}", read_only=True)
def greet(who: str) -> str:
    return WORD + who
"""
    for name in ("one", "two"):
        install(root, name, code=code.replace("{name}", name))
        (root / name / "helper.py").write_text(f"WORD = 'from {name} to '")
    async with opened(storage, root) as world:
        for name in ("one", "two"):
            await world.directories.approve(name, ADMIN, trusted=trusted)
        assert await world.says("one", who="Romeo") == "from one to Romeo"
        assert await world.says("two", who="Romeo") == "from two to Romeo"


PROGRAM = """#!/bin/sh
read -r parameters
case "$parameters" in
*nobody*) echo '{"error": "There is nobody."}'; exit 1;;
*wrong*) echo '{"error": "is wrong", "parameter": "who"}'; exit 1;;
*secret*) read -r line < "$1" || exit 3;;
*flood*) while :; do echo flood; done;;
*) echo "$parameters";;
esac
"""


async def test_a_program_is_confined(storage: Storage, tmp_path: Path) -> None:
    directory = tmp_path / "skills" / "program"
    directory.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text('"a secret"')
    (directory / "run").write_text(PROGRAM)
    (directory / "skill.toml").write_text(
        '[skill]\nname = "program"\nversion = "1"\n[skill.input_schema]\ntype = "object"\n'
        "[skill.annotations]\nread_only = true\n"
        '[skill.execution]\nkind = "process"\nentry = "run"\noutput_bytes = 1000\n'
        f'args = ["{secret}"]\n'
    )
    async with opened(storage, tmp_path / "skills") as world:
        with pytest.raises(InstalledError, match="executable"):
            await world.directories.approve("program", ADMIN)
        (directory / "run").chmod(0o755)
        await world.directories.approve("program", ADMIN)
        assert json.loads(await world.says("program", who="Romeo")) == {"who": "Romeo"}
        assert (await world.call("program", who="nobody")).is_error
        with pytest.raises(InvalidParam, match="wrong"):
            await world.says("program", who="wrong")
        with pytest.raises(SkillUnavailable, match="status 3"):
            await world.says("program", who="secret")
        with pytest.raises(SkillUnavailable, match="1,000 bytes"):
            await world.says("program", who="flood")


async def test_a_name_that_differs_is_a_mistake(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    install(root, "other")
    async with opened(storage, root) as world:
        why = "declares no skill called other, but greet"
        with pytest.raises(InstalledError, match=why):
            await world.directories.approve("other", ADMIN)
        with pytest.raises(InstalledError, match=why):
            await world.directories.approve("other", ADMIN, trusted=True)


async def test_code_cannot_use_more_than_the_manifest_declares(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    code = '''
from component.skills import skill

@skill(capabilities=["network:evil.example:443"])
def greet(who: str) -> str:
    """Greet somebody."""
    return who
'''
    install(root, code=code)
    async with opened(storage, root) as world:
        why = "network:evil.example:443, which skill.toml lacks"
        with pytest.raises(InstalledError, match=why):
            await world.directories.approve("greet", ADMIN)


async def test_a_host_that_no_sandbox_can_limit_is_refused(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root, capabilities='network = ["imaps://mail.example.com"]')
    async with opened(storage, root) as world:
        with pytest.raises(InstalledError, match="http and https only"):
            await world.directories.approve("greet", ADMIN)
        await world.directories.approve("greet", ADMIN, trusted=True)


# The functions of the service.


def artefact(capabilities: str) -> Artefact:
    manifest = read_manifest(
        '[skill]\nname = "one"\nversion = "1"\n[skill.execution]\nkind = "python"\nentry = "m.py"\n'
        f"[skill.capabilities]\n{capabilities}\n"
    )
    return Artefact(directory=Path("/nowhere"), digest="0" * 64, manifest=manifest)


CONTEXT = Context(principal="juliet@example.com", sender="juliet@example.com/b", skill="one")


@asynccontextmanager
async def echo_server() -> AsyncIterator[tuple[int, list[dict[str, str]]]]:
    """An HTTP server that answers every request with 200, and the headers that it has got."""
    heard: list[dict[str, str]] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            connection = h11.Connection(h11.SERVER)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive())
                elif isinstance(event, h11.Request):
                    heard.append({key.decode(): value.decode() for key, value in event.headers})
                elif isinstance(event, h11.EndOfMessage):
                    break
            for reply in (
                h11.Response(status_code=200, headers=[("content-length", "2")]),
                h11.Data(data=b"ok"),
                h11.EndOfMessage(),
            ):
                await stream.send(connection.send(reply) or b"")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), heard
        group.cancel_scope.cancel()


async def test_credentials_go_to_their_hosts_and_never_into_the_skill() -> None:
    async with echo_server() as (port, heard):
        services = Services(
            credentials={
                "key": Credential(value="s3cret", hosts=("127.0.0.1",)),
                "other": Credential(value="s3cret", hosts=("api.example.com",)),
            }
        )
        one = artefact(
            f'network = ["http://127.0.0.1:{port}"]\ncredential = ["key", "missing", "other"]'
        )
        functions = functions_of(one, services)(CONTEXT)
        url = f"http://127.0.0.1:{port}/"
        answer = await functions.perform(HttpRequest("GET", url, credential="key"))
        assert (answer.status, answer.body) == (200, b"ok")
        assert heard[-1]["authorization"] == "Bearer s3cret"
        await functions.perform(HttpRequest("GET", url))
        assert "authorization" not in heard[-1]
        with pytest.raises(HostError, match="not for 127"):
            await functions.perform(HttpRequest("GET", url, credential="other"))
        with pytest.raises(HostError, match="not set"):
            await functions.perform(HttpRequest("GET", url, credential="missing"))
        with pytest.raises(CapabilityMissing):
            await functions.perform(HttpRequest("GET", url, credential="undeclared"))
        with pytest.raises(CapabilityMissing):
            await functions.perform(HttpRequest("GET", "https://evil.example/"))
        assert len(heard) == 2
        assert await functions.perform(HasCredential("key"))
        assert not await functions.perform(HasCredential("missing"))
        with pytest.raises(CapabilityMissing):
            await functions.perform(HasCredential("undeclared"))
        assert "s3cret" not in repr(services)


async def test_what_is_not_declared_is_not_there(storage: Storage) -> None:
    functions = functions_of(artefact(""), Services(storage=storage))(CONTEXT)
    assert functions.handlers.keys() == {ReportProgress}


@pytest.mark.ports
async def test_memories_belong_to_one_skill_and_one_caller(storage: Storage) -> None:
    services = Services(storage=storage)
    writes = ContextMemory(functions_of(artefact('memory_write = ["skill"]'), services)(CONTEXT))
    reads = ContextMemory(functions_of(artefact('memory_read = ["skill"]'), services)(CONTEXT))
    romeo = Context(principal="romeo@example.com", sender="romeo@example.com/b", skill="one")
    other = ContextMemory(functions_of(artefact('memory_write = ["skill"]'), services)(romeo))
    await writes.put("tea", "green")
    await writes.put("tea", "black")
    assert await reads.get("tea") == "black"
    assert await reads.keys("t") == ["tea"]
    assert await reads.keys("x") == []
    assert await other.get("tea") is None
    with pytest.raises(CapabilityMissing):
        await reads.put("tea", "red")
    with pytest.raises(CapabilityMissing):
        await reads.delete("tea")
    for key, value in (
        ("", "x"),
        ("k" * 201, "x"),
        ("\0", "x"),
        ("\ud800", "x"),
        ("k", "\0"),
        ("k", "\ud800"),
        ("k", "x" * 70_000),
    ):
        with pytest.raises(HostError):
            await writes.put(key, value)
    for key in ("\0", "\ud800"):
        with pytest.raises(HostError):
            await writes.get(key)
        with pytest.raises(HostError):
            await writes.delete(key)
    await writes.delete("tea")
    assert await reads.get("tea") is None
