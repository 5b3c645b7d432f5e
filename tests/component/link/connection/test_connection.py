import anyio
import pytest
from structlog.testing import capture_logs

from component.link.connection.live import _MOST_WAITING
from tests.component.link.connection.acceptor import DOMAIN, SECRET, Acceptor, Link
from tests.component.link.connection.running import Running, iq, running, settings_for
from xep.ping import Ping
from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped, StreamClosed

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


@pytest.fixture(autouse=True)
def _probes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "loops_back", False)


async def test_stanzas_go_both_ways() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            it.recorder.on_received = lambda _: it.outbox.put(iq("answer"))
            link = await server.component()
            await link.send(iq("question"))
            assert (await link.stanza()).id == "answer"
            assert it.recorder.ids() == ["question"]
            it.outbox.put(iq("later"))
            assert (await link.stanza()).id == "later"
            assert it.connection.established


async def test_what_one_read_brings_is_handed_over_at_once_and_answered_in_one_piece() -> None:
    with Acceptor() as server:
        async with running(server) as it:

            def answer(events: object) -> None:
                for number in range(50):
                    it.outbox.put(iq(f"answer-{number}"))

            it.recorder.on_received = answer
            link = await server.component()
            await link.send("".join(iq(str(number)) for number in range(50)))
            await it.recorder.until(lambda: len(it.recorder.events) == 50)
            assert it.recorder.batches == [50]
            ids = [stanza.id for stanza in await link.stanzas(50)]
            assert ids == [f"answer-{n}" for n in range(50)]


async def test_what_is_left_for_later_is_asked_for_again_with_what_came_meanwhile() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            # Something is left until the second stanza is there.
            it.recorder.on_received = lambda _: 1 if it.recorder.ids() == ["first"] else 0
            link = await server.component()
            await link.send(iq("first"))
            await it.recorder.until(lambda: len(it.recorder.batches) > 20)
            assert set(it.recorder.batches) == {0, 1}
            await link.send(iq("second"))
            await it.recorder.until(lambda: it.recorder.ids() == ["first", "second"])
            # Nothing is left: it is not asked again before something comes.
            calls = len(it.recorder.batches)
            await link.send(iq("third"))
            await it.recorder.until(lambda: it.recorder.ids() == ["first", "second", "third"])
            assert len(it.recorder.batches) == calls + 1


async def test_while_something_is_left_answers_leave_and_others_run() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            left = iter([1] * 10_000)
            it.recorder.on_received = lambda _: next(left, 0)
            link = await server.component()
            await link.send(iq("first"))
            await it.recorder.until(lambda: it.recorder.ids() == ["first"])
            it.outbox.put(iq("answer"))
            assert (await link.stanza()).id == "answer"
            assert next(left, None) is not None, "it was sent only when nothing was left"
            left = iter([])


async def test_nothing_is_read_while_much_is_left() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            left = iter(
                [_MOST_WAITING] * 10_000
            )  # an end, so that a failure does not go on for ever
            it.recorder.on_received = lambda _: next(left, 0)
            link = await server.component()
            await link.send(iq("first"))
            await it.recorder.until(lambda: it.recorder.ids() == ["first"])
            await link.send(iq("second"))
            calls = len(it.recorder.batches)
            await it.recorder.until(lambda: len(it.recorder.batches) > calls + 50)
            assert it.recorder.ids() == ["first"]
            left = iter([])
            await it.recorder.until(lambda: it.recorder.ids() == ["first", "second"])


@pytest.mark.parametrize("polite", [True, False])
async def test_what_is_left_is_handled_before_the_stream_is_gone(polite: bool) -> None:
    with Acceptor() as server:
        async with running(server) as it:
            left = iter([3, 2, 1])
            it.recorder.on_received = lambda _: next(left, 0)
            link = await server.component()
            await link.send(iq("last").encode() + (link.stream.close() if polite else b""))
            link.close()
            await it.recorder.until(lambda: len(it.recorder.downs) == 1)
            assert it.recorder.batches == [1, 0, 0, 0]


