import contextlib
import re
from typing import Any

import anyio
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from component.link.connection.failure import ConnectionFailed
from component.link.messages.delivery import Delivery
from component.link.messages.outbox import Outbox, OutputStream


class Kernel:
    """Takes as many bytes as there is room for; remembers what each stream carried."""

    def __init__(self) -> None:
        self.streams = [b""]
        self.room = 0
        self.calls = 0
        self.breaks = False
        """Whether the connection is lost when there is no room."""

    def try_send(self, data: bytes | memoryview) -> int:
        assert len(data) > 0
        assert len(data) <= 65536
        self.calls += 1
        if self.breaks and not self.room:
            raise ConnectionFailed("lost", "gone")
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


def test_a_stanza_cut_off_is_sent_whole_on_the_next_stream() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    outbox.start(OutputStream())
    for number in range(3):
        outbox.put(stanza(number, 10))
    kernel.room = 30
    assert not outbox.flush(kernel.try_send)
    outbox.stop()
    kernel.streams.append(b"")
    outbox.start(OutputStream())
    kernel.room = 1000
    assert outbox.flush(kernel.try_send)
    assert kernel.whole(0) == [0]
    assert kernel.whole(1) == [1, 2]


def test_nothing_is_sent_while_there_is_no_stream() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    kernel.room = 1000
    outbox.put(stanza(0))
    assert not outbox.flush(kernel.try_send)
    assert kernel.calls == 0


def test_small_stanzas_leave_together() -> None:
    outbox, kernel = Outbox(1 << 20), Kernel()
    outbox.start(OutputStream())
    for number in range(100):
        outbox.put(stanza(number, 200))
    kernel.room = 1 << 20
    assert outbox.flush(kernel.try_send)
    assert kernel.calls == 1


def test_congestion_begins_above_the_limit_and_ends_below_it() -> None:
    outbox, kernel = Outbox(100), Kernel()
    outbox.start(OutputStream())
    outbox.put("x" * 100)
    assert not outbox.congested
    outbox.put("x")
    congested = outbox.congested
    kernel.room = 1
    outbox.flush(kernel.try_send)
    assert (congested, outbox.congested) == (True, False)


def test_the_oldest_go_when_too_much_waits() -> None:
    outbox, kernel = Outbox(24), Kernel()
    for number in range(6):
        outbox.put(stanza(number, 5))
    assert outbox.dropped == 2
    outbox.start(OutputStream())
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert kernel.whole(0) == [2, 3, 4, 5]


def test_what_is_half_on_a_living_stream_is_not_dropped() -> None:
    outbox, kernel = Outbox(24), Kernel()
    outbox.start(OutputStream())
    outbox.put(stanza(0, 5))
    kernel.room = 4
    outbox.flush(kernel.try_send)
    for number in range(1, 6):
        outbox.put(stanza(number, 5))
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert kernel.whole(0) == [0, 3, 4, 5]


def test_a_last_chance_to_make_room_comes_before_anything_is_dropped() -> None:
    outbox, kernel = Outbox(24), Kernel()
    kernel.room = 1000

    class Stream(OutputStream):
        def relieve(self) -> None:
            outbox.flush(kernel.try_send)

    outbox.start(Stream())
    for number in range(6):
        outbox.put(stanza(number, 5))
    assert outbox.dropped == 0
    assert kernel.whole(0) == [0, 1, 2, 3, 4]


def test_a_transport_that_fails_loses_nothing() -> None:
    class Broken:
        def try_send(self, data: bytes | memoryview) -> int:
            raise ConnectionFailed("lost", "gone")

    outbox, kernel = Outbox(1000), Kernel()
    outbox.start(OutputStream())
    outbox.put(stanza(0))
    with pytest.raises(ConnectionFailed):
        outbox.flush(Broken().try_send)
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert kernel.whole(0) == [0]


# -- recipients ----------------------------------------------------------------------------------


def entries_of(outbox: Outbox) -> list[Any]:
    """Everything that the outbox stores, also what was withdrawn."""
    lines = [entry for line in outbox._lines.values() for entry in line.entries]
    return [*outbox._batch, *lines, *outbox._arrived]


def test_a_small_answer_is_sent_before_the_large_ones_that_wait_for_others() -> None:
    outbox, kernel = Outbox(1 << 26), Kernel()
    outbox.start(OutputStream())
    for number in range(50):
        outbox.put(stanza(number, 200_000), to=f"greedy{number % 2}@a.example/desk")
    kernel.room = 10_000
    outbox.flush(kernel.try_send)
    outbox.put(stanza(50, 100), to="other@a.example/desk")
    kernel.room = 200_000
    outbox.flush(kernel.try_send)
    assert kernel.whole(0) == [0, 50]


