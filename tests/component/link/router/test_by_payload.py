"""Routes of messages with a certain payload: before others, from senders of their own."""

import pytest

from component.link.router.table import Request, StanzaRoute
from tests.component.link.router.wire import AGENT, REFUSED, Bench, Do, element
from xep.binding import encode
from xep.jid import JID

pytestmark = pytest.mark.anyio

SERVICE = REFUSED


class Taken:
    """What two handlers were given: one for any message, one for those with a payload."""

    def __init__(self) -> None:
        self.any: list[str] = []
        self.noted: list[str] = []

    def routes(self, *, fails: bool = False) -> list[StanzaRoute]:
        def note(request: Request[None]) -> None:
            self.noted.append(request.stanza.require(Do).what)
            if fails:
                raise ValueError("secret")

        def take(request: Request[None]) -> None:
            self.any.append(request.stanza.id or "")

        def admits(sender: JID) -> bool:
            return sender == JID.parse(SERVICE)

        return [
            StanzaRoute("message", frozenset(("chat", "normal")), take),
            StanzaRoute(
                "message", frozenset(("normal", "headline")), note, payload=Do, admits=admits
            ),
        ]


def message(what: str, type_: str, from_: str, *, payload: bool = True) -> str:
    inside = encode(Do(what=what)) if payload else element("body", what)
    return element("message", inside, type=type_, id=what, from_=from_, to=AGENT)


async def test_a_payload_decides_before_the_type() -> None:
    taken = Taken()
    bench = Bench(taken.routes())
    async with bench.running():
        bench.receive(
            message("headline", "headline", SERVICE),
            message("normal", "normal", SERVICE),
            message("chat", "chat", "alice@a.example/x"),
            message("plain", "normal", "alice@a.example/x", payload=False),
        )
    assert taken.noted == ["headline", "normal"]
    assert taken.any == ["chat", "plain"]
    assert bench.replies == []


async def test_who_was_not_asked_is_not_heard() -> None:
    taken = Taken()
    bench = Bench(taken.routes())
    async with bench.running():
        bench.receive(
            message("admitted", "headline", "alice@a.example/x"),
            message("refused", "headline", f"other@{REFUSED}"),
            message("chat", "chat", SERVICE, payload=False),
        )
    assert (taken.noted, taken.any, bench.replies) == ([], [], [])


async def test_a_handler_that_fails_sends_nothing_back() -> None:
    taken = Taken()
    bench = Bench(taken.routes(fails=True))
    async with bench.running():
        bench.receive(message("bad", "headline", SERVICE), message("next", "headline", SERVICE))
    assert taken.noted == ["bad", "next"]
    assert bench.replies == []
