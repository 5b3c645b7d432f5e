"""How much one principal may have under way, and what is refused when it is too much."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from component.link.router.table import IQRoute, ReplyPayload, Request, StanzaRoute
from component.link.router.work import AdmissionGate, Shares
from tests.component.link.router.wire import (
    AGENT,
    DOMAIN,
    OURS,
    Bench,
    Do,
    condition,
    do,
    element,
    error_of,
    iq,
    request,
    until,
)
from xep.fluux_agent.errors import Retry
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


class Counting(RuleBasedStateMachine):
    """Admission against a list of who is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = AdmissionGate(Shares(per_principal=2, total=5, reserved=1), ["a"])
        self.inside: list[str] = []

    @rule(principal=st.sampled_from("abcd"))
    def enter(self, principal: str) -> None:
        own = self.inside.count(principal)
        if principal == "a":
            free = own < 2 and len(self.inside) < 5
        else:
            free = own < 2 and own < 4 - len(self.inside)
        assert (self.admission.refusal(principal) is None) == free
        if free:
            self.admission.enter(principal)
            self.inside.append(principal)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.inside:
            principal = data.draw(st.sampled_from(self.inside))
            self.admission.leave(principal)
            self.inside.remove(principal)

    @invariant()
    def counts(self) -> None:
        assert self.admission.total == len(self.inside)
        assert set(self.admission._under_way) == set(self.inside)


TestCounting = Counting.TestCase


@given(total=st.integers(2, 200), share=st.integers(1, 64), crowd=st.integers(1, 100))
def test_who_has_nothing_under_way_finds_a_place_while_others_take_all_they_get(
    total: int, share: int, crowd: int
) -> None:
    gate = AdmissionGate(Shares(per_principal=share, total=total))
    crowd = min(crowd, total - 1)
    for _ in range(share):
        for number in range(crowd):
            if gate.refusal(f"p{number}") is None:
                gate.enter(f"p{number}")
    assert gate.refusal("newcomer") is None


def test_admins_have_a_reserve() -> None:
    gate = AdmissionGate(Shares(per_principal=4, total=8, reserved=2), ["admin@a.example"])
    for number in range(20):
        if gate.refusal(f"p{number}") is None:
            gate.enter(f"p{number}")
    assert gate.total == 6
    for _ in range(2):
        assert gate.refusal("admin@a.example") is None
        gate.enter("admin@a.example")
    assert gate.refusal("admin@a.example") is not None, "all are taken"


class Doors:
    """A handler whose work waits until it is let go, each kind of ending at a word."""

    def __init__(self) -> None:
        self.open = anyio.Event()

    async def work(self, request: Request[Do]) -> ReplyPayload:
        await self.open.wait()
        if request.payload.what == "refuse":
            raise StanzaError("not-allowed")
        if request.payload.what == "break":
            raise ValueError
        return None

    def route(self, request: Request[Do]) -> object:
        return None if request.payload.what == "at once" else self.work(request)


def by(number: int, from_: str, what: str = "") -> str:
    return request(what, id_=str(number), from_=from_)


async def test_a_principal_has_its_share_and_the_others_theirs() -> None:
    doors = Doors()
    bench = Bench([do(doors.route)], shares=Shares(per_principal=2, total=10), retry_after_s=7)
    async with bench.running():
        # The share is the principal's, whatever its resource.
        bench.receive(*(by(n, f"alice@a.example/{n}") for n in range(3)))
        (refused,) = bench.replies
        error = error_of(refused)
        assert refused.get("id") == "2"
        assert (error.condition, error.type) == ("resource-constraint", "wait")
        assert error.application == (Retry(after=7),)
        bench.receive(by(10, "bob@a.example"))
        assert len(bench.replies) == 1
        doors.open.set()
        await bench.settled()
        assert {r.get("id") for r in bench.replies if r.get("type") == "result"} == {"0", "1", "10"}
        doors.open = anyio.Event()
        bench.receive(by(11, "alice@a.example"))
        assert len(bench.replies) == 4
        doors.open.set()
        await bench.settled()
        assert bench.replies[-1].get("type") == "result"


async def test_over_the_bound_for_all_everybody_is_refused() -> None:
    doors = Doors()
    bench = Bench([do(doors.route)], shares=Shares(per_principal=2, total=3))
    async with bench.running():
        bench.receive(*(by(n, f"p{n}@a.example") for n in range(5)))
        assert [condition(reply) for reply in bench.replies] == ["resource-constraint"] * 2
        doors.open.set()
        await bench.settled()
        bench.receive(by(9, "p4@a.example"))
        await bench.settled()
        assert bench.replies[-1].get("type") == "result"


