"""IQs that we send: who may answer them, and what becomes of each."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from component.kernel.errors import AgentErrors
from component.link.messages.outbox import Outbox, OutputStream
from component.link.router.route_resolver import Senders
from component.link.router.router import Router
from tests.component.link.router.wire import DOMAIN, OURS, Bench, Do, Done, do, element, iq, until
from xep.fluux_agent.errors import NAMESPACE as ERRORS
from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza_error import StanzaError
from xep.stream import StreamLimits

pytestmark = pytest.mark.anyio

PEER = "peer@b.example/x"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
DONE = element("done", "yes", xmlns="urn:test:router")


class Asking:
    """One call under way, and its end."""

    def __init__(self, bench: Bench, to: str = PEER, timeout_s: float | None = None) -> None:
        self.bench = bench
        self.to = to
        self.timeout_s = timeout_s
        self.result: Done | None = None
        self.error: StanzaError | None = None
        self.ended = False
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            try:
                self.result = await self.bench.router.call(
                    "get", JID.parse(self.to), Do(what="x"), Done, timeout_s=self.timeout_s
                )
            except StanzaError as error:
                self.error = error
        self.ended = True


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(5):
        await checkpoint()


def answer(
    id_: str | None, from_: str | None = PEER, content: str = DONE, type_: str = "result"
) -> str:
    return iq(content, type_=type_, id_=id_, from_=from_)


def nothing_waits(bench: Bench) -> bool:
    return not bench.router._calls._waiting


async def test_a_call_is_an_iq_and_its_result_is_decoded() -> None:
    bench = Bench()
    asking = Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        (sent,) = bench.replies
        assert (sent.tag, sent.get("type")) == ("{jabber:client}iq", "get")
        assert (sent.get("from"), sent.get("to")) == (DOMAIN, PEER)
        assert sent[0].attrib == {"what": "x"}
        bench.receive(answer(sent.get("id")))
    assert asking.result == Done(text="yes")
    assert nothing_waits(bench)


async def test_a_call_can_be_made_from_an_agent() -> None:
    bench = Bench()
    from_ = JID("assistant", DOMAIN)
    with anyio.move_on_after(0):
        await bench.router.call("set", JID.parse(PEER), Do(), Done, from_=from_)
    (sent,) = bench.replies
    assert (sent.get("from"), sent.get("type")) == (str(from_), "set")


_guesses = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "peer@b.example",
                "peer@b.example/y",
                "b.example",
                "mallory@b.example/x",
                "peer@b.example/X",
                DOMAIN,
                "@",
                "",
                None,
            ]
        )
        | st.text(st.characters(codec="utf-8", min_codepoint=32), max_size=8).map(
            lambda text: f"peer@b.example/{text}y"
        ),
        st.sampled_from(["right", "wrong", "other", None]),
        st.sampled_from(["result", "error"]),
    )
    # The right peer with any other id is nobody either.
    | st.tuples(
        st.just(PEER), st.sampled_from(["wrong", "other", None]), st.sampled_from(["result"])
    ),
    max_size=20,
)


@given(guesses=_guesses)
async def test_a_call_is_answered_only_by_the_address_that_was_asked(
    guesses: list[tuple[str | None, str | None, str]],
) -> None:
    bench = Bench()
    asking, other = Asking(bench), Asking(bench, "other@c.example")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: len(bench.output.sent) == 1)
        tasks.start_soon(other.run)
        await until(lambda: len(bench.output.sent) == 2)
        right, others = (sent.get("id") for sent in bench.replies)
        assert right != others
        ids = {"right": right, "other": others, "wrong": f"{right}0", None: None}
        bench.receive(*(answer(ids[id_], from_, "", type_) for from_, id_, type_ in guesses))
        await settle()
        assert not asking.ended
        assert not other.ended
        bench.receive(answer(right), answer(others, "other@c.example"))
    assert asking.result == other.result == Done(text="yes")
    assert len(bench.output.sent) == 2


async def test_only_the_first_answer_counts() -> None:
    bench = Bench()
    asking = Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        id_ = bench.replies[0].get("id")
        bench.receive(answer(id_), answer(id_, content="", type_="error"), answer(id_, content=""))
    assert asking.result == Done(text="yes")
    bench.receive(answer(id_))
    assert len(bench.output.sent) == 1


async def test_an_error_is_raised_with_its_conditions() -> None:
    bench = Bench()
    asking = Asking(bench)
    content = (
        f"<do xmlns='urn:test:router'/><error type='wait'><resource-constraint xmlns='{STANZAS}'/>"
        f"<text xmlns='{STANZAS}'>busy</text><retry xmlns='{ERRORS}' after='9'/>"
        "<unknown xmlns='urn:test:unknown'/></error>"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        bench.receive(answer(bench.replies[0].get("id"), content=content, type_="error"))
    assert asking.error is not None
    assert (asking.error.condition, asking.error.type) == ("resource-constraint", "wait")
    assert (asking.error.text, asking.error.application) == ("busy", (Retry(after=9),))


@pytest.mark.parametrize(
    "content", ["", "<other xmlns='urn:test:router'/>", "<done xmlns='urn:test:other'/>"]
)
async def test_an_answer_to_something_else_is_an_error(content: str) -> None:
    bench = Bench()
    asking = Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        bench.receive(answer(bench.replies[0].get("id"), content=content))
    assert asking.error is not None
    assert asking.error.condition == "undefined-condition"
    assert PEER in asking.error.text


async def test_no_answer_in_time() -> None:
    bench = Bench()
    asking = Asking(bench, timeout_s=0)
    await asking.run()
    assert asking.error is not None
    assert asking.error.condition == "remote-server-timeout"
    assert asking.error.type == "wait"
    assert nothing_waits(bench)
    # What comes late is for nobody, and is not answered.
    bench.receive(answer(bench.replies[0].get("id")))
    assert len(bench.output.sent) == 1


async def test_the_time_out_of_the_settings_holds_where_none_is_given() -> None:
    bench = Bench(call_timeout_s=0)
    asking = Asking(bench)
    await asking.run()
    assert asking.error is not None
    assert asking.error.condition == "remote-server-timeout"


async def test_a_lost_connection_fails_what_waits_and_nothing_else() -> None:
    bench = Bench()
    answered, waiting = Asking(bench), Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answered.run)
        await until(lambda: len(bench.output.sent) == 1)
        tasks.start_soon(waiting.run)
        await until(lambda: len(bench.output.sent) == 2)
        # The answer had come before the stream broke, though nobody has looked at it yet.
        bench.receive(answer(bench.replies[0].get("id")))
        bench.router.disconnected("gone")
    assert answered.result == Done(text="yes")
    assert waiting.error is not None
    assert waiting.error.condition == "remote-server-timeout"
    assert "lost" in waiting.error.text
    assert nothing_waits(bench)


async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    bench = Bench()
    asking = Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        assert not nothing_waits(bench)
        asking.scope.cancel()
    assert nothing_waits(bench)
    bench.receive(answer(bench.replies[0].get("id")))
    assert (asking.result, asking.error) == (None, None)


async def test_what_cannot_be_sent_leaves_nothing_behind() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="at most 19 digits"):
        await bench.router.call("get", JID.parse(PEER), Do(number=10**30), Done)
    assert nothing_waits(bench)
    assert bench.output.sent == []


@pytest.mark.parametrize("type_", ["result", "error"])
async def test_an_answer_over_a_limit_fails_its_call_at_once(type_: str) -> None:
    bench = Bench(limits=StreamLimits(bytes=1_000))
    asking = Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        id_ = bench.replies[0].get("id")
        big = "x" * 2_000
        bench.receive(answer(id_, "mallory@b.example", big), answer("0", PEER, big))
        await settle()
        assert not asking.ended
        bench.receive(answer(id_, PEER, big, type_))
    assert asking.error is not None
    assert asking.error.condition == "policy-violation"


async def test_we_can_call_ourselves_through_the_server() -> None:
    """A probe: the server loops the IQ to our own domain back to us, and then our answer."""
    bench = Bench([do(lambda request: Done(text=request.payload.what))])
    asking = Asking(bench, to=DOMAIN)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        bench.receive(bench.output.sent[0])
        bench.receive(bench.output.sent[1])
    assert asking.result == Done(text="x")


# -- what has not left ----------------------------------------------------------------------------


async def test_a_call_that_is_not_answered_in_time_is_withdrawn() -> None:
    bench = Bench()
    bench.output.holds = True
    asking = Asking(bench, timeout_s=0)
    await asking.run()
    assert asking.error is not None
    assert bench.output.withdrawn == bench.output.sent
    assert nothing_waits(bench)


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_call_that_is_cancelled_is_withdrawn_and_one_that_is_answered_is_not(
    is_answered: bool,
) -> None:
    bench = Bench()
    bench.output.holds = True
    asking = Asking(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        await until(lambda: bench.output.sent)
        if is_answered:
            bench.receive(answer(bench.replies[0].get("id")))
        else:
            asking.scope.cancel()
    assert (asking.result is not None) == is_answered
    assert bench.output.withdrawn == ([] if is_answered else bench.output.sent)


async def test_calls_whose_connection_is_lost_are_withdrawn_if_they_have_not_left() -> None:
    bench = Bench()
    first, second = Asking(bench), Asking(bench, "other@c.example")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await until(lambda: bench.output.sent)
        bench.output.holds = True
        tasks.start_soon(second.run)
        await until(lambda: len(bench.output.sent) == 2)
        bench.router.disconnected("gone")
    assert first.error is not None
    assert second.error is not None
    assert bench.output.withdrawn == bench.output.sent[1:]


async def test_a_call_that_failed_never_reaches_the_stream() -> None:
    """With the outbox itself: it is not among what the next stream carries."""
    outbox, carried = Outbox(1000), bytearray()

    def try_send(data: bytes | memoryview) -> int:
        carried.extend(data)
        return len(data)

    bench = Bench()
    senders = Senders(lambda _: True, OURS)
    router = Router(bench.options, senders, AgentErrors(), (), outbox)
    with pytest.raises(StanzaError):
        await router.call("get", JID.parse(PEER), Do(what="old"), Done, timeout_s=0)
    outbox.put("<new/>")
    outbox.start(OutputStream())
    assert outbox.flush(try_send)
    assert carried == b"<new/>"
