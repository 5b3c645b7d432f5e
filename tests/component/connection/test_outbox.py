import re

import anyio
import pytest
from anyio.abc import TaskStatus
from hypothesis import given
from hypothesis import strategies as st

from component.connection.failure import ConnectionFailed
from component.connection.outbox import Outbox


class Kernel:
    """Takes as many bytes as there is room for; remembers what each stream carried."""

    def __init__(self) -> None:
        self.streams = [b""]
        self.room = 0
        self.calls = 0

    def try_send(self, data: bytes | memoryview) -> int:
        assert len(data) > 0
        assert len(data) <= 65536
        self.calls += 1
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.streams[-1] += taken
        return len(taken)

    def whole(self, stream: int) -> list[int]:
        """Numbers of the stanzas that a stream carried whole; beside them it holds nothing but
        the beginning of one that was cut off at its end.
        """
        sent = self.streams[stream]
        found = list(re.finditer(rb"<(\d+) (\d+) (.)\3*>", sent))
        numbers = [int(match.group(1)) for match in found]
        sizes = [int(match.group(2)) for match in found]
        whole = "".join(map(stanza, numbers, sizes)).encode()
        assert sent.startswith(whole)
        assert b">" not in sent[len(whole) :]
        return numbers


def stanza(number: int, size: int = 0) -> str:
    return f"<{number} {size} {chr(ord('a') + number % 26) * (size + 1)}>"


actions = st.one_of(
    st.tuples(st.just("put"), st.one_of(st.integers(0, 30), st.integers(60000, 70000))),
    st.tuples(st.just("flush"), st.one_of(st.integers(0, 80), st.integers(0, 200000))),
    st.tuples(st.just("reconnect"), st.booleans()),
)


@given(
    actions=st.lists(actions, max_size=60),
    limit=st.one_of(st.integers(20, 200), st.just(1 << 20)),
)
def test_each_stanza_is_sent_whole_in_order_and_none_wholly_sent_is_sent_again(
    actions: list[tuple[str, int]], limit: int
) -> None:
    outbox, kernel, put = Outbox(limit), Kernel(), 0
    outbox.start()
    for action, value in actions:
        if action == "put":
            outbox.put(stanza(put, value))
            put += 1
        elif action == "flush":
            kernel.room = value
            outbox.flush(kernel)
        else:
            outbox.stop()
            if value:  # something is said during the outage
                outbox.put(stanza(put))
                put += 1
            kernel.streams.append(b"")
            outbox.start()
        # At most one stanza stays above the bound: one of which a living stream has a part.
        assert outbox.waiting_bytes <= 2 * limit + 70020
    kernel.room = 1 << 40
    assert outbox.flush(kernel)
    assert outbox.waiting_bytes == 0
    sent = [number for stream in range(len(kernel.streams)) for number in kernel.whole(stream)]
    assert sent == sorted(set(sent))
    assert len(sent) == put - outbox.dropped
    if put and not outbox.dropped:
        assert sent == list(range(put))


def test_a_stanza_cut_off_is_sent_whole_on_the_next_stream() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    outbox.start()
    for number in range(3):
        outbox.put(stanza(number, 10))
    kernel.room = 30
    assert not outbox.flush(kernel)
    outbox.stop()
    kernel.streams.append(b"")
    outbox.start()
    kernel.room = 1000
    assert outbox.flush(kernel)
    assert kernel.whole(0) == [0]
    assert kernel.whole(1) == [1, 2]


def test_nothing_is_sent_while_there_is_no_stream() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    kernel.room = 1000
    outbox.put(stanza(0))
    assert not outbox.flush(kernel)
    assert kernel.calls == 0


def test_small_stanzas_leave_together() -> None:
    outbox, kernel = Outbox(1 << 20), Kernel()
    outbox.start()
    for number in range(100):
        outbox.put(stanza(number, 200))
    kernel.room = 1 << 20
    assert outbox.flush(kernel)
    assert kernel.calls == 1


def test_congestion_begins_above_the_limit_and_ends_below_it() -> None:
    outbox, kernel = Outbox(100), Kernel()
    outbox.start()
    outbox.put("x" * 100)
    assert not outbox.congested
    outbox.put("x")
    congested = outbox.congested
    kernel.room = 1
    outbox.flush(kernel)
    assert (congested, outbox.congested) == (True, False)


def test_the_oldest_go_when_too_much_waits() -> None:
    outbox, kernel = Outbox(24), Kernel()
    for number in range(6):
        outbox.put(stanza(number, 5))
    assert outbox.dropped == 2
    outbox.start()
    kernel.room = 1000
    outbox.flush(kernel)
    assert kernel.whole(0) == [2, 3, 4, 5]


def test_what_is_half_on_a_living_stream_is_not_dropped() -> None:
    outbox, kernel = Outbox(24), Kernel()
    outbox.start()
    outbox.put(stanza(0, 5))
    kernel.room = 4
    outbox.flush(kernel)
    for number in range(1, 6):
        outbox.put(stanza(number, 5))
    kernel.room = 1000
    outbox.flush(kernel)
    assert kernel.whole(0) == [0, 3, 4, 5]


def test_a_last_chance_to_make_room_comes_before_anything_is_dropped() -> None:
    outbox, kernel = Outbox(24), Kernel()
    outbox.start()
    kernel.room = 1000

    def make_room() -> None:
        outbox.flush(kernel)

    outbox.on_full = make_room
    for number in range(6):
        outbox.put(stanza(number, 5))
    assert outbox.dropped == 0
    assert kernel.whole(0) == [0, 1, 2, 3, 4]


def test_a_transport_that_fails_loses_nothing() -> None:
    class Broken:
        def try_send(self, data: bytes | memoryview) -> int:
            raise ConnectionFailed("lost", "gone")

    outbox, kernel = Outbox(1000), Kernel()
    outbox.start()
    outbox.put(stanza(0))
    with pytest.raises(ConnectionFailed):
        outbox.flush(Broken())
    kernel.room = 1000
    outbox.flush(kernel)
    assert kernel.whole(0) == [0]


@pytest.mark.anyio
async def test_who_waits_hears_when_all_that_was_put_before_is_taken() -> None:
    outbox, kernel, heard = Outbox(1000), Kernel(), []
    await outbox.flushed()  # nothing was put

    async def listen(name: str, started: TaskStatus[None]) -> None:
        started.started()
        await outbox.flushed()
        heard.append(name)

    outbox.start()
    async with anyio.create_task_group() as group:
        outbox.put(stanza(0, 10))
        await group.start(lambda task_status: listen("first", task_status))
        await anyio.wait_all_tasks_blocked()
        outbox.put(stanza(1, 10))
        await group.start(lambda task_status: listen("second", task_status))
        await anyio.wait_all_tasks_blocked()
        kernel.room = len(stanza(0, 10)) - 1
        outbox.flush(kernel)
        await anyio.wait_all_tasks_blocked()
        assert outbox.waits
        assert heard == []
        kernel.room = 5
        outbox.flush(kernel)
        await anyio.wait_all_tasks_blocked()
        assert heard == ["first"]
        kernel.room = 1000
        outbox.flush(kernel)
        await anyio.wait_all_tasks_blocked()
        assert not outbox.waits
        assert heard == ["first", "second"]


@pytest.mark.anyio
async def test_what_is_dropped_is_not_waited_for() -> None:
    outbox = Outbox(10)
    async with anyio.create_task_group() as group:
        outbox.put("x" * 15)
        group.start_soon(outbox.flushed)
        await anyio.wait_all_tasks_blocked()
        outbox.put("y" * 15)
    assert outbox.dropped == 1
