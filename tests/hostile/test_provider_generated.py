"""Answers of a provider made by hypothesis: bytes, HTTP, JSON and what it says, all of it bent."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st

from component.config.llm import Dialect, ModelChoice
from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    CALL_TOKENS,
    CALL_USD,
    CALLS,
    ID_CHARACTERS,
    NAME_CHARACTERS,
    TEXT_CHARACTERS,
)
from component.models.catalog import resolve
from component.models.hosted import HostedModel
from component.models.messages import storable, text_message
from component.models.protocol import Completion, ModelError, ModelRequest
from tests.component.models.asking import tool
from tests.hostile.generated import answers
from tests.hostile.provider import HONEST, Provider, provider_in_thread
from tests.profiles import examples

_LONGEST_S: Final = 120.0
"""Twice what two attempts may take: a model that is asked for longer ignores its timeout."""

Ask: TypeAlias = Callable[[str], Completion | ModelError]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with provider_in_thread({}) as provider:
        yield provider


@pytest.fixture(scope="module")
def portal(anyio_backend: str) -> Iterator[BlockingPortal]:
    with start_blocking_portal(anyio_backend) as portal:
        yield portal


@pytest.fixture(scope="module", params=["chat", "responses", "messages"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    dialect: Dialect = request.param
    return dialect


@pytest.fixture(scope="module")
def ask(portal: BlockingPortal, provider: Provider, dialect: Dialect) -> Iterator[Ask]:
    choice = ModelChoice(
        provider="openrouter" if dialect == "chat" else "openai",
        dialect=dialect,
        model="m",
        base_url=provider.url,
        api_key="sk-secret",  # type: ignore[arg-type]  # pydantic makes a secret of it
        timeout_s=60,
        retries=1,
    )

    async def at_once(_pause_s: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def asked(model: HostedModel, text: str) -> Completion | ModelError:
        told: list[str] = []
        tools = (tool("look"), tool("buy"))
        try:
            with anyio.fail_after(_LONGEST_S):
                return await model.complete(
                    ModelRequest(messages=(text_message("user", text),), tools=tools), told.append
                )
        except ModelError as error:
            return error

    model = HostedModel(resolve(choice, "llm"), sleep=at_once)
    yield lambda text: portal.call(asked, model, text)
    portal.call(model.aclose)


@examples(3)
@given(data=st.data())
def test_whatever_is_answered_ends_in_a_completion_that_fits_or_an_error(
    ask: Ask, provider: Provider, dialect: Dialect, data: st.DataObject
) -> None:
    answer = data.draw(answers(dialect))
    provider.attacks["drawn"] = lambda: iter([answer])
    found = ask("attack: drawn")
    if isinstance(found, ModelError):
        assert str(found) == storable(str(found))
        assert len(str(found)) < 1000
        assert "sk-secret" not in str(found)
    else:
        fits(found)
    honest = ask("What time is it?")
    assert isinstance(honest, Completion)
    assert honest.text == HONEST


def fits(found: Completion) -> None:
    """It can be stored, and is within all bounds."""
    assert len(found.text) <= TEXT_CHARACTERS
    assert len(found.tool_calls) <= CALLS
    assert sum(len(call.arguments) for call in found.tool_calls) <= ARGUMENTS_CHARACTERS + 2 * CALLS
    assert len({call.id for call in found.tool_calls}) == len(found.tool_calls)
    for call in found.tool_calls:
        assert 0 < len(call.id) <= ID_CHARACTERS
        assert 0 < len(call.name) <= NAME_CHARACTERS
        for text in (call.id, call.name, call.arguments):
            assert text == storable(text)
    assert found.text == storable(found.text)
    usage = found.usage
    assert isinstance(usage.tokens_in, int)
    assert isinstance(usage.tokens_out, int)
    assert 0 <= usage.tokens_in <= CALL_TOKENS
    assert 0 <= usage.tokens_out <= CALL_TOKENS
    assert 0 <= usage.cost_usd <= CALL_USD
