"""Another process has our place: it is asked for again and again, and not too seldom."""

from collections.abc import Callable

import anyio
import pytest
from structlog.testing import capture_logs

from component.link.connection import connection
from component.link.connection.connection import Connection
from component.link.messages.outbox import Outbox
from tests.component.link.connection.acceptor import Acceptor
from tests.component.link.connection.running import TIMEOUT_S, Recorder, settings_for
from xep.stream import Condition

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


async def pauses(condition: Condition, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The longest pauses between tries that are all refused, in seconds."""
    slept: list[float] = []
    done = anyio.Event()
    checkpoint: Callable[..., object] = anyio.lowlevel.checkpoint

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 12:
            done.set()
            await anyio.sleep_forever()
        await checkpoint()  # type: ignore[misc]

    class Clock:
        """anyio as the connection sees it, but that no time passes."""

        def __getattr__(self, name: str) -> object:
            return sleep if name == "sleep" else getattr(anyio, name)

    monkeypatch.setattr(connection, "anyio", Clock())
    with Acceptor() as server, anyio.fail_after(TIMEOUT_S):
        options = settings_for(server, reconnect_min_s=0.5, reconnect_max_s=60.0)
        it = Connection(options, Outbox(1000), Recorder(), draw=lambda: 1.0)

        async def refuse() -> None:
            while True:
                link = await server.accept()
                await link.event()
                await link.refuse(condition)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.run)
            tasks.start_soon(refuse)
            await done.wait()
            tasks.cancel_scope.cancel()
    return slept


async def test_who_stands_by_is_there_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as said:
        slept = await pauses("conflict", monkeypatch)
    assert slept[0] == 1
    assert set(slept[3:]) == {5.0}
    # One sentence, however often it is refused.
    (warning,) = [line for line in said if line["log_level"] != "debug"]
    assert "this one waits and takes over" in warning["reason"]


async def test_any_other_refusal_is_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await pauses("host-unknown", monkeypatch))[-1] == 60
