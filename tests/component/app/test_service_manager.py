"""The service manager is told the state of the service on a real datagram socket."""

import os
import time
from pathlib import Path

import anyio
import pytest

from component.app.service_manager import ServiceManager
from tests.notified import Notified


@pytest.mark.parametrize("is_abstract", [False, True])
def test_each_state_is_sent(tmp_path: Path, is_abstract: bool) -> None:
    where = f"xmpp-agent-test-{os.getpid()}" if is_abstract else tmp_path / "notify"
    with Notified(where) as told:
        environ = {"NOTIFY_SOCKET": told.name, "PATH": "/bin"}
        manager = ServiceManager(environ)
        assert environ == {"PATH": "/bin"}, "processes that it starts do not have the socket"
        manager.status("connected as agent.example.com")
        assert told.take() == {"STATUS": "connected as agent.example.com"}
        manager.ready()
        assert told.take() == {"READY": "1"}
        before = time.monotonic_ns() // 1000
        manager.reloading()
        found = told.take()
        assert found["RELOADING"] == "1"
        after = time.monotonic_ns() // 1000
        assert before - 1 <= int(found["MONOTONIC_USEC"]) <= after + 1, "but for the rounding"
        manager.stopping()
        assert told.take() == {"STOPPING": "1"}


@pytest.mark.anyio
async def test_the_watchdog_is_told_at_half_of_its_time(tmp_path: Path) -> None:
    with Notified(tmp_path / "notify") as told:
        given = {"NOTIFY_SOCKET": told.name, "WATCHDOG_USEC": "40000"}
        manager = ServiceManager({**given, "WATCHDOG_PID": str(os.getpid())})
        assert manager.watchdog_s == 0.04
        async with anyio.create_task_group() as group:
            group.start_soon(manager.run)
            began = anyio.current_time()
            for _ in range(4):
                assert await anyio.to_thread.run_sync(told.take) == {"WATCHDOG": "1"}
            assert anyio.current_time() - began >= 3 * 0.02
            group.cancel_scope.cancel()


@pytest.mark.parametrize(
    "given",
    [
        {"WATCHDOG_USEC": "40000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "0"},
        {},
    ],
)
def test_the_watchdog_of_another_process_is_not_told(tmp_path: Path, given: dict[str, str]) -> None:
    with Notified(tmp_path / "notify") as told:
        manager = ServiceManager({"NOTIFY_SOCKET": told.name, **given})
        assert manager.watchdog_s is None
        anyio.run(manager.run)
        manager.ready()
        assert told.take() == {"READY": "1"}


def test_without_a_service_manager_nothing_is_sent(tmp_path: Path) -> None:
    anyio.run(ServiceManager({}).run)
    ServiceManager({}).ready()
    nobody = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    nobody.ready()
    nobody.stopping()
