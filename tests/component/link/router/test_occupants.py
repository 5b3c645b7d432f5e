"""Occupants of rooms, whom the policy does not admit, get answers to some requests, and what their
rooms send reaches its handlers.
"""

import pytest
from msgspec.structs import replace

from component.link.router.table import Request, StanzaRoute
from tests.component.link.router.wire import AGENT, REFUSED, Bench, Do, do, element
from xep.binding import encode
from xep.jid import JID

pytestmark = pytest.mark.anyio

ROOM = f"lab@{REFUSED}"
HERE = f"{AGENT}/rooms"


def asks(what: str, from_: str, to: str = HERE) -> str:
    return element("iq", encode(Do(what=what)), type="get", id=what, from_=from_, to=to)


def is_room(address: JID) -> bool:
    return str(address.bare) == ROOM


async def test_occupants_are_served_what_is_for_them_and_nothing_else() -> None:
    served: list[str] = []

    def handler(request: Request[Do]) -> None:
        served.append(f"{request.payload.what} {request.to}")

    route = replace(do(handler), for_occupants=lambda payload: payload.what != "secret")
    bench = Bench([route], is_room=is_room)
    for what, from_ in (
        ("ok", f"{ROOM}/Romeo"),
        ("secret", f"{ROOM}/Romeo"),
        ("other", f"other@{REFUSED}/Romeo"),
    ):
        bench.receive(asks(what, from_))
    assert served == [f"ok {AGENT}"]
    assert [each.get("type") for each in bench.replies] == ["result", "error", "error"]
    assert bench.replies[0].get("from") == HERE
    bench.receive(asks("elsewhere", f"{ROOM}/Romeo", f"{AGENT}/other"))
    assert bench.replies[-1].get("type") == "error"


async def test_a_route_that_is_not_for_occupants_refuses_them() -> None:
    bench = Bench([do(lambda _: None)], is_room=is_room)
    bench.receive(asks("it", f"{ROOM}/Romeo"))
    assert bench.replies[0].get("type") == "error"


async def test_a_room_that_is_left_is_asked_about_again() -> None:
    rooms = {ROOM}
    route = replace(do(lambda _: None), for_occupants=lambda _: True)
    bench = Bench([route], is_room=lambda address: str(address.bare) in rooms)
    bench.receive(asks("in", f"{ROOM}/Romeo"))
    rooms.clear()
    bench.router.forget_senders()
    bench.receive(asks("out", f"{ROOM}/Romeo"))
    assert [each.get("type") for each in bench.replies] == ["result", "error"]


async def test_messages_of_a_type_can_have_senders_of_their_own() -> None:
    said: list[str] = []

    def take(request: Request[None]) -> None:
        said.append(str(request.sender))

    route = StanzaRoute("message", frozenset(("groupchat",)), take, admits=is_room)
    bench = Bench([route])
    for from_ in (f"{ROOM}/Romeo", "alice@a.example/x", f"other@{REFUSED}/Romeo"):
        bench.receive(element("message", "", type="groupchat", id="1", from_=from_, to=HERE))
    assert said == [f"{ROOM}/Romeo"]
    assert bench.replies == []