async def test_the_receiver_may_flush_before_it_returns() -> None:
    with Acceptor() as server:
        async with running(server) as it:

            def answer(events: object) -> None:
                it.outbox.put(iq("early"))
                it.outbox.send_now()
                assert it.outbox.waiting_bytes == 0

            it.recorder.on_received = answer
            link = await server.component()
            await link.send(iq("question"))
            assert (await link.stanza()).id == "early"


async def test_stanzas_right_behind_the_acceptance_are_not_lost() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.accept()
            await link.event()
            await link.send(link.stream.open("id", SECRET))
            await link.event()
            await link.send(link.stream.accept() + iq("first").encode())
            await it.recorder.until(lambda: it.recorder.ids() == ["first"])
            assert it.recorder.ups == 1


async def test_a_stanza_over_a_limit_is_reported_and_the_stream_goes_on() -> None:
    with Acceptor() as server:
        async with running(server, max_stanza_bytes=20_000) as it:
            link = await server.component()
            await link.send(iq("big", 30_000) + iq("small"))
            await it.recorder.until(lambda: len(it.recorder.events) == 2)
            skipped, received = it.recorder.events
            assert isinstance(skipped, StanzaSkipped)
            assert skipped.id == "big"
            assert isinstance(received, StanzaReceived)


async def test_what_the_receiver_sends_on_connecting_comes_behind_what_waited() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            it.outbox.put(iq("waited"))
            it.recorder.on_connected = lambda: it.outbox.put(iq("presence"))
            link = await server.component()
            assert [s.id for s in await link.stanzas(2)] == ["waited", "presence"]


async def test_a_lost_connection_is_made_anew() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            for round_ in range(1, 4):
                link = await server.component()
                await it.recorder.until(lambda n=round_: it.recorder.ups == n)
                if round_ == 2:
                    link.reset()
                else:
                    link.close()
                await it.recorder.until(lambda n=round_: len(it.recorder.downs) == n)
                assert not it.connection.established
            assert "closed the connection" in it.recorder.downs[0]
            assert "broke (Connection reset by peer)" in it.recorder.downs[1]


async def test_each_reason_is_logged_once_and_so_is_coming_back() -> None:
    with Acceptor() as server, capture_logs() as logs:
        server.deafen()
        async with running(server) as it:
            await it.recorder.until(lambda: it.recorder.pauses == 3)
            server.listen()
            for _ in range(2):
                link = await server.accept()
                await link.event()
                await link.refuse("host-unknown")
            await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
        told = [log for log in logs if log["log_level"] != "debug"]
        assert [(log["event"], log.get("code")) for log in told] == [
            ("not connected", "refused"),
            ("not connected", "host-unknown"),
            ("connected", None),
        ]
        repeated = [log["attempts"] for log in logs if log["log_level"] == "debug"]
        assert repeated[:2] == [2, 3]
        assert told[-1]["attempts"] == it.recorder.pauses
        assert told[-1]["down_s"] >= 0
        assert SECRET not in repr(logs)


