"""What authors do through the Context works the same confined, trusted and in their tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.features.installed_skills.commands import InstalledError
from component.skill_directories.host_functions import Credential, Services
from component.skills import CapabilityMissing, Context, SkillError, SkillFailed
from component.skills.calling import Threads, call
from component.skills.fake_context import FakeContext, called
from component.skills.host import SendMessage
from component.skills.operations import AskModel, ModelFailed, PartialHost
from component.skills.params import prepare
from component.store import Storage
from tests.component.features.installed_skills.world import World, install, opened
from tests.component.http.http_server import Server, plain, serving
from tests.component.sandbox.test_wasm_imports import RESULT, TEXT, after, calling

pytestmark = pytest.mark.anyio
ADMIN = "admin@example.com"
FORECAST = Path(__file__).parents[4] / "examples" / "skills" / "forecast"
CONFINED_AND_TRUSTED = pytest.mark.parametrize(
    "trusted", [False, True], ids=["confined", "trusted"]
)

CODE = '''
from component.skills import Context, ModelFailed, SkillError, skill
from component.skills.host import HostError

@skill
async def greet(what: str, context: Context) -> str:
    """Do what is asked for."""
    try:
        match what:
            case "http":
                return (await context.http.post("{url}", json=dict(a=1))).text
            case "other host":
                return (await context.http.get("https://other.example/")).text
            case "memory":
                await context.memory.put("a", "1")
                return ",".join(await context.memory.keys())
            case "credential":
                return str(await context.has_credential("weather-key"))
            case "other credential":
                return str(await context.has_credential("other"))
            case "send":
                await context.xmpp.send("romeo@example.com", "Hello")
                return "sent"
            case "send to another":
                await context.xmpp.send("tybalt@example.com", "Hello")
                return "sent"
            case "model":
                schema = dict(type="object", properties=dict(a=dict(type="string")))
                return (await context.llm("How?", schema, max_tokens=50))["a"]
            case "many tokens":
                await context.llm("How?", dict(type="object"), max_tokens=5000)
            case "now":
                assert len(context.random(8)) == 8
                return str(context.now().tzinfo)
    except ModelFailed as error:
        return f"{error.problem}: {error}"
    except HostError as error:
        return f"HostError: {error}"
    return ""
'''
EVERYTHING = """
network = ["http://127.0.0.1:{port}"]
credential = ["weather-key"]
memory_write = ["skill"]
xmpp = ["romeo@example.com"]
llm = { model = "small", max_tokens = 100 }
"""


class Messages:
    """Notes what skills send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []
        self.refuses = False

    async def send(self, context: Context, message: SendMessage, skill: str = "") -> None:
        if self.refuses:
            raise SkillError("They do not want it.")
        self.sent.append((context.principal, message.to, message.text, skill))


class Model(PartialHost):
    """Answers questions to models."""

    key = "k" * 32

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[AskModel] = []

    async def _do_llm(self, asked: AskModel, _check: object) -> str:
        self.asked.append(asked)
        if not self.answer:
            raise ModelFailed("budget", "The budget is spent.")
        return self.answer


@asynccontextmanager
async def world_of(
    storage: Storage, root: Path, data: Path, messages: Messages | None = None
) -> AsyncIterator[World]:
    services = Services(
        credentials={"weather-key": Credential(value="s3cret", hosts=("127.0.0.1",))},
        storage=storage,
        messages=lambda: messages and messages.send,
    )
    async with opened(storage, root, services=services) as world:
        yield world


def installed(root: Path, server: Server, capabilities: str = EVERYTHING) -> None:
    install(
        root,
        code=CODE.replace("{url}", server.url("page")),
        capabilities=capabilities.replace("{port}", str(server.port)),
    )


async def does(world: World, what: str, host: Any = None, principal: str = "ann@test") -> str:
    skill = world.registry.get("greet")
    assert skill is not None
    context = Context(principal=principal, sender=f"{principal}/x", skill="greet", host=host)
    arguments = prepare(skill, (), msgspec.json.encode({"what": what}))
    result = await call(skill, arguments, context, Threads(4, 4).share(principal))
    return result.outputs[0].text


@CONFINED_AND_TRUSTED
async def test_the_sample_uses_a_server_a_credential_and_the_memory(
    storage: Storage, tmp_path: Path, trusted: bool
) -> None:
    root = tmp_path / "skills"
    async with serving() as server:
        place = f"http://127.0.0.1:{server.port}"
        directory = root / "forecast"
        directory.mkdir(parents=True)
        for name in ("skill.toml", "main.py"):
            text = (FORECAST / name).read_text().replace("https://api.example.com", place)
            (directory / name).write_text(text)
        found = msgspec.json.encode({"summary": "sunny", "high": 28.5}).decode()
        server.answers["forecast?city=Verona"] = plain(found)
        async with world_of(storage, root, tmp_path) as world:
            await world.directories.approve("forecast", ADMIN, trusted=trusted)
            assert await world.says("forecast", city="Verona") == "Verona: sunny, up to 28.5 °C"
            assert await world.says("forecast", city="") == "Verona: sunny, up to 28.5 °C"
            unknown = await world.call("forecast", city="Atlantis")
        assert unknown.is_error
        assert unknown.outputs[0].text == "There is no forecast for Atlantis."
        assert all(b"Authorization: Bearer s3cret" in one for one in server.requests)


