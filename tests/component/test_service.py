"""The composition root on the embedded server, in this process, on both loops."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from component.app.features import load_skills, make_settings
from component.app.schema import SCHEMA
from component.app.service import Service
from component.config import (
    Agent,
    Conformance,
    Policy,
    RequestLimits,
    Rule,
    Server,
    Settings,
    Skills,
    Storage,
)
from component.policy import PolicyError
from component.skills import DuplicateSkillError, SkillLoadError
from component.store import DirectoryInUseError
from component.store import Storage as OpenStorage
from demo_server import DemoServer
from tests.demo_server.peers import AGENT, LIMIT, new_server
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import execute, from_, output
from xep.jid import JID

Change = Callable[..., Settings]

GATE = '''
import threading
import anyio
from component.skills import skill

_open, _open_on_loop = threading.Event(), anyio.Event()
held = 0

@skill(read_only=True)
async def wait() -> str:
    """Wait until the gate is open."""
    global held
    held += 1
    await _open_on_loop.wait()
    return "let through"

@skill(read_only=True)
def wait_in_thread() -> str:
    """Wait in a thread until the gate is open."""
    global held
    held += 1
    _open.wait(60)
    return "let through"

@skill(read_only=True, inline=True)
def open_gate() -> int:
    """Open the gate; tell how many wait before it."""
    _open.set()
    _open_on_loop.set()
    return held

@skill(read_only=True)
def thread() -> str:
    """Do a little in a thread."""
    return "done"
'''

MEMORY = ("memory_forget", "memory_recall", "memory_search", "memory_store")
OBJECTS = tuple(f"object_{what}" for what in ("delete", "get", "put", "query", "schema", "types"))
SCHEDULES = tuple(f"schedule_{what}" for what in ("add", "list", "pause", "remove", "resume"))
WATCHES = ("watch_create", "watch_list")
PLANS = tuple(f"plan_{what}" for what in ("pause", "revise", "show", "start"))
BUILTIN = (
    *("echo", "inbox", *MEMORY, *OBJECTS, *PLANS),
    *("pubsub_publish", *SCHEDULES, "time", *WATCHES),
)


@pytest.fixture
def settings(tmp_path: Path) -> Change:
    """Settings for a server that is not there, with changes to whole sections."""

    def make(port: int = 1, **sections: object) -> Settings:
        server = Server(
            host="127.0.0.1",
            port=port,
            component_domain=AGENT,
            component_secret="secret",  # type: ignore[arg-type]
        )
        return make_settings(server=server, storage=Storage(path=tmp_path / "data"), **sections)  # type: ignore[arg-type]

    return make


@asynccontextmanager
async def running(server: DemoServer, make: Change, **sections: object) -> AsyncIterator[Service]:
    service = Service(make(server.component_port, **sections))
    async with anyio.create_task_group() as tasks:
        await tasks.start(service.run)
        await service.established.wait()
        yield service
        service.stop()


def client(server: DemoServer, account: str) -> SlixClient:
    password = {"juliet": "p\u00e4ssword", "romeo": "r"}[account]
    return SlixClient(
        f"{account}@localhost", password, server.address, server.c2s_port, ca_file=server.ca_file
    )


@pytest.mark.anyio
async def test_one_is_served_while_another_has_all_it_may_have(
    settings: Change, tmp_path: Path
) -> None:
    """None of one's slow requests can end before the other has been served."""
    (tmp_path / "gate.py").write_text(GATE)
    limits = RequestLimits(
        inline_s=50, requests_per_principal=128, threads_per_principal=4, threads_total=8
    )
    skills = Skills(modules=(str(tmp_path / "gate.py"),))
    with anyio.fail_after(3 * LIMIT):
        async with (
            new_server() as server,
            running(server, settings, limits=limits, skills=skills),
            client(server, "juliet") as juliet,
            client(server, "romeo") as romeo,
        ):

            def start_all() -> list[Future[Element]]:
                names = ["wait"] * 64 + ["wait_in_thread"] * 64
                return [juliet.start_iq(AGENT, execute(name), "set") for name in names]

            slow = await to_thread.run_sync(start_all)
            # Juliet's stanzas keep their order: all of the others are under way when this is here.
            await juliet.aiq(AGENT, "<ping xmlns='urn:xmpp:ping'/>")
            hello = execute("echo", text="hello")
            assert output(await romeo.aiq(AGENT, hello, "set")) == "hello"
            assert output(await romeo.aiq(AGENT, execute("thread"), "set")) == "done"
            romeo.send_raw(f"<message to='{AGENT}' type='chat'><body>/ping</body></message>")
            notice, answer = [await romeo.anext_message() for _ in range(2)]
            assert (notice.findtext("{*}body") or "").startswith("I am Assistant, an automated")
            assert answer.findtext("{*}body") == "pong"
            assert not any(future.done() for future in slow)
            opened = await romeo.aiq(AGENT, execute("open_gate"), "set")
            # 64 on the loop, and as many threads as are one's share.
            assert output(opened) == str(64 + limits.threads_per_principal)
            for future in slow:
                reply = await to_thread.run_sync(future.result, LIMIT)
                assert output(reply) == "let through"