@pytest.mark.parametrize(
    ("settled_s", "retries"), [(0.0, [0.002] * 3), (1000.0, [0.002, 0.004, 0.008])]
)
async def test_only_a_stream_that_lasted_starts_the_pauses_again(
    settled_s: float, retries: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.link.connection.connection._SETTLED_S", settled_s)
    with Acceptor() as server, capture_logs() as logs:
        async with running(server, reconnect_max_s=0.008) as it:
            it.connection._back_off._draw = lambda: 1.0
            for _ in range(3):
                (await server.component()).close()
            await server.accept()
        assert [log["retry_s"] for log in logs if log["event"] == "not connected"] == retries


async def test_what_is_put_during_an_outage_is_sent_on_the_next_stream() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            server.deafen()
            link.close()
            await it.recorder.until(lambda: len(it.recorder.downs) == 1)
            for number in range(3):
                it.outbox.put(iq(str(number)))
            server.listen()
            link = await server.component()
            assert [s.id for s in await link.stanzas(3)] == ["0", "1", "2"]


async def test_an_outage_keeps_a_bounded_memory_and_says_so_once() -> None:
    with Acceptor() as server, capture_logs() as logs:
        server.deafen()
        async with running(server, limit_bytes=1000) as it:
            for number in range(100):
                it.outbox.put(iq(str(number)))
            assert it.outbox.waiting_bytes <= 2000
            kept = 100 - it.outbox.dropped
            server.listen()
            link = await server.component()
            ids = [s.id for s in await link.stanzas(kept)]
            assert ids == [str(number) for number in range(100 - kept, 100)]
        assert len([log for log in logs if "dropped" in log["event"]]) == 1
        up = next(log for log in logs if log["event"] == "connected")
        assert up["dropped_stanzas"] == 100 - kept


async def test_no_whole_stanza_is_repeated_when_the_connection_breaks_in_the_middle() -> None:
    with Acceptor(receive_buffer=4096) as server:
        async with running(server, limit_bytes=64 << 20) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            for number in range(100):
                it.outbox.put(iq(str(number), 100_000))
            first = [int(s.id or "") for s in await link.stanzas(5)]
            assert it.outbox.waiting_bytes > 1_000_000
            link.reset()
            link = await server.component()
            second = [int((await link.stanza()).id or "")]
            while second[-1] != 99:
                second.append(int((await link.stanza()).id or ""))
            assert first == list(range(5))
            # Between the two is what the first stream's kernel had taken.
            assert second == list(range(second[0], 100))
            assert second[0] >= 5


async def test_a_server_that_does_not_read_costs_a_bounded_memory_and_then_its_stream() -> None:
    limit = 1 << 20
    with Acceptor(receive_buffer=4096) as server, capture_logs() as logs:
        async with running(server, limit_bytes=limit) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            number = 0
            while not (it.outbox.stopped or it.outbox.dropped):
                it.outbox.put(iq(str(number), 50_000))
                number += 1
                assert it.outbox.waiting_bytes <= 2 * limit
                if it.outbox.waiting_bytes > limit:
                    assert it.outbox.congested
                await anyio.lowlevel.checkpoint()
            await it.recorder.until(lambda: it.recorder.downs != [])
            assert "is not reading" in it.recorder.downs[0]
            await link.ended()  # it sees a reset, though it never read
            link = await server.component()
            while int((await link.stanza()).id or "") != number - 1:
                pass
            assert not it.outbox.congested
        warnings = [log for log in logs if log.get("code") == "not-reading"]
        assert len(warnings) == 1
        # The one of which half had gone counts whole again, which may take the next one, too.
        assert it.outbox.dropped in (1, 2)


async def test_a_slow_server_gets_everything() -> None:
    with Acceptor(receive_buffer=4096) as server:
        async with running(server, limit_bytes=16 << 20) as it:
            link = await server.component()
            for number in range(200):
                it.outbox.put(iq(str(number), 50_000))
            assert [s.id for s in await link.stanzas(200)] == [str(n) for n in range(200)]
            assert it.recorder.ups == 1


async def test_a_silent_server_is_probed_and_given_up_when_nothing_comes() -> None:
    with Acceptor() as server:
        async with running(server, read_timeout_s=0.02, probe_timeout_s=0.02) as it:
            link = await server.component()
            probe = await link.stanza()
            assert (probe.sender, probe.to, probe.type) == (DOMAIN, DOMAIN, "get")
            assert probe.payload(Ping, strict=True) == Ping()
            await it.recorder.until(lambda: len(it.recorder.downs) == 1)
            assert "Nothing came" in it.recorder.downs[0]
            await link.ended()
            await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 2)


async def test_a_probe_that_comes_back_keeps_the_stream_and_is_nobodys_business() -> None:
    with Acceptor() as server:
        async with running(server, read_timeout_s=0.01) as it:
            link = await server.component()
            ids = set()
            for _ in range(3):
                probe = await link.stanza()
                ids.add(probe.id)
                await link.send(
                    f"<iq type='get' id='{probe.id}' from='{DOMAIN}' to='{DOMAIN}'>"
                    "<ping xmlns='urn:xmpp:ping'/></iq>"
                )
            await link.send(iq("other"))
            await it.recorder.until(lambda: it.recorder.events != [])
            assert it.recorder.ids() == ["other"]
            assert it.recorder.ups == 1
            assert len(ids) == 3


