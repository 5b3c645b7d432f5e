"""What a running service records, counts and tells, on the embedded server and both loops."""

from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from component.app.features import make_settings
from component.app.schema import SCHEMA
from component.app.service import Service
from component.audit.files import files_in
from component.audit.heads import heads_in
from component.audit.lines import Line, read_line
from component.audit.verify import verify
from component.config import Agent, Server, Settings, Skills, Storage
from component.config.service import Audit
from component.features.metrics.settings import Metrics
from component.kernel.monitoring import Monitoring
from component.store import Storage as OpenStorage
from demo_server import DemoServer
from tests.component.features.metrics.test_metrics import ask, get
from tests.demo_server.peers import AGENT, LIMIT, new_server
from tests.servers.clients import SlixClient
from tests.servers.talk import error, execute, output

pytestmark = pytest.mark.anyio

SKILLS = '''
from component.skills import skill

@skill(destructive=True)
async def erase(name: str) -> str:
    """Erase something."""
    return f"erased {name}"

@skill(read_only=True)
async def slow() -> str:
    """Do something that may wait."""
    return "done"
'''


def lines(path: Path) -> list[Line]:
    found = [
        read_line(raw)
        for file in files_in(path / "audit")
        for raw in file.read_bytes().splitlines()
    ]
    return [sealed.line for sealed in found if sealed is not None]


def settings_for(port: int, path: Path, **sections: object) -> Settings:
    server = Server(
        host="127.0.0.1",
        port=port,
        component_domain=AGENT,
        component_secret="secret",  # type: ignore[arg-type]
    )
    return make_settings(server=server, storage=Storage(path=path), **sections)  # type: ignore[arg-type]


def client(server: DemoServer, account: str, password: str) -> SlixClient:
    return SlixClient(
        f"{account}@localhost", password, server.address, server.c2s_port, ca_file=server.ca_file
    )


def test_a_sender_who_is_not_admitted_is_logged_once_with_how_to_admit_them() -> None:
    with capture_logs() as lines:
        monitoring = Monitoring()
        for principal in ("romeo@a.example", "romeo@a.example"):
            monitoring.not_admitted(principal)
    (line,) = lines
    assert line["sender"] == "romeo@a.example"
    assert "allowed_jids" in line["hint"]


async def test_what_is_done_and_refused_is_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(SKILLS)
    data = tmp_path / "data"
    with anyio.fail_after(3 * LIMIT):
        async with new_server() as server, anyio.create_task_group() as group:
            settings = settings_for(
                server.component_port,
                data,
                skills=Skills(modules=(str(tmp_path / "made.py"),)),
                agent=Agent(allowed_jids=("juliet@localhost",), admins=("juliet@localhost",)),
                metrics=Metrics(listen="127.0.0.1:9"),  # taken or not allowed: it serves on
            )
            service = Service(settings)
            await group.start(service.run)
            await service.established.wait()
            async with (
                client(server, "juliet", "p\u00e4ssword") as juliet,
                client(server, "romeo", "r") as romeo,
            ):
                assert output(await juliet.aiq(AGENT, execute("echo", text="hi"), "set")) == "hi"
                assert output(await juliet.aiq(AGENT, execute("slow"), "set")) == "done"
                error(await juliet.aiq(AGENT, execute("nothing"), "set"))
                for _ in range(3):
                    error(await romeo.aiq(AGENT, execute("echo", text="secret"), "set"))
                await juliet.aiq(AGENT, execute("erase", name="secret"), "set")
                question = await juliet.anext_message()
                assert question is not None
                thread = f"<thread>{question.findtext('{jabber:client}thread')}</thread>"
                juliet.send_raw(
                    f"<message to='{AGENT}' type='chat'>{thread}<body>yes</body></message>"
                )
                await to_thread.run_sync(
                    juliet.messages.take, lambda stanza: "erased" in str(_all_text(stanza))
                )
                juliet.send_raw(
                    f"<message to='{AGENT}' type='chat'><body>/audit verify</body></message>"
                )
                told = await to_thread.run_sync(
                    juliet.messages.take, lambda stanza: "audit log" in str(_all_text(stanza))
                )
                assert "The audit log is complete and unchanged" in _all_text(told)
            service.stop()
    found = [(each.kind, each.outcome, each.principal, each.subject) for each in lines(data)]
    who = "juliet@localhost"
    assert found[:2] == [
        ("record", "opened", "", ""),
        ("start", "started", "", "xmpp-agent-component"),
    ]
    assert ("execute", "done", who, "echo") in found
    assert ("execute", "done", who, "slow") in found
    assert ("policy", "refused", who, "nothing") in found
    assert found.count(("policy", "refused", "romeo@localhost", "")) == 2  # the first; two more
    assert ("confirmation", "asked", who, "erase") in found
    assert ("confirmation", "approved", who, "erase") in found
    assert ("execute", "completed", who, "erase") in found
    assert ("admin", "done", who, "audit") in found
    assert found[-2:] == [
        ("start", "stopped", "", "xmpp-agent-component"),
        ("record", "closed", "", ""),
    ]
    assert b"secret" not in b"".join(file.read_bytes() for file in files_in(data / "audit"))
    async with OpenStorage.open(SCHEMA, data) as storage:
        _, heads = await storage.read(heads_in)
    verdict = verify(data / "audit", [head.link for head in heads])
    assert verdict.whole
    assert heads[0].link.seq == verdict.last  # the end is anchored


def _all_text(stanza: object) -> str:
    return "".join(stanza.itertext())  # type: ignore[attr-defined]


async def test_figures_health_and_readiness(tmp_path: Path, free_port: int) -> None:
    metrics = Metrics(listen=f"127.0.0.1:{free_port}")
    with anyio.fail_after(3 * LIMIT):
        async with new_server() as server, anyio.create_task_group() as group:
            service = Service(settings_for(server.component_port, tmp_path, metrics=metrics))
            await group.start(service.run)
            await service.established.wait()
            async with client(server, "juliet", "p\u00e4ssword") as juliet:
                assert output(await juliet.aiq(AGENT, execute("echo", text="hi"), "set")) == "hi"
            status, _, body = await ask(free_port, get("/metrics"))
            text = body.decode()
            assert status == 200
            assert 'xmpp_agent_execute_seconds_count{outcome="done",skill="echo"} 1.0' in text
            assert "xmpp_agent_connected 1.0" in text
            assert 'xmpp_agent_tasks{state="running"} 0.0' in text
            assert "xmpp_agent_audit_lag_seconds" in text
            assert 'xmpp_agent_iq_answered_total{outcome="result"}' in text
            assert (await ask(free_port, get("/readyz")))[0] == 200
            assert (await ask(free_port, get("/healthz")))[0] == 200
            service.stop()


async def test_who_has_no_stream_is_alive_and_not_ready(tmp_path: Path, free_port: int) -> None:
    metrics = Metrics(listen=f"127.0.0.1:{free_port}")
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            service = Service(settings_for(1, tmp_path, metrics=metrics))
            await group.start(service.run)
            assert (await ask(free_port, get("/healthz")))[0] == 200
            status, _, body = await ask(free_port, get("/readyz"))
            assert (status, body) == (503, b"There is no stream to the XMPP server.\n")
            service.stop()


async def test_a_record_that_is_not_wanted_is_not_kept(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            service = Service(settings_for(1, tmp_path, audit=Audit(enabled=False)))
            await group.start(service.run)
            service.stop()
    assert not (tmp_path / "audit").exists()


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
