"""A message whose handler does not end well comes back to its sender, once."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.router.table import Request, StanzaRoute
from tests.component.link.router.wire import AGENT, Bench, addresses, condition, element, error_of

pytestmark = pytest.mark.anyio

ALICE = "alice@a.example/phone"
TYPES = ("chat", "normal", "groupchat", "headline", "error")


def route(handler: Callable[[Request[None]], Awaitable[None] | None]) -> list[StanzaRoute]:
    return [
        StanzaRoute("message", frozenset(TYPES), handler),
        StanzaRoute("presence", frozenset(("subscribe",)), handler),
    ]


def message(type_: str | None = "chat", id_: str | None = "m1", **how: str) -> str:
    body = element("body", "Tell me about rivers.")
    return element("message", body, type=type_, id=id_, from_=ALICE, to=AGENT, **how)


async def hangs(_request: Request[None]) -> None:
    await anyio.sleep_forever()


async def breaks(_request: Request[None]) -> None:
    raise ValueError("secret")


async def ends(_request: Request[None]) -> None:
    return None


async def test_a_message_that_takes_too_long_comes_back() -> None:
    bench = Bench(route(hangs), request_timeout_s=0.01)
    async with bench.running():
        bench.receive(message())
        await bench.settled()
    (bounce,) = bench.replies
    assert (bounce.tag, bounce.get("type")) == ("{jabber:client}message", "error")
    assert addresses(bounce) == ("m1", ALICE, AGENT)
    assert condition(bounce) == "remote-server-timeout"
    assert "in time" in error_of(bounce).text
    assert bench.output.flushed[-1] == 1


async def test_a_message_that_is_under_way_when_the_service_stops_comes_back() -> None:
    bench = Bench(route(hangs))
    async with bench.running():
        bench.receive(message(id_="1"), message(id_="2"))
        assert await bench.router.drain(0) == 2
    assert [condition(bounce) for bounce in bench.replies] == ["recipient-unavailable"] * 2
    assert {bounce.get("id") for bounce in bench.replies} == {"1", "2"}
    assert all(error_of(bounce).type == "wait" for bounce in bench.replies)


async def test_a_message_whose_work_breaks_comes_back() -> None:
    bench = Bench(route(breaks))
    async with bench.running():
        bench.receive(message())
        await bench.settled()
    (bounce,) = bench.replies
    assert condition(bounce) == "internal-server-error"
    assert "secret" not in bench.output.sent[0]


@pytest.mark.parametrize(
    ("inner", "bounces"),
    [
        ("<composing xmlns='http://jabber.org/protocol/chatstates'/>", False),
        ("<received xmlns='urn:xmpp:receipts' id='m0'/>", False),
        ("<displayed xmlns='urn:xmpp:chat-markers:0' id='m0'/><thread>t</thread>", False),
        ("<body/><active xmlns='http://jabber.org/protocol/chatstates'/>", True),
        (
            "<reactions xmlns='urn:xmpp:reactions:0' id='m0'><reaction>x</reaction></reactions>",
            True,
        ),
    ],
)
async def test_what_says_nothing_does_not_come_back(inner: str, bounces: bool) -> None:
    bench = Bench(route(ends))
    bench.output.congested = True
    bench.receive(element("message", inner, type="chat", id="m1", from_=ALICE, to=AGENT))
    assert [condition(reply) for reply in bench.replies] == ["resource-constraint"] * bounces


async def test_a_bounce_must_arrive() -> None:
    bench = Bench(route(breaks))
    bench.output.holds = True
    async with bench.running():
        bench.receive(message())
        await bench.settled()
    (waiting,) = bench.output.waiting
    assert waiting.delivery.must_arrive


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from([hangs, breaks, ends]),
            st.sampled_from([*TYPES, None, "unheard-of", "presence"]),
        ),
        max_size=20,
    ),
    stops=st.booleans(),
)
async def test_each_message_comes_back_once_unless_it_was_handled(
    arrivals: list[tuple[Any, str | None]], stops: bool
) -> None:
    handlers = iter([handler for handler, _ in arrivals])

    def handled(request: Request[None]) -> Any:
        return next(handlers)(request)

    bench = Bench(route(handled), request_timeout_s=3600 if stops else 0)
    expected = set()
    async with bench.running():
        for number, (handler, type_) in enumerate(arrivals):
            if type_ == "presence":
                bench.receive(
                    element("presence", type="subscribe", id=str(number), from_=ALICE, to=AGENT)
                )
                continue
            if type_ == "unheard-of" or type_ is None or type_ in ("chat", "normal"):
                # What ends at its first step may do so before its time is over.
                expected |= {str(number)} if handler is not ends else set()
            bench.receive(message(type_, id_=str(number)))
        if stops:
            await bench.router.drain(0)
        await bench.settled()
    found = [bounce.get("id") for bounce in bench.replies]
    assert sorted(found, key=str) == sorted(expected)
