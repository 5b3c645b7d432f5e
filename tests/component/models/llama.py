"""A server of llama.cpp with the small model, on a Unix socket, and how others start theirs."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import msgspec
import pytest

from component.config.llm import Dialect, ModelChoice
from component.models import local
from component.models.catalog import ModelTarget, resolve
from component.models.http_client import ModelClient
from component.models.local import ServerProcess

_PAUSE_S = 0.01  # between two questions: the server does not tell when its state changes


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Local models compute with one thread: several wait actively for each other, which takes
    processor time from whatever else runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_cores", lambda: 1)
        yield


@contextlib.asynccontextmanager
async def serving_llama(
    path: Path | None = None, *, context_tokens: int = 2048
) -> AsyncIterator[ServerProcess]:
    """A running server with the model of a file, or the small bundled one."""
    process = ServerProcess(
        {
            "model": str(path or local.bundled_model()),
            "context_tokens": context_tokens,
            "cache_mib": 128,
            "threads": 1,
            "verbose": False,
        }
    )
    try:
        assert await process.ready(), process.output()
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(process.end)


def target_of(process: ServerProcess, dialect: Dialect, **choice: Any) -> ModelTarget:
    """How a HostedModel reaches the server by a dialect."""
    settings = {
        "provider": "llamacpp",
        "model": "small",
        "dialect": dialect,
        "retries": 0,
        "temperature": 0,
    } | choice
    target = resolve(ModelChoice(**settings), "llm")
    return msgspec.structs.replace(target, socket=process.socket)


async def slot(process: ServerProcess, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the state of the server's only slot fits, and give it."""
    async with ModelClient(socket=process.socket) as client:
        while True:
            response: httpx2.Response = await client.get("http://localhost/slots", timeout=120)
            found = cast("dict[str, Any]", response.json()[0])
            if fits(found):
                return found
            await anyio.sleep(_PAUSE_S)
