"""The service as `xmpp-agent run` runs it, on an event loop of choice, with a tap if asked for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from component import logs
from component.app.process import make_service, serve
from component.cli.frame import load_settings
from component.link.connection import transport

_LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "trio": ("trio", {}),
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
}


class Tap:
    """Times the IQs whose ids begin with b, at the socket.

    The time is from the read of an IQ to the moment at which the kernel has the last byte of its
    answer. An IQ or an answer whose head is divided by a read or a write is left out.

    Attributes:
        latencies: the id of each IQ, and the seconds until its answer.
    """

    def __init__(self) -> None:
        self.latencies: list[tuple[str, float]] = []
        self._asked: tuple[str, float] | None = None

    def received(self, data: bytes) -> None:
        """Inspect received data."""
        id_ = _measured_id(data)
        if id_ is not None:
            self._asked = (id_, perf_counter())

    def sent(self, data: bytes | memoryview, count: int) -> None:
        """Inspect sent data."""
        if self._asked is None:
            return
        asked, since = self._asked
        if _measured_id(bytes(data[:count])) == asked:
            self.latencies.append((asked, perf_counter() - since))
            self._asked = None


def _measured_id(data: bytes) -> str | None:
    """Return the first id that begins with b and stands in a whole tag; None if there is none."""
    begin = data.find(b" id='b")
    end = -1 if begin < 0 else data.find(b"'", begin + 6)
    if end < 0 or data.find(b">", end) < 0:
        return None
    return data[begin + 5 : end].decode()


def tapped(tap: Tap) -> type[transport.Transport]:
    """Return a transport that shows everything to the tap."""

    class Tapped(transport.Transport):
        async def receive(self, max_bytes: int) -> bytes:
            data = await super().receive(max_bytes)
            tap.received(data)
            return data

        def receive_now(self, max_bytes: int) -> bytes | None:
            data = super().receive_now(max_bytes)
            if data is not None:
                tap.received(data)
            return data

        def try_send(self, data: bytes | memoryview) -> int:
            count = super().try_send(data)
            tap.sent(data, count)
            return count

    return Tapped


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--loop", choices=_LOOPS, default="trio")
    parser.add_argument("--tap", type=Path)
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()

    settings = load_settings(asked.config)
    logs.configure(settings.log.level, settings.log.format)
    tap = Tap()
    if asked.tap is not None:
        transport.Transport = tapped(tap)  # type: ignore[misc]
    backend, options = _LOOPS[asked.loop]

    def run() -> None:
        anyio.run(serve, make_service(settings), backend=backend, backend_options=options)

    if asked.profile is None:
        run()
    else:
        profiled(run, asked.profile)
    if asked.tap is not None:
        asked.tap.write_text(json.dumps(tap.latencies))


def profiled(work: Callable[[], None], file: Path) -> None:
    """Do the work under cProfile; `python -m pstats FILE` shows what it saw."""
    import cProfile

    profile = cProfile.Profile()
    profile.runcall(work)
    profile.dump_stats(file)


if __name__ == "__main__":
    main()
