"""Calls of models in rooms: what may be called for an occupant, and who confirms it."""

from typing import Any

import pytest

from component.agent.protocol import Caller, Profile, ToolResult, Waiting
from component.agent.requests import RoomRequest, TurnRequest
from component.models.messages import ToolCall
from component.policy import Rule
from component.policy.flows import AgentLimits
from component.skills import Context, skill
from component.tasks.gate import Gate, NotPermitted
from component.tasks.request import CallerContext, Request
from tests.component.agent.room import ROOM, said
from tests.component.link.router.wire import AGENT, until
from tests.component.tools.test_tools import WHO, Desk, add, look_up, names
from xep.fluux_agent.confirm import Decision
from xep.jid import JID

pytestmark = pytest.mark.anyio

AT = said("", "", "Alice").target.bare


@skill(destructive=True, open_world=False)
def erase(target: str) -> str:
    return f"{target} is gone"


@skill(destructive=False)
def send(to: str, text: str) -> str:
    """Send a message."""
    return f"sent to {to}"


@skill(read_only=True, open_world=False)
async def whose(context: Context) -> str:
    return f"{context.principal} {context.owner}"


def asked(account: JID | None = WHO.bare, **room: Any) -> TurnRequest:
    return said("t1", "do it", "Alice", account, principal=WHO.bare, **room)


def caller(request: TurnRequest, **more: Any) -> Caller:
    profile = Profile(agent="assistant").limited(request.rights)
    return Caller(request=request, profile=profile, turn=request.id, **more)


def test_a_room_that_only_reads_is_offered_only_what_reads() -> None:
    desk = Desk(add, look_up, erase, send)
    assert names(desk, caller(asked())) == ["add", "look__up"]
    assert names(desk, caller(asked(read_only=False))) == ["add", "erase", "look__up", "send"]


def test_a_room_is_offered_the_skills_that_the_principal_the_agent_and_the_room_have() -> None:
    desk = Desk(add, look_up, rules=[Rule(("look.up",), allowed_jids=("bob@b.example",))])
    assert names(desk, caller(asked(skills=("look.*", "a*")))) == ["add"]


async def test_a_call_that_was_not_offered_in_a_room_is_refused_and_recorded() -> None:
    desk = Desk(add, erase)
    async with desk.world.running():
        found = await desk.call("erase", caller=caller(asked()), target="x")
    assert found == ToolResult("There is no tool called 'erase'.", is_error=True)
    assert [(e.kind, e.subject, e.detail) for e in desk.book.events] == [
        ("capability", "erase", "more than reading")
    ]


@pytest.mark.parametrize("origin", ["tool", "child", "trigger"])
def test_the_gate_refuses_what_does_more_than_read(origin: Any) -> None:
    desk = Desk(erase)
    gate: Gate = desk.world.gate
    request = Request(
        skill="erase",
        principal=WHO.bare,
        requester=WHO.bare,
        target=JID.parse(AGENT),
        origin=origin,
        caller_context=CallerContext("assistant", limits=AgentLimits(read_only=True)),
    )
    with pytest.raises(NotPermitted, match="more than read"):
        gate.passed(request, erase)
    assert desk.book.of("capability") == [("refused", "erase")]


async def test_the_person_who_asks_in_a_room_is_asked_at_their_account() -> None:
    desk = Desk(erase)
    async with desk.world.running():
        waiting = await desk.call("erase", caller=caller(asked(read_only=False)), target="x")
        assert isinstance(waiting, Waiting)
        assert waiting.question
        await until(lambda: any("<confirm " in sent for sent in desk.world.told.sent))
        told = [sent for sent in desk.world.told.sent if "<confirm " in sent]
        assert all(f"to='{WHO.bare}'" in sent for sent in told)
        assert not any(str(ROOM) in sent for sent in told)
        (question,) = await desk.world.service.open_questions(WHO.bare, AT)
        await desk.world.service.decide(WHO.bare, AT, Decision(id=question.id, value="approve"))
        await until(lambda: desk.world.tools_ended == [waiting.task])


async def test_nobody_confirms_for_one_whose_account_is_unknown() -> None:
    desk = Desk(erase)
    request = asked(None, read_only=False)
    async with desk.world.running():
        found = await desk.call("erase", caller=caller(request), target="x")
        assert isinstance(found, ToolResult)
        assert "ask you directly" in found.content
        assert found.not_made
        assert await desk.world.service.open_questions(WHO.bare, AT) == []
    assert ("refused", "erase") in desk.book.of("tool-call")


async def test_several_calls_for_one_whose_account_is_unknown_are_refused_each() -> None:
    desk = Desk(erase)
    calls = [ToolCall(f"0.{at}", "erase", f'{{"target": "{at}"}}') for at in range(2)]
    who = caller(asked(None, read_only=False))
    async with desk.world.running():
        assert await desk.tools.confirm_together(who, calls, again=False) == {}


async def test_what_another_occupant_has_written_needs_the_confirmation_of_who_asks() -> None:
    desk = Desk(send)
    tainted = caller(asked(read_only=False), taints=frozenset(("person", "room")), said=("do it",))
    own = caller(
        asked(read_only=False), taints=frozenset(("person",)), said=("send it to x@y.example",)
    )
    async with desk.world.running():
        found = await desk.call("send", caller=tainted, to="x@y.example", text="it")
        assert isinstance(found, Waiting)
        assert found.question
        ended = await desk.call("send", "1.a", caller=own, to="x@y.example", text="it")
        assert isinstance(ended, ToolResult)
        assert not ended.is_error


async def test_a_call_in_a_room_uses_the_memory_of_the_room() -> None:
    desk = Desk(whose)
    private = said("t2", "hi", "Alice", WHO.bare, principal=WHO.bare, private=True)
    async with desk.world.running():
        for request, owner in ((asked(), ROOM), (private, ROOM.with_resource("o-Alice"))):
            found = await desk.call("whose", f"{owner}", caller=caller(request))
            assert found == ToolResult(f"{WHO.bare} {owner}")


def test_work_that_an_occupant_starts_has_the_limits_of_the_room() -> None:
    request = asked(None, skills=("look.*",))
    assert request.rights == AgentLimits(("look.*",), ("*",), read_only=True, unconfirmed=True)
    assert isinstance(request.room, RoomRequest)
