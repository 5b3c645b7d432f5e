"""The whole service in this process, attached to an acceptor: bytes in, bytes out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from component.app.features import make_settings
from component.app.service import Service
from component.config import Server, Storage
from tests.component.link.connection.acceptor import DOMAIN, SECRET, Acceptor, Link

__all__ = ["DOMAIN", "attached"]


@asynccontextmanager
async def attached(directory: Path, **sections: object) -> AsyncIterator[Link]:
    """The server's end of the stream of a service with these sections of settings."""
    with Acceptor() as acceptor:
        settings = make_settings(
            server=Server(
                host=acceptor.host,
                port=acceptor.port,
                component_domain=DOMAIN,
                component_secret=SECRET,  # type: ignore[arg-type]  # pydantic makes a SecretStr
            ),
            storage=Storage(path=directory / "data"),
            **sections,  # type: ignore[arg-type]  # each is of its section
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(Service(settings).run)
            yield await acceptor.component()
            tasks.cancel_scope.cancel()
