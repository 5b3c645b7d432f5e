"""The breaker as a state machine, and around a model."""

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from component.breaker import Breaker
from component.models.building import Guarded
from component.models.messages import text_message
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
)
from tests.component.models.scripted import Scripted

REQUEST = ModelRequest(messages=(text_message("user", "Hi"),))
MOST, PAUSE_S = 3, 30.0


class BreakerMachine(RuleBasedStateMachine):
    """Compared with a simple model: closed below three failures in a row, then one probe at
    a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(MOST, PAUSE_S)
        self.now = 0.0
        self.in_a_row = 0
        self.open_until: float | None = None
        self.inside = 0
        self.probe = False

    @rule(seconds=st.sampled_from([1, 10, 29, 30, 31, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def someone_enters(self) -> None:
        left = self.breaker.enter(self.now)
        if self.open_until is None:
            assert left is None
        elif self.now < self.open_until:
            assert left == self.open_until - self.now
        else:
            assert (left is None) == (not self.probe)
            self.probe = True
        if left is None:
            self.inside += 1

    @precondition(lambda self: self.inside)
    @rule()
    def it_answers(self) -> None:
        self.breaker.succeeded()
        self.inside -= 1
        self.in_a_row, self.open_until, self.probe = 0, None, False

    @precondition(lambda self: self.inside)
    @rule(after=st.sampled_from([None, 0.0, 5.0, 50.0, 1e9]))
    def it_fails(self, after: float | None) -> None:
        self.breaker.failed(self.now, after)
        self.inside -= 1
        self.in_a_row += 1
        was_open = self.open_until is not None
        pause = min(after or 0.0, 300)
        if was_open or self.in_a_row >= MOST:
            pause = max(pause, PAUSE_S)
        if pause:
            self.open_until = max(self.open_until or 0.0, self.now + pause)
        self.probe = False

    @precondition(lambda self: self.inside)
    @rule()
    def it_is_given_up(self) -> None:
        self.breaker.abandoned()
        self.inside -= 1
        self.probe = False

    @invariant()
    def the_state_says_so(self) -> None:
        assert (self.breaker.state == "closed") == (self.open_until is None)
        if self.probe:
            assert self.breaker.state == "half-open"


BreakerMachine.TestCase.settings = settings(stateful_step_count=20)
TestBreaker = BreakerMachine.TestCase


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.anyio
async def test_a_failing_model_is_not_called_for_a_while_and_then_retried() -> None:
    away = ModelUnavailableError("it is away")
    inner = Scripted(away, away, Completion.of(text="Hi"))
    clock = Clock()
    model = Guarded(inner, Breaker(2, 30), clock)
    for _ in range(2):
        with pytest.raises(ModelUnavailableError, match="away"):
            await model.complete(REQUEST)
    clock.now = 10
    with pytest.raises(ModelUnavailableError, match="is not used for 20 more") as left:
        await model.complete(REQUEST)
    assert left.value.retry_after_s == 20
    assert len(inner.asked) == 2
    clock.now = 30
    assert (await model.complete(REQUEST)).text == "Hi"


@pytest.mark.anyio
async def test_it_is_not_called_for_the_time_that_the_provider_reports() -> None:
    inner = Scripted(ModelUnavailableError("busy", 300), Completion.of(text="Hi"))
    clock = Clock()
    model = Guarded(inner, Breaker(5, 30), clock)
    with pytest.raises(ModelUnavailableError):
        await model.complete(REQUEST)
    clock.now = 299
    with pytest.raises(ModelUnavailableError, match="is not used"):
        await model.complete(REQUEST)
    clock.now = 300
    assert (await model.complete(REQUEST)).text == "Hi"


@pytest.mark.anyio
@pytest.mark.parametrize("error", [ContextOverflowError("long"), ModelRefusedError("no")])
async def test_errors_of_the_caller_are_not_failures(error: Exception) -> None:
    model = Guarded(Scripted(*[error] * 5), Breaker(1, 30), Clock())  # type: ignore[list-item]
    for _ in range(5):
        with pytest.raises(type(error)):
            await model.complete(REQUEST)


@pytest.mark.anyio
async def test_after_a_cancelled_probe_the_next_call_is_one() -> None:
    class Slow(Scripted):
        async def complete(self, request: ModelRequest, on_text: object = None) -> Completion:
            if len(self.asked) == 1:
                self.asked.append(request)
                await anyio.sleep_forever()
            return await super().complete(request)

    clock = Clock()
    model = Guarded(
        Slow(ModelUnavailableError("away"), Completion.of(text="Hi")), Breaker(1, 30), clock
    )
    with pytest.raises(ModelUnavailableError):
        await model.complete(REQUEST)
    clock.now = 30
    async with anyio.create_task_group() as group:
        group.start_soon(model.complete, REQUEST)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ModelUnavailableError, match="is not used"):
            await model.complete(REQUEST)
        group.cancel_scope.cancel()
    assert (await model.complete(REQUEST)).text == "Hi"
