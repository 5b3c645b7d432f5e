"""The scripted endpoint, for every test here that wants one."""

from collections.abc import AsyncIterator

import pytest

from tests.component.models.endpoint import Endpoint, serving


@pytest.fixture
async def endpoint(anyio_backend: str) -> AsyncIterator[Endpoint]:
    async with serving() as endpoint:
        yield endpoint
