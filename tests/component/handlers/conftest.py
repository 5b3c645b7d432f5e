"""Logs of handlers that fail on purpose are dropped; who tests logs captures them."""

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog
from structlog.typing import EventDict, WrappedLogger

from tests.component.features.questions.chat_world import World


def _drop(_logger: WrappedLogger, _name: str, _event: EventDict) -> EventDict:
    raise structlog.DropEvent


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[_drop])
    yield
    structlog.configure(processors=before)


@pytest.fixture
async def chat() -> AsyncIterator[World]:
    """Somebody who is asked things in chat."""
    world = World()
    async with world.bench.running():
        yield world
