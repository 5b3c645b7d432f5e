"""Somebody who is asked things in chat."""

from collections.abc import AsyncIterator

import pytest

from tests.component.features.questions.chat_world import World


@pytest.fixture
async def chat() -> AsyncIterator[World]:
    """Somebody who is asked things in chat."""
    world = World()
    async with world.bench.running():
        yield world
