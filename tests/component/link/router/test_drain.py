"""The end of the service: what is under way is answered, and nothing new is begun."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from component.link.router.table import ReplyPayload, Request
from tests.component.link.router.wire import Bench, Do, condition, do, error_of, request, until
from xep.fluux_agent.errors import Retry

pytestmark = pytest.mark.anyio


class Work:
    """Requests that end when they are let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.open = anyio.Event()

    async def __call__(self, request: Request[Do]) -> ReplyPayload:
        self.begun += 1
        await self.open.wait()
        return None


async def test_draining_with_nothing_under_way_ends_at_once() -> None:
    bench = Bench([do(Work())])
    async with bench.running():
        assert await bench.router.drain(60) == 0


async def test_draining_waits_for_what_is_under_way_and_takes_on_nothing_new() -> None:
    work = Work()
    bench = Bench([do(work)])
    left: list[int] = []

    async def drain() -> None:
        left.append(await bench.router.drain(60))

    async with bench.running(), anyio.create_task_group() as tasks:
        bench.receive(request(id_="1"), request(id_="2"))
        tasks.start_soon(drain)
        await until(lambda: bench.router._work.draining)
        bench.receive(request(id_="3"))
        (refused,) = bench.replies
        assert refused.get("id") == "3"
        assert error_of(refused).condition == "resource-constraint"
        assert error_of(refused).application == (Retry(after=bench.options.retry_after_s),)
        assert left == []
        work.open.set()
    assert left == [0]
    assert work.begun == 2
    assert {r.get("id") for r in bench.replies if r.get("type") == "result"} == {"1", "2"}


@given(
    many=st.integers(0, 60),
    checkpoints=st.integers(0, 3),
)
async def test_what_does_not_end_is_cancelled_and_answered(many: int, checkpoints: int) -> None:
    work = Work()
    bench = Bench([do(work)])
    async with bench.running():
        bench.receive(*(request(id_=str(n)) for n in range(many)))
        # Cancelled before they have begun, or while they run.
        for _ in range(checkpoints):
            await checkpoint()
        assert await bench.router.drain(0) == many
    assert sorted(int(r.get("id") or "") for r in bench.replies) == list(range(many))
    for reply in bench.replies:
        assert condition(reply) == "recipient-unavailable"
        assert error_of(reply).type == "wait"


async def test_replies_of_what_was_under_way_are_flushed() -> None:
    bench = Bench([do(Work())])
    async with bench.running():
        bench.receive(request())
        await bench.router.drain(0)
    assert bench.output.flushed[-1] == 1


async def test_who_cancels_the_router_has_everything_answered() -> None:
    bench = Bench([do(Work())])
    async with bench.running():
        bench.receive(*(request(id_=str(n)) for n in range(3)))
    assert [condition(reply) for reply in bench.replies] == ["recipient-unavailable"] * 3
    assert await bench.router.drain(1) == 0