async def _append_handled(it: Running, found: list[bool]) -> None:
    found.append(await it.connection.handled())


async def test_what_was_sent_is_handled_when_a_probe_sent_after_it_comes_back() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            found: list[bool] = []

            async def loop_back() -> None:
                assert (await link.stanza()).id == "answer"
                while True:
                    id_ = (await link.stanza()).id
                    probes.append(id_)
                    await link.send(f"<iq type='get' id='{id_}' from='{DOMAIN}' to='{DOMAIN}'/>")

            probes: list[str | None] = []
            it.outbox.put(iq("answer"))
            async with anyio.create_task_group() as reading:
                reading.start_soon(loop_back)
                async with anyio.create_task_group() as group:
                    for _ in range(10):
                        group.start_soon(_append_handled, it, found)
                reading.cancel_scope.cancel()
            assert found == [True] * 10
            assert len(probes) <= 2, "those who wait at the same time share a probe"
            assert it.recorder.events == []


async def test_what_was_sent_may_be_lost_when_the_stream_ends_before_a_probe_comes_back() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            found: list[bool] = []
            async with anyio.create_task_group() as group:
                group.start_soon(_append_handled, it, found)
                await link.stanza()
                link.close()
            assert found == [False]


async def test_a_probe_that_was_dealt_to_another_instance_is_repeated() -> None:
    with Acceptor() as server:
        async with running(server, read_timeout_s=0.01, probe_timeout_s=3) as it:
            link = await server.component()
            lost, probe = await link.stanzas(2)
            assert lost.id != probe.id
            await link.send(f"<iq type='get' id='{probe.id}' from='{DOMAIN}' to='{DOMAIN}'/>")
            await link.stanza()
            assert it.recorder.ups == 1
            assert it.recorder.downs == []


async def test_an_idle_stream_is_kept_alive_by_spaces() -> None:
    with Acceptor() as server:
        async with running(server, keepalive_s=0.005) as it:
            link = await server.component()
            for _ in range(3):
                assert (await link.receive()).strip(b" ") == b""
            it.outbox.put(iq("after"))
            assert (await link.stanza()).id == "after"


async def test_a_stream_error_ends_the_stream_behind_what_came_before_it() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            error = link.stream.fail("system-shutdown", "back soon")
            await link.send(iq("last").encode() + error)
            await it.recorder.until(lambda: len(it.recorder.downs) == 1)
            assert it.recorder.ids() == ["last"]
            assert "is shutting down and says 'back soon'" in it.recorder.downs[0]
            await link.ended()
            assert link.received.endswith(b"</stream:stream>")
            await server.component()


async def test_a_server_that_closes_its_stream_gets_our_close_too() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await link.send(link.stream.close())
            await link.expect(StreamClosed)
            await it.recorder.until(lambda: len(it.recorder.downs) == 1)


async def test_a_server_that_breaks_the_stream_is_told_why() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await link.send("<iq><!-- forbidden --></iq>")
            await it.recorder.until(lambda: len(it.recorder.downs) == 1)
            assert "restricted-xml" in it.recorder.downs[0]
            await link.ended()
            assert b"<restricted-xml" in link.received


async def test_a_fault_of_the_receiver_is_not_hidden() -> None:
    with Acceptor() as server:

        def broken(_: object) -> None:
            raise ZeroDivisionError

        async def run() -> None:
            async with running(server) as it:
                it.recorder.on_received = broken
                link = await server.component()
                await link.send(iq("question"))
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as caught:
            await run()
        assert caught.group_contains(ZeroDivisionError)


def test_the_secret_is_in_no_repr() -> None:
    with Acceptor() as server:
        assert SECRET not in repr(settings_for(server))
