"""The scripted endpoint and a model behind it, for every test here that wants them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from component.config.llm import ModelChoice
from component.models.catalog import resolve
from component.models.hosted import HostedModel
from tests.component.models.asking import KEY, Make, Slept
from tests.component.models.endpoint import Endpoint, serving


@pytest.fixture
async def endpoint(anyio_backend: str) -> AsyncIterator[Endpoint]:
    async with serving() as endpoint:
        yield endpoint


@pytest.fixture
def slept() -> Slept:
    return Slept()


@pytest.fixture
async def make(endpoint: Endpoint, slept: Slept) -> AsyncIterator[Make]:
    made: list[HostedModel] = []

    def make(**choice: Any) -> HostedModel:
        settings: dict[str, Any] = {
            "provider": "openai",
            "model": "m",
            "base_url": endpoint.url,
            "api_key": KEY,
            "timeout_s": 20,
        }
        target = resolve(ModelChoice(**settings | choice), "llm")
        made.append(HostedModel(target, sleep=slept, draw=lambda: 0.5))
        return made[-1]

    yield make
    for model in made:
        await model.aclose()


@pytest.fixture
async def model(make: Make) -> HostedModel:
    return make()