@pytest.mark.parametrize("what", ["", "refuse", "break"])
async def test_every_ending_gives_the_share_back(what: str) -> None:
    doors = Doors()
    doors.open.set()
    bench = Bench([do(doors.route)], shares=Shares(per_principal=1, total=1))
    async with bench.running():
        for n in range(3):
            bench.receive(by(n, "alice@a.example", what))
            await bench.settled()
    assert all("resource-constraint" not in sent for sent in bench.output.sent)
    assert len(bench.output.sent) == 3


async def test_a_time_out_gives_the_share_back() -> None:
    bench = Bench([do(Doors().route)], shares=Shares(per_principal=1, total=1), request_timeout_s=0)
    async with bench.running():
        for n in range(3):
            bench.receive(by(n, "alice@a.example"))
            await bench.settled()
    assert [condition(reply) for reply in bench.replies] == ["remote-server-timeout"] * 3


async def test_a_message_under_way_counts_too() -> None:
    doors = Doors()

    async def said(_request: Request[None]) -> None:
        await doors.open.wait()
        raise ValueError

    bench = Bench(
        [do(doors.route), StanzaRoute("message", frozenset(("chat",)), said)],
        shares=Shares(per_principal=1, total=9),
    )
    message = element("message", "<body>x</body>", type="chat", from_="alice@a.example", to=AGENT)
    async with bench.running():
        bench.receive(message, by(1, "alice@a.example"))
        assert condition(bench.replies[0]) == "resource-constraint"
        doors.open.set()
        await bench.settled()
        bench.receive(by(2, "alice@a.example"))
        await bench.settled()
        assert bench.replies[-1].get("type") == "result"


@given(many=st.integers(1, 200))
async def test_what_is_answered_at_once_is_never_counted(many: int) -> None:
    bench = Bench([do(Doors().route)], shares=Shares(per_principal=1, total=1))
    bench.receive(*(by(n, "alice@a.example", "at once") for n in range(many)))
    assert [reply.get("type") for reply in bench.replies] == ["result"] * many


async def test_what_is_answered_at_once_needs_no_place() -> None:
    doors = Doors()
    bench = Bench([do(doors.route)], shares=Shares(per_principal=1, total=1))
    async with bench.running():
        bench.receive(by(1, "alice@a.example"))
        for number, who in enumerate(("alice@a.example", "bob@a.example"), 2):
            bench.receive(by(number, who, "at once"))
            assert bench.replies[-1].get("type") == "result"
            bench.receive(by(number + 10, who))
            assert condition(bench.replies[-1]) == "resource-constraint"
        doors.open.set()
        await bench.settled()
    assert len(bench.replies) == 5


async def test_what_changes_something_before_it_suspends_needs_a_place_first() -> None:
    doors, handled = Doors(), []

    def handler(request: Request[Do]) -> object:
        handled.append(request.stanza.id)
        return doors.work(request)

    bench = Bench([IQRoute("get", Do, handler, place_first=True)], shares=Shares(1, 1))
    async with bench.running():
        bench.receive(by(1, "alice@a.example"), by(2, "bob@a.example"))
        assert handled == ["1"]
        assert condition(bench.replies[0]) == "resource-constraint"
        doors.open.set()
        await bench.settled()


async def test_an_admin_finds_a_place_when_nobody_else_does() -> None:
    doors = Doors()
    bench = Bench(
        [do(doors.route)],
        shares=Shares(per_principal=2, total=4, reserved=1),
        admins=frozenset(["admin@a.example"]),
    )
    async with bench.running():
        bench.receive(*(by(n, f"p{n}@a.example") for n in range(4)), by(9, "admin@a.example"))
        assert [reply.get("id") for reply in bench.replies] == ["3"]
        doors.open.set()
        await bench.settled()
        assert {r.get("id") for r in bench.replies if r.get("type") == "result"} == set("0129")


async def test_congested_output_takes_on_nothing_new() -> None:
    bench = Bench([do(Doors().route)], retry_after_s=3)
    bench.output.congested = True
    error = error_of(bench.answer(by(1, "alice@a.example", "at once")))
    assert (error.condition, error.application) == ("resource-constraint", (Retry(after=3),))
    bench.output.congested = False
    assert bench.answer(by(2, "alice@a.example", "at once")).get("type") == "result"


async def test_answers_are_taken_however_busy_it_is() -> None:
    doors = Doors()
    bench = Bench([do(doors.route)], shares=Shares(per_principal=1, total=1))
    answers = []

    async def ask() -> None:
        answers.append(await bench.router.call("get", OURS.default, Do(), Do))

    async with bench.running(), anyio.create_task_group() as tasks:
        bench.receive(by(1, "alice@a.example"))
        tasks.start_soon(ask)
        await until(lambda: bench.output.sent)
        bench.output.congested = True
        (asked,) = bench.replies
        bench.receive(iq(type_="result", id_=asked.get("id"), from_=DOMAIN))
        await until(lambda: answers)
        doors.open.set()
    assert answers == [Do()]