@pytest.mark.anyio
async def test_stopping_it_takes_leave_and_frees_the_directory(settings: Change) -> None:
    with anyio.fail_after(3 * LIMIT):
        async with new_server() as server, client(server, "juliet") as juliet:
            for _ in range(2):
                async with running(server, settings) as service:
                    with pytest.raises(DirectoryInUseError):
                        async with OpenStorage.open(SCHEMA, service.settings.storage.path):
                            pass
                    juliet.send_raw(f"<presence to='{AGENT}' type='subscribe'/>")
                    take = juliet.presences.take
                    await to_thread.run_sync(take, from_(AGENT))
                    service.stop()
                    service.stop()
                await to_thread.run_sync(take, from_(AGENT, "unavailable"))


@pytest.mark.anyio
async def test_the_agents_stay_available_while_another_instance_has_them(settings: Change) -> None:
    with anyio.fail_after(3 * LIMIT):
        async with new_server() as server, client(server, "juliet") as juliet:
            async with running(server, settings) as service:
                juliet.send_raw(f"<presence to='{AGENT}' type='subscribe'/>")
                await to_thread.run_sync(juliet.presences.take, from_(AGENT))
                subsystems = service._subsystems
                assert subsystems is not None
                subsystems.kernel.stream.has_others = lambda: True
            # Its answer comes after everything that the service has sent.
            await juliet.aiq("localhost", "<ping xmlns='urn:xmpp:ping'/>")
            assert not [
                each for each in juliet.presences.all() if from_(AGENT, "unavailable")(each)
            ]


@pytest.mark.anyio
async def test_it_can_be_stopped_before_it_ever_connects(settings: Change) -> None:
    service = Service(settings(port=1))
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as tasks:
            await tasks.start(service.run)
            service.stop()
    assert not service.established.is_set()


# What it is made of.


def test_skills_come_from_modules_and_fixtures_from_the_switch(
    settings: Change, tmp_path: Path
) -> None:
    def names(**sections: object) -> tuple[str, ...]:
        return load_skills(settings(**sections)).view("all", lambda _skill: True).names()

    assert names() == BUILTIN
    assert "conformance.add" in names(conformance=Conformance(enabled=True))
    (tmp_path / "gate.py").write_text(GATE)
    found = names(skills=Skills(modules=(str(tmp_path / "gate.py"),)))
    assert set(found) == {*BUILTIN, "wait", "wait_in_thread", "open_gate", "thread"}


def test_what_a_principal_sees(settings: Change) -> None:
    rules = (Rule(skills=("time",), allowed_jids=("romeo@localhost",)),)
    agent = Agent(allowed_jids=("romeo@localhost", "juliet@localhost"))
    service = Service(settings(agent=agent, policy=Policy(rules=rules)))
    assert service.catalog.view(JID.parse("romeo@localhost")).names() == BUILTIN
    juliet = service.catalog.view(JID.parse("juliet@localhost")).names()
    assert juliet == tuple(name for name in BUILTIN if name != "time")
    assert service.catalog.view(JID.parse("mallory@localhost")).names() == ()


def test_settings_that_cannot_be_kept_to(settings: Change, tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        Service(settings(agent=Agent(allowed_jids=("juliet@localhost/phone",))))
    with pytest.raises(SkillLoadError):
        Service(settings(skills=Skills(modules=("nosuch_skills",))))
    (tmp_path / "first.py").write_text(GATE)
    (tmp_path / "second.py").write_text(GATE)
    modules = (str(tmp_path / "first.py"), str(tmp_path / "second.py"))
    with pytest.raises(DuplicateSkillError):
        Service(settings(skills=Skills(modules=modules)))


def test_every_setting_of_the_connection_reaches_it() -> None:
    """None is named twice, none is left at its default."""
    given = {
        "host": "xmpp.example.com",
        "port": 1234,
        "component_domain": "agent.example.com",
        "component_secret": "secret",
        "connect_timeout_s": 1,
        "reconnect_min_s": 2,
        "reconnect_max_s": 3,
        "keepalive_s": 4,
        "read_timeout_s": 5,
        "probe_timeout_s": 6,
        "max_stanza_bytes": 10_007,
        "tls": True,
        "tls_ca": "/ca.pem",
        "tls_verify": False,
        "tls_server_name": "other.example.com",
    }
    server = Settings.model_validate({"server": given}).server
    assert (server.address, server.secret) == ("agent.example.com", "secret")
    assert (server.uses_tls, server.certificate_name) == (True, "other.example.com")
    plain = {name: value for name, value in given.items() if not name.startswith("tls")}
    assert not Settings.model_validate({"server": plain}).server.uses_tls


def test_a_client_has_tls_and_a_resource() -> None:
    given = {"mode": "client", "jid": "helper@example.com", "password": "secret", "tls_ca": "/ca"}
    server = Settings.model_validate({"server": given}).server
    assert (server.address, server.secret) == ("helper@example.com", "secret")
    assert (server.host, server.port, server.resource) == ("example.com", 5222, "agent")
    assert (server.uses_tls, server.tls, server.certificate_name) == (True, False, "example.com")
    direct = Settings.model_validate({"server": given | {"tls": True}}).server
    assert (direct.tls, direct.port) == (True, 5223)
