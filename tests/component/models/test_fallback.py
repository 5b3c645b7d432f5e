"""A chain of models: which one is asked, and which error is raised."""

from typing import Any

import pytest

from component.models.building import Fallback
from component.models.messages import text_message
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
    Void,
)
from tests.component.models.scripted import Scripted

pytestmark = pytest.mark.anyio
REQUEST = ModelRequest(messages=(text_message("user", "Hi"),))
AWAY = ModelUnavailableError("away", 30)
NO = ModelRefusedError("no")
LONG = ContextOverflowError("long")
HI = Completion.of(text="Hi", model="second")


@pytest.mark.parametrize("error", [AWAY, NO])
async def test_the_next_one_is_asked(error: ModelError) -> None:
    first, second = Scripted(error), Scripted(HI, name="second")
    assert await Fallback([first, second]).complete(REQUEST) == HI
    assert first.asked == second.asked == [REQUEST]


async def test_no_other_model_is_asked_if_the_first_answers() -> None:
    second = Scripted(HI)
    await Fallback([Scripted(HI), second]).complete(REQUEST)
    assert second.asked == []


async def test_a_longer_question_goes_to_a_larger_context_only() -> None:
    models = [
        Scripted(error, context_tokens=size)
        for error, size in ((LONG, 100), (HI, 100), (LONG, 200), (HI, 150), (HI, 300))
    ]
    assert await Fallback(models).complete(REQUEST) == HI
    assert [len(model.asked) for model in models] == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([LONG, AWAY], LONG),
        ([AWAY, LONG], LONG),
        ([NO, AWAY], AWAY),
        ([NO, NO], NO),
    ],
)
async def test_if_all_fail_the_most_useful_error_is_raised(
    errors: list[ModelError], told: ModelError
) -> None:
    models: list[Any] = [Scripted(e, context_tokens=100 + i) for i, e in enumerate(errors)]
    with pytest.raises(type(told)):
        await Fallback(models).complete(REQUEST)


async def test_the_earliest_retry_time_is_reported() -> None:
    models = [Scripted(ModelUnavailableError("a", 60)), Scripted(ModelUnavailableError("b", 20))]
    with pytest.raises(ModelUnavailableError, match="a; b") as error:
        await Fallback(models).complete(REQUEST)
    assert error.value.retry_after_s == 20


class Broken(Scripted):
    async def complete(self, request: ModelRequest, on_text: Any = None) -> Completion:
        if on_text:
            on_text("It is")
        raise AWAY


async def test_once_a_person_has_seen_a_piece_no_other_model_is_asked() -> None:
    second = Scripted(HI)
    with pytest.raises(ModelUnavailableError):
        await Fallback([Broken(), second]).complete(REQUEST, lambda _piece: True)
    assert second.asked == []


async def test_pieces_that_nobody_has_seen_are_void_when_the_next_model_answers() -> None:
    told: list[str | Void] = []
    assert await Fallback([Broken(), Scripted(HI)]).complete(REQUEST, told.append) == HI
    assert told == ["It is", Void.BROKEN_OFF, HI.text]
    assert await Fallback([Broken(), Scripted(HI)]).complete(REQUEST) == HI


async def test_it_has_the_attributes_of_the_first() -> None:
    chain = Fallback([Scripted(name="one", context_tokens=5), Scripted(name="two")])
    assert (chain.name, chain.context_tokens, chain.tokens("four")) == ("one", 5, 4)


async def test_the_price_is_that_of_the_most_expensive_model() -> None:
    models = [Scripted(), Scripted(), Scripted()]
    for model, per_in, per_out in zip(models, (0.0, 3.0, 1.0), (2.0, 0.0, 4.0), strict=True):
        model.usd_per_token_in, model.usd_per_token_out = per_in, per_out
    chain = Fallback(models)
    assert (chain.usd_per_token_in, chain.usd_per_token_out) == (3.0, 4.0)
