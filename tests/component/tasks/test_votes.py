"""Several persons decide: each account once, bound to the digest, and the last vote decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import Context, skill
from component.skills.params import prepare
from component.tasks import events, question_rows, questions, room_question_rows
from component.tasks.protocol import Question
from component.tasks.question_rows import Answerer
from component.tasks.questions import Judgement, confirm_for
from component.tasks.request import CallerContext, Confirmation
from component.tasks.rows import moment
from component.tasks.votes import Vote, outcome
from component.tasks.votes import given as counted
from tests.component.tasks.ledger import AGENT, ALICE, NOON, Ledger, asked_for
from tests.component.tasks.test_durable import conditions
from tests.component.tasks.test_instances import two
from tests.component.tasks.world import AGENT as AT
from tests.component.tasks.world import ANN, Open, living
from tests.waiting import eventually
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Approvals, ApproverRoom, Confirm, Decision
from xep.fluux_agent.delegation import Delegation
from xep.hashes import Hash
from xep.jid import JID

pytestmark = pytest.mark.anyio

Value = Literal["approve", "deny"]
PEOPLE = [JID.parse(f"{name}@a.example") for name in ("bob", "carol", "dave")]
BOB, CAROL, DAVE = PEOPLE
ROOM = JID.parse("ops@rooms.example")


@skill(name="pay")
def pay(amount: int = 5) -> None:
    """Pay."""


class World:
    """A payment for Alice that several have to approve."""

    def __init__(
        self,
        ledger: Ledger | None = None,
        *,
        need: int = 2,
        requester: bool = True,
        room: bool = False,
        asked: tuple[JID, ...] = (BOB, CAROL, DAVE),
        delegation: Delegation | None = None,
        **context: Any,
    ) -> None:
        self.ledger = ledger or Ledger()
        in_room = ApproverRoom(jid=ROOM, affiliation="admin") if room else None
        approvals = Approvals(need=need, requester=requester, room=in_room)
        needed = Confirmation(asked, "high", 60.0, approvals)
        caller = CallerContext("assistant", **context)
        request = asked_for(
            skill="pay", confirmation=needed, caller_context=caller, delegation=delegation
        )
        row = self.ledger.add("t-1", request=request, skill="pay")
        self.confirm = confirm_for(
            *(request, pay, prepare(pay)),
            task="t-1",
            question="c-1",
            expires=moment(NOON + 60_000),
        )
        questions.ask_question(self.ledger, row, self.confirm, asked)

    def vote(
        self, who: JID, value: Value = "approve", room: JID | None = None, **by: Any
    ) -> Judgement:
        decision = Decision(id="c-1", value=value, hash=self.confirm.hash)
        return questions.decide(self.ledger, Answerer(who, AGENT, room=room, **by), decision)

    def withdraw(self, who: JID) -> Judgement:
        return questions.withdraw(self.ledger, Answerer(who, AGENT), "c-1")

    @property
    def state(self) -> str:
        return self.ledger.row("t-1").state

    @property
    def shown(self) -> Approvals | None:
        put = question_rows.input_row(self.ledger, "c-1")
        assert put is not None
        assert isinstance(put.content, Confirm)
        return put.content.approvals


@pytest.mark.ports
def test_the_last_approval_that_is_needed_decides(new_ledger: Callable[[], Ledger]) -> None:
    world = World(new_ledger())
    first = world.vote(BOB)
    assert (first.missing, world.state) == (1, "input-required")
    assert first.change is not None
    assert isinstance(first.change.detail, Confirm)
    assert first.change.detail.approvals == Approvals(need=2, given=1)
    assert first.change.detail.hash == world.confirm.hash, "the digest is about the action alone"
    again = world.vote(BOB)
    assert (again.change, again.missing, again.error) == (None, 1, None)
    assert world.vote(CAROL).missing == 0
    assert world.state == "accepted"
    assert world.vote(CAROL).error is None
    late = world.vote(DAVE, "deny").error
    assert late is not None
    assert late.condition == "conflict"
    rows = world.ledger.execute("SELECT jid, value, digest FROM votes ORDER BY jid").fetchall()
    assert world.confirm.hash is not None
    digest = world.confirm.hash.digest.hex()
    assert rows == [(str(one), "approve", digest) for one in (BOB, CAROL)]


@pytest.mark.ports
def test_after_a_vote_only_those_are_asked_who_have_not_been(
    new_ledger: Callable[[], Ledger],
) -> None:
    """A process that was killed before its event was sent has asked before."""

    def to_send(world: World) -> tuple[JID, ...]:
        (unsent,) = events._unsent(world.ledger, (-1, ""))
        assert unsent.row.revision == world.ledger.row("t-1").revision
        return () if unsent.question is None else unsent.question.asked

    world = World(new_ledger())
    assert to_send(world) == tuple(PEOPLE)
    world.vote(BOB)
    assert to_send(world) == tuple(PEOPLE)
    question_rows.written(world.ledger, "c-1", ())
    assert to_send(world) == ()
    eve, put = JID.parse("eve@a.example"), question_rows.input_row(world.ledger, "c-1")
    assert put is not None
    question_rows.ask_also(world.ledger, world.ledger.row("t-1"), put, [eve])
    assert to_send(world) == (eve,)


@pytest.mark.ports
def test_one_denial_decides(new_ledger: Callable[[], Ledger]) -> None:
    world = World(new_ledger())
    world.vote(BOB)
    world.vote(CAROL, "deny")
    assert world.state == "failed"
    assert (world.ledger.row("t-1").failure or "").find("denied") > 0


@pytest.mark.ports
def test_an_approval_by_a_reaction_ends_with_the_reaction(
    new_ledger: Callable[[], Ledger],
) -> None:
    world = World(new_ledger())
    world.vote(BOB, by_reaction=True)
    assert world.withdraw(BOB).missing == 2
    assert world.shown == Approvals(need=2)
    assert world.withdraw(BOB) == Judgement()
    assert world.withdraw(JID.parse("eve@a.example")) == Judgement()
    world.vote(BOB)
    assert world.withdraw(BOB) == Judgement(), "it was not given by a reaction"
    world.vote(CAROL, by_reaction=True)
    assert world.state == "accepted"
    assert world.withdraw(CAROL) == Judgement(), "it is decided"


def test_another_digest_decides_nothing() -> None:
    world = World(need=1)
    other = Decision(id="c-1", value="approve", hash=Hash(algo="sha-256", digest=b"x" * 32))
    error = questions.decide(world.ledger, Answerer(BOB, AGENT), other).error
    assert error is not None
    assert error.condition == "conflict"
    assert world.ledger.count("votes") == 0


@pytest.mark.parametrize(
    "context",
    [{"operator": str(BOB)}, {"occupant": str(BOB)}, {}],
    ids=["operator", "occupant", "principal"],
)
def test_no_requester_counts_in_whatever_way_it_has_asked(context: dict[str, Any]) -> None:
    world = World(need=1, requester=False, room=True, asked=(), **context)
    for who in (BOB if context else ALICE, ALICE):
        for value in ("approve", "deny"):
            error = world.vote(who, value, ROOM).error  # type: ignore[arg-type]
            assert error is not None
            assert error.condition == "forbidden"
    assert world.ledger.count("votes") == 0
    world.vote(CAROL, room=ROOM)
    assert world.state == "accepted"


def test_whoever_has_delegated_work_does_not_approve_it() -> None:
    agent = JID.parse("agent.elsewhere.example")
    delegation = Delegation(origin=BOB, max_hops=4, via=(agent,))
    world = World(need=1, requester=False, room=True, asked=(CAROL,), delegation=delegation)
    for who in (BOB, agent):
        error = world.vote(who, room=ROOM).error
        assert error is not None
        assert error.condition == "forbidden"
    # A person may decide in words, which have no digest; an agent has to repeat it (DLG-019).
    words = Decision(id="c-1", value="approve")
    assert questions.decide(world.ledger, Answerer(CAROL, AGENT), words).error is None
    assert world.state == "accepted"


def test_only_the_room_that_was_asked_decides() -> None:
    world = World(need=1, room=True, asked=())
    for other in (JID.parse("hall@rooms.example"), None):
        error = world.vote(BOB, room=other).error
        assert error is not None
        assert error.application == (errors.UnknownConfirmation(),)
    world.vote(BOB, room=ROOM)
    assert world.state == "accepted"


@pytest.mark.ports
def test_what_a_room_was_shown_is_remembered(new_ledger: Callable[[], Ledger]) -> None:
    ledger = new_ledger()
    World(ledger, room=True, asked=())
    (row,) = room_question_rows.unfinished(ledger)
    assert (row.input, row.room, row.agent, row.shown) == ("c-1", ROOM, AGENT, "")
    for id_ in ("c-1", "s-1", "c-1"):
        room_question_rows.add_message(ledger, ROOM, id_, "c-1")
    assert room_question_rows.messages_of(ledger, "c-1") == ["c-1", "s-1"]
    room_question_rows.remove_message(ledger, ROOM, "s-1")
    assert room_question_rows.messages_of(ledger, "c-1") == ["c-1"]
    room_question_rows.show(ledger, "c-1", "open 0 of 2", done=False)
    (row,) = room_question_rows.unfinished(ledger)
    assert row.shown == "open 0 of 2"
    assert question_rows.confirmation_in(ledger, ROOM, "c-1") == "t-1"
    room_question_rows.show(ledger, "c-1", "expired", done=True)
    assert room_question_rows.unfinished(ledger) == []


@pytest.mark.ports
def test_people_who_are_asked_later_vote_as_the_others(new_ledger: Callable[[], Ledger]) -> None:
    world = World(new_ledger(), room=True, asked=(BOB,))
    world.vote(BOB)
    made = questions.ask_also(world.ledger, "c-1", (BOB, CAROL))
    assert made is not None
    assert isinstance(made.question, Question)
    assert made.question.asked == (CAROL,)
    assert questions.ask_also(world.ledger, "c-1", (BOB, CAROL)) is None
    world.vote(CAROL)
    assert world.state == "accepted"
    assert questions.ask_also(world.ledger, "c-1", (DAVE,)) is None


def test_a_question_that_nobody_can_answer_is_refused_with_the_reason() -> None:
    world = World(room=True, asked=())
    assert questions.fail_unanswerable(world.ledger, "c-1", "Nobody is there.") is not None
    assert world.state == "rejected"
    failure = world.ledger.row("t-1").failure or ""
    assert "confirmation-unavailable" in failure
    assert "Nobody is there." in failure
    assert questions.fail_unanswerable(world.ledger, "c-1", "x") is None


# Any order.

Act = tuple[Literal["approve", "deny", "react", "withdraw"], JID]
acts: st.SearchStrategy[list[Act]] = st.lists(
    st.tuples(
        st.sampled_from(("approve", "react", "react", "withdraw", "deny")),
        st.sampled_from((*PEOPLE, ALICE)),
    ),
    max_size=12,
)


@given(acts, st.integers(1, 3))
def test_any_order_of_votes_is_a_set_of_approvals(story: list[Act], need: int) -> None:
    world = World(need=need, asked=(*PEOPLE, ALICE), requester=False)
    approved: dict[JID, bool] = {}
    decided: str | None = None
    for act, who in story:
        if act == "withdraw":
            world.withdraw(who)
            if decided is None and approved.get(who):
                del approved[who]
        else:
            value: Value = "deny" if act == "deny" else "approve"
            world.vote(who, value, by_reaction=act == "react")
            if decided is None and who != ALICE:
                if value == "deny":
                    decided = "failed"
                else:
                    approved[who] = act == "react"
                    decided = "accepted" if len(approved) >= need else None
        assert world.state == (decided or "input-required")
        if decided is None:
            assert world.shown == Approvals(need=need, given=len(approved), requester=False)


@given(
    st.lists(st.builds(Vote, st.sampled_from(PEOPLE), st.sampled_from(("approve", "deny")),
                       st.sampled_from(("a", "b")))),
    st.integers(1, 4),
)  # fmt: skip
def test_votes_on_other_actions_and_repeated_ones_do_not_add_up(
    found: list[Vote], need: int
) -> None:
    approving = {one.jid for one in found if (one.value, one.digest) == ("approve", "a")}
    assert counted(found, "a") == len(approving)
    expected: str | None = "approve" if len(approving) >= need else None
    if any(one.value == "deny" for one in found):
        expected = "deny"
    assert outcome(found, Approvals(need=need), "a") == expected


# A whole service, on both databases.


@skill(name="erase", destructive=True, durable=True)
async def erase(context: Context) -> str:
    return "erased"


def needs(number: int) -> Confirmation:
    return Confirmation((ANN.bare, *PEOPLE), "high", 600.0, Approvals(need=number))


async def test_votes_that_come_at_once_are_each_counted(open_storage: Open) -> None:
    async with living(open_storage, erase) as world:
        task = await world.task("erase", confirm=needs(3))
        asked = await world.ear.in_state(task, "input-required")
        assert asked.confirm is not None
        decision = Decision(id=asked.confirm.id, value="approve")
        missing: list[int] = []

        async def vote(who: JID) -> None:
            missing.append(await world.service.decide(who, AT, decision))

        async with anyio.create_task_group() as group:
            for who in PEOPLE:
                group.start_soon(vote, who)
        assert sorted(missing) == [0, 1, 2]
        assert (await world.ear.ended(task)).state == "completed"


@pytest.mark.ports
async def test_the_first_vote_stands_after_a_kill(open_storage: Open) -> None:
    async with living(open_storage, erase) as world:
        task = await world.task("erase", confirm=needs(2))
        asked = await world.ear.in_state(task, "input-required")
        assert asked.confirm is not None
        decision = Decision(id=asked.confirm.id, value="approve")
        assert await world.service.decide(BOB, AT, decision) == 1
    async with living(open_storage, erase) as world:
        found = (await world.get(task)).confirm
        assert found is not None
        assert found.approvals == Approvals(need=2, given=1)
        assert await world.service.decide(CAROL, AT, decision) == 0
        assert (await world.ear.ended(task)).state == "completed"


@pytest.mark.ports
async def test_votes_at_two_instances_are_one_tally(tmp_path: Path, migrated_url: str) -> None:
    async with two(tmp_path, migrated_url, erase) as (one, other):
        task = await one.task("erase", confirm=needs(3))
        asked = await one.ear.in_state(task, "input-required")
        assert asked.confirm is not None
        decision = Decision(id=asked.confirm.id, value="approve")
        async with anyio.create_task_group() as group:
            for who, world in zip(PEOPLE, (one, other, one), strict=True):
                group.start_soon(world.service.decide, who, AT, decision)

        async def is_over() -> bool:
            return (await one.get(task)).state == "completed"

        await eventually(is_over)


async def test_a_denial_says_that_another_approval_may_help(open_storage: Open) -> None:
    async with living(open_storage, erase) as world:
        task = await world.task("erase", confirm=needs(2))
        asked = await world.ear.in_state(task, "input-required")
        assert asked.confirm is not None
        await world.service.decide(BOB, AT, Decision(id=asked.confirm.id, value="deny"))
        assert conditions(await world.ear.ended(task)) == (errors.Denied(helps="approval"),)
