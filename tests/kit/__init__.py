"""A whole service in one process, for tests: real kernel, real features, real SQLite.

    from tests.kit import Script, anyio_backend, service

    async def test_it_answers(tmp_path: Path) -> None:
        async with service(tmp_path, model=Script("Hello, Juliet.")) as kit:
            juliet = kit.peer("juliet@capulet.example/balcony")
            assert await juliet.ask("Hello", "Juliet") == "Hello, Juliet."

Nothing of the operating system is used but files: the XMPP server is in memory
(`tests.kit.xmpp`), the model is a script (`tests.kit.model`), and clocks, random numbers and worker
threads are those of `tests.kit.system`. Time jumps to the next deadline when everybody waits. The
same seed gives the same stanzas in the same order.

The disk (`tests.kit.disk`) fails on demand, and a power failure loses what was not synced. Several
services can share a real PostgreSQL database, whose clock is the simulated one
(`tests.kit.database`).

A module that uses it also imports `anyio_backend`, which gives its tests trio with a clock that
jumps.
"""

from tests.kit.loop import anyio_backend
from tests.kit.model import NoAnswer, Script, call
from tests.kit.service import AGENT, Kit, service
from tests.kit.xmpp import Peer

__all__ = ["AGENT", "Kit", "NoAnswer", "Peer", "Script", "anyio_backend", "call", "service"]