@CONFINED_AND_TRUSTED
async def test_each_function_works(storage: Storage, tmp_path: Path, trusted: bool) -> None:
    messages = Messages()
    async with serving() as server:
        server.answers["page"] = plain("a page")
        installed(tmp_path / "skills", server)
        async with world_of(storage, tmp_path / "skills", tmp_path, messages) as world:
            await world.directories.approve("greet", ADMIN, trusted=trusted)
            assert await does(world, "http") == "a page"
            assert b"POST /page" in server.requests[-1]
            assert b"application/json" in server.requests[-1]
            assert await does(world, "memory") == "a"
            assert await does(world, "credential") == "True"
            assert await does(world, "now") == "UTC"
            assert await does(world, "send") == "sent"
            assert messages.sent == [("ann@test", "romeo@example.com", "Hello", "greet")]
            messages.refuses = True
            assert await does(world, "send") == "HostError: They do not want it."
            host = Model('{"a": "well"}')
            assert await does(world, "model", host) == "well"
            assert host.asked[0].model == "small"
            assert host.asked[0].max_tokens == 50
            assert await does(world, "model", Model("")) == "budget: The budget is spent."


@CONFINED_AND_TRUSTED
async def test_what_is_not_declared_ends_the_call_and_is_named(
    storage: Storage, tmp_path: Path, trusted: bool
) -> None:
    async with serving() as server:
        installed(tmp_path / "skills", server)
        async with world_of(storage, tmp_path / "skills", tmp_path, Messages()) as world:
            await world.directories.approve("greet", ADMIN, trusted=trusted)
            for what, missing in (
                ("other host", "network:https://other.example:443"),
                ("other credential", "credential:other"),
                ("send to another", "xmpp:tybalt@example.com"),
                ("many tokens", "llm with 5000 tokens"),
            ):
                with pytest.raises(CapabilityMissing, match="an admin approves it") as raised:
                    await does(world, what, Model("{}"))
                assert raised.value.capability == missing
            installed(tmp_path / "skills", server, "")
            await world.directories.approve("greet", ADMIN, trusted=trusted)
            for what, missing in (
                ("http", "network"),
                ("memory", "memory"),
                ("credential", "credential:weather-key"),
                ("send", "xmpp"),
                ("model", "llm"),
            ):
                with pytest.raises((CapabilityMissing, SkillFailed)) as found:
                    await does(world, what, Model("{}"))
                assert isinstance(found.value, CapabilityMissing), what
                assert found.value.capability == missing
        assert not server.requests


async def test_webassembly_uses_the_memory_of_the_service(storage: Storage, tmp_path: Path) -> None:
    put = after(f"(call $f {TEXT.format(3)} (i32.const 1027) (i32.const 3) {RESULT})", 256)
    code = calling("memory.put", "(param i32 i32 i32 i32 i32)", put, "keyold")
    directory = tmp_path / "skills" / "notes"
    directory.mkdir(parents=True)
    (directory / "skill.wasm").write_bytes(code)
    manifest = (
        '[skill]\nname = "notes"\nversion = "1"\n[skill.input_schema]\ntype = "object"\n'
        '[skill.execution]\nkind = "wasm"\nentry = "skill.wasm"\n[skill.capabilities]\n'
    )
    (directory / "skill.toml").write_text(manifest)
    async with world_of(storage, tmp_path / "skills", tmp_path) as world:
        with pytest.raises(InstalledError, match="imports memory"):
            await world.directories.approve("notes", ADMIN)
        (directory / "skill.toml").write_text(f'{manifest}memory_write = ["skill"]\n')
        await world.directories.approve("notes", ADMIN)
        assert not (await world.call("notes")).is_error

    def stored(database: Any) -> Any:
        return database.execute("SELECT name, value, skill FROM skill_memories").fetchall()

    assert [tuple(row) for row in await storage.read(stored)] == [("key", "old", "notes")]


async def test_memories_of_principals_are_apart(storage: Storage, tmp_path: Path) -> None:
    async with serving() as server:
        installed(tmp_path / "skills", server)
        async with world_of(storage, tmp_path / "skills", tmp_path) as world:
            await world.directories.approve("greet", ADMIN, trusted=True)
            await does(world, "memory")

            def rows(database: Any) -> list[tuple[str, str]]:
                found = database.execute("SELECT skill, principal FROM skill_memories")
                return [tuple(row) for row in found.fetchall()]

            assert await storage.read(rows) == [("greet", "ann@test")]
            await does(world, "memory", principal="ben@test")
            assert len(await storage.read(rows)) == 2


async def test_the_fake_context_does_what_the_service_does(tmp_path: Path) -> None:
    manifest = tmp_path / "skill.toml"
    text = EVERYTHING.replace("{port}", "80").replace("\n\n", "\n")
    manifest.write_text(
        '[skill]\nname = "greet"\nversion = "1"\n[skill.execution]\nkind = "python"\n'
        f'entry = "main.py"\n[skill.capabilities]{text}'
    )
    module: dict[str, Any] = {}
    exec(CODE.replace("{url}", "http://127.0.0.1/page"), module)
    skill = module["greet"]

    async def does(what: str, context: FakeContext) -> str:
        return (await called(skill, {"what": what}, context)).outputs[0].text

    context = FakeContext(
        manifest=manifest, http=["a page"], model=[{"a": "well"}], credentials=["weather-key"]
    )
    assert await does("http", context) == '"a page"'
    assert [one.method for one in context.requests] == ["POST"]
    assert await does("memory", context) == "a"
    assert context.memories == {"a": "1"}
    assert await does("credential", context) == "True"
    assert await does("send", context) == "sent"
    assert context.sent == [("romeo@example.com", "Hello")]
    assert await does("model", context) == "well"
    assert not context.unused
    for what, missing in (
        ("other host", "network:https://other.example:443"),
        ("other credential", "credential:other"),
        ("send to another", "xmpp:tybalt@example.com"),
    ):
        with pytest.raises(CapabilityMissing) as found:
            await does(what, context)
        assert found.value.capability == missing
    with pytest.raises(CapabilityMissing, match="network"):
        await does("http", FakeContext())
    await anyio.lowlevel.checkpoint()