def test_recipients_share_the_stream_by_bytes() -> None:
    outbox, kernel = Outbox(1 << 26), Kernel()
    outbox.start(OutputStream())
    for number in range(100):
        outbox.put(stanza(number, 20_000), to="large@a.example")
    for number in range(100, 2_100):
        outbox.put(stanza(number, 1_000), to="small@a.example")
    kernel.room = 1_000_000
    outbox.flush(kernel.try_send)
    sent = kernel.whole(0)
    assert 0.4 < sum(number < 100 for number in sent) * 20_000 / 1_000_000 < 0.6


def test_stanzas_for_the_resources_of_one_recipient_keep_their_order() -> None:
    outbox, kernel = Outbox(1 << 26), Kernel()
    outbox.start(OutputStream())
    for number in range(20):
        outbox.put(stanza(number, 70_000 // (1 + number)), to=f"a@a.example/{number % 3}")
        kernel.room = 20_000
        outbox.flush(kernel.try_send)
    kernel.room = 1 << 26
    outbox.flush(kernel.try_send)
    assert kernel.whole(0) == list(range(20))


def test_what_is_dropped_is_that_of_the_recipient_with_the_most() -> None:
    outbox, kernel = Outbox(24), Kernel()
    outbox.put(stanza(0, 5), to="patient@a.example")
    for number in range(1, 6):
        outbox.put(stanza(number, 5), to="greedy@a.example")
    outbox.start(OutputStream())
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert sorted(kernel.whole(0)) == [0, 3, 4, 5]


def test_only_those_for_whom_much_waits_are_refused() -> None:
    outbox = Outbox(100)
    outbox.put("x" * 90, to="patient@a.example/1")
    refused = [outbox.refuses("greedy@a.example")]
    for _ in range(3):
        outbox.put("x" * 30, to="greedy@a.example/1")
        refused.append(outbox.refuses("greedy@a.example"))
    assert refused == [False, False, True, True]
    assert not outbox.refuses("new@a.example")
    outbox.put("x" * 20, to="new@a.example")
    assert outbox.refuses("newer@a.example"), "nothing is free"


def test_what_a_stream_with_tls_may_have_encrypted_cannot_be_withdrawn() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    deliveries = filled(outbox, 3)
    outbox.start(OutputStream())
    outbox.flush(kernel.try_send)  # all three are offered, and none is accepted
    assert not deliveries[1].withdraw()
    late = Delivery()
    outbox.put(stanza(3, 5), late)
    assert late.withdraw()
    outbox.stop()
    assert deliveries[1].withdraw()


# -- deliveries ----------------------------------------------------------------------------------


def filled(outbox: Outbox, count: int, **how: bool) -> list[Delivery]:
    """Put so many stanzas of 12 bytes, each with a delivery."""
    deliveries = [Delivery(**how) for _ in range(count)]
    for number, delivery in enumerate(deliveries):
        outbox.put(stanza(number, 5), delivery)
    return deliveries


def states(deliveries: list[Delivery]) -> str:
    """The first letter of each state."""
    return "".join(each.state[0] for each in deliveries)


def test_a_stanza_is_written_when_the_kernel_has_all_of_it() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    deliveries = filled(outbox, 3)
    outbox.start(OutputStream())
    for room, expected in ((11, "qqq"), (1, "wqq"), (23, "wwq"), (1, "www")):
        kernel.room = room
        outbox.flush(kernel.try_send)
        assert states(deliveries) == expected


def test_as_much_is_dropped_as_is_too_much_behind_what_must_arrive() -> None:
    outbox = Outbox(100)
    outbox.put(stanza(0, 10), Delivery(must_arrive=True))
    number = 1
    while outbox.waiting_bytes + len(stanza(number, 10)) <= outbox._bound_bytes:
        outbox.put(stanza(number, 10))
        number += 1
    assert outbox.dropped == 0
    outbox.put(stanza(number, 80))
    assert not outbox.over_bound
    assert outbox.dropped > 1


def test_what_must_arrive_is_dropped_last_and_keeps_its_place() -> None:
    outbox, kernel = Outbox(24), Kernel()
    must = Delivery(must_arrive=True)
    outbox.put(stanza(0, 5))
    outbox.put(stanza(1, 5), must)
    for number in range(2, 8):
        outbox.put(stanza(number, 5))
    assert (outbox.dropped, must.state) == (3, "queued")
    outbox.start(OutputStream())
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert kernel.whole(0) == [1, 4, 5, 6, 7]
    assert must.state == "written"


def test_what_must_arrive_is_bounded_too() -> None:
    outbox = Outbox(24)
    deliveries = filled(outbox, 10, must_arrive=True)
    assert outbox.waiting_bytes <= 3 * 24
    assert outbox.dropped == states(deliveries).count("d") == 4


def test_what_is_withdrawn_does_not_leave() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    deliveries = filled(outbox, 4)
    assert deliveries[1].withdraw()
    assert not deliveries[1].withdraw()
    outbox.start(OutputStream())
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert [each.state for each in deliveries] == ["written", "withdrawn", "written", "written"]
    assert kernel.whole(0) == [0, 2, 3]
    assert not deliveries[0].withdraw()


def test_what_has_begun_to_leave_cannot_be_withdrawn_until_its_stream_is_gone() -> None:
    outbox, kernel = Outbox(1000), Kernel()
    (delivery,) = filled(outbox, 1)
    outbox.start(OutputStream())
    kernel.room = 4
    outbox.flush(kernel.try_send)
    assert not delivery.withdraw()
    assert delivery.state == "queued"
    outbox.stop()
    assert delivery.withdraw()
    outbox.start(OutputStream())
    kernel.room = 1000
    assert outbox.flush(kernel.try_send)
    assert (outbox.waiting_bytes, kernel.whole(0)) == (0, [])


def test_what_is_withdrawn_takes_no_memory() -> None:
    outbox = Outbox(100)
    for _ in range(1000):
        delivery = Delivery()
        outbox.put(stanza(0, 5), delivery)
        delivery.withdraw()
    assert (outbox.waiting_bytes, outbox.dropped, outbox.taken) == (0, 0, 1000)
    assert len(entries_of(outbox)) <= 1


def test_a_delivery_of_several_stanzas_is_as_good_as_the_worst_of_them() -> None:
    outbox, kernel, delivery = Outbox(24), Kernel(), Delivery()
    for number in range(5):
        outbox.put(stanza(number, 5), delivery)
    assert (outbox.dropped, delivery.state) == (1, "queued")
    outbox.start(OutputStream())
    kernel.room = 1000
    outbox.flush(kernel.try_send)
    assert delivery.state == "dropped"


@pytest.mark.anyio
async def test_who_waits_for_a_delivery_hears_what_became_of_it() -> None:
    outbox, kernel = Outbox(24), Kernel()
    heard: dict[int, bool] = {}

    async def listen(number: int, delivery: Delivery) -> None:
        heard[number] = await delivery.settled()

    async with anyio.create_task_group() as group:
        deliveries = filled(outbox, 5)
        for number, delivery in enumerate(deliveries):
            group.start_soon(listen, number, delivery)
        await anyio.wait_all_tasks_blocked()
        assert heard == {0: False}
        deliveries[1].withdraw()
        outbox.start(OutputStream())
        kernel.room = 12
        outbox.flush(kernel.try_send)
        await anyio.wait_all_tasks_blocked()
        assert heard == {0: False, 1: False, 2: True}
        kernel.room = 1000
        outbox.flush(kernel.try_send)
    assert heard == {0: False, 1: False, 2: True, 3: True, 4: True}


@pytest.mark.anyio
async def test_there_is_room_when_there_is_a_stream_and_little_waits() -> None:
    outbox, kernel, ready = Outbox(24), Kernel(), []

    async def listen() -> None:
        await outbox.ready()
        ready.append(True)

    filled(outbox, 3)
    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        outbox.start(OutputStream())
        await anyio.wait_all_tasks_blocked()
        assert not ready, "too much waits"
        kernel.room = 12
        outbox.flush(kernel.try_send)
    assert ready
    await outbox.ready()


class Item:
    """A stanza that was put, and what is expected of it."""

    def __init__(self, number: int, to: str, xml: str, delivery: Delivery | None) -> None:
        self.number = number
        self.to = to
        self.size = len(xml)
        self.delivery = delivery
        self.withdrawn = False

    @property
    def must_arrive(self) -> bool:
        return self.delivery is not None and self.delivery.must_arrive


class OutboxMachine(RuleBasedStateMachine):
    """An outbox whose streams may break at any byte, and whose senders may change their minds."""

    @initialize(limit=st.one_of(st.integers(20, 200), st.just(1 << 20)))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.outbox, self.kernel = Outbox(limit), Kernel()
        self.items: list[Item] = []

    @rule(
        size=st.one_of(st.integers(0, 30), st.integers(60000, 70000)),
        how=st.sampled_from(["untracked", "may be dropped", "must arrive"]),
        to=st.sampled_from(["", "a@a.example/1", "a@a.example/2", "b@a.example", "c@a.example"]),
    )
    def put(self, size: int, how: str, to: str) -> None:
        number = len(self.items)
        delivery = None if how == "untracked" else Delivery(must_arrive=how == "must arrive")
        item = Item(number, to.partition("/")[0], stanza(number, size), delivery)
        self.items.append(item)
        before = self.important()
        self.outbox.put(stanza(number, size), delivery, to)
        if sum(each.size for each in before) <= self.limit:
            assert all(each.delivery and each.delivery.state == "queued" for each in before)

    @rule(room=st.one_of(st.integers(0, 80), st.integers(0, 200000)))
    def flush(self, room: int) -> None:
        self.kernel.room = room
        self.outbox.flush(self.kernel.try_send)

    @rule(room=st.integers(0, 200), starts=st.booleans())
    def lose_the_stream(self, room: int, starts: bool) -> None:
        self.kernel.room = room
        self.kernel.breaks = True
        with contextlib.suppress(ConnectionFailed):
            self.outbox.flush(self.kernel.try_send)
        self.kernel.breaks = False
        self.outbox.stop()
        self.kernel.streams.append(b"")
        if starts:
            self.outbox.start(OutputStream())

    @rule()
    def connect(self) -> None:
        if self.outbox.stopped:
            self.outbox.start(OutputStream())

    @rule(which=st.integers(0, 1 << 30))
    def withdraw(self, which: int) -> None:
        if not self.items:
            return
        item = self.items[which % len(self.items)]
        if item.delivery is not None:
            waited = item.delivery.state == "queued"
            item.withdrawn = item.delivery.withdraw() or item.withdrawn
            assert waited or item.delivery.state != "queued"

    def important(self) -> list[Item]:
        return [
            each
            for each in self.items
            if each.must_arrive and each.delivery and each.delivery.state == "queued"
        ]

    def whole(self) -> list[int]:
        streams = range(len(self.kernel.streams))
        return [number for stream in streams for number in self.kernel.whole(stream)]

    @invariant()
    def each_stanza_is_sent_whole_once_and_in_the_order_of_its_recipient(self) -> None:
        sent = self.whole()
        assert len(sent) == len(set(sent))
        for to in {item.to for item in self.items}:
            theirs = [number for number in sent if self.items[number].to == to]
            assert theirs == sorted(theirs)

    @invariant()
    def deliveries_say_what_has_happened(self) -> None:
        sent = set(self.whole())
        for item in self.items:
            if item.delivery is not None:
                assert (item.delivery.state == "written") == (item.number in sent)
                assert (item.delivery.state == "withdrawn") == item.withdrawn

    @invariant()
    def memory_is_bounded(self) -> None:
        # At most one stanza stays above the bound: one of which a living stream has a part.
        assert self.outbox.waiting_bytes <= 3 * self.limit + 70020
        assert self.outbox.taken == len(self.items)
        entries = entries_of(self.outbox)
        waiting = [each for each in entries if each.data]
        assert len(entries) <= 2 * len(waiting) + 1
        sizes = sum(len(each.data) for each in waiting)
        assert sizes - self.outbox._offset == self.outbox.waiting_bytes
        spared = sum(len(each.data) for each in waiting if each.is_spared)
        assert spared == self.outbox._spared_bytes
        assert (len(entries), len(entries) - len(waiting)) == (
            self.outbox._count,
            self.outbox._withdrawn,
        )
        for line in self.outbox._lines.values():
            assert line.entries
            assert line.bytes == sum(len(each.data) for each in line.entries)
            kept = [each.is_spared for each in line.entries]
            assert not any(kept[line.kept :])
        assert len(self.outbox._heap) <= 2 * len(self.outbox._lines) + 5

    def teardown(self) -> None:
        if not hasattr(self, "outbox"):
            return
        if self.outbox.stopped:
            self.outbox.start(OutputStream())
        self.kernel.room = 1 << 40
        assert self.outbox.flush(self.kernel.try_send)
        assert (self.outbox.waiting_bytes, self.outbox._tracked) == (0, 0)
        gone = self.outbox.dropped + sum(each.withdrawn for each in self.items)
        assert len(self.whole()) == len(self.items) - gone
        for item in self.items:
            assert item.delivery is None or item.delivery.state != "queued"


TestOutboxMachine = OutboxMachine.TestCase
