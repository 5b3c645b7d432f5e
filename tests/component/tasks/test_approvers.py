"""A request is accepted before it is known who has to confirm it."""

from __future__ import annotations

import anyio
import pytest

from component.skills import Context, Skill, skill
from component.tasks.request import Confirmation, Request
from tests.component.tasks.test_durable import conditions, text_of
from tests.component.tasks.world import AGENT, ANN, Open, living
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted

pytestmark = pytest.mark.anyio


@skill(name="erase", destructive=True, durable=True)
async def erase(context: Context) -> str:
    return "erased"


class Approvers:
    """Finds out who has to confirm, when it is let."""

    def __init__(self, found: Confirmation | None = None, refused: bool = False) -> None:
        self.found = found
        self.refused = refused
        self.asked = anyio.Event()
        self.answer = anyio.Event()

    def needed(self, _request: Request, _skill: Skill) -> bool:
        return False

    async def find(self, _request: Request, skill: Skill) -> Confirmation | None:
        assert skill is erase
        self.asked.set()
        await self.answer.wait()
        if self.refused:
            raise errors.confirmation_unavailable()
        return self.found


async def test_a_request_is_accepted_before_anybody_answers(open_storage: Open) -> None:
    approvers = Approvers(Confirmation((ANN.bare,)))
    async with living(open_storage, erase, approvers=approvers) as world:
        accepted = await world.run("erase", undecided=True)
        assert isinstance(accepted, Accepted)
        assert accepted.state == "accepted"
        await approvers.asked.wait()
        assert (await world.get(accepted.task)).state == "accepted"
        approvers.answer.set()
        await world.ear.in_state(accepted.task, "input-required")
        (question,) = await world.service.open_questions(ANN.bare, AGENT)
        await world.service.decide(ANN.bare, AGENT, Decision(id=question.id, value="approve"))
        assert text_of(await world.ear.ended(accepted.task)) == "erased"


@pytest.mark.ports
async def test_it_is_found_out_again_after_a_kill(open_storage: Open) -> None:
    approvers = Approvers()
    async with living(open_storage, erase, approvers=approvers) as world:
        task = await world.task("erase", undecided=True)
        await approvers.asked.wait()
    approvers = Approvers(Confirmation((ANN.bare,)))
    approvers.answer.set()
    async with living(open_storage, erase, approvers=approvers) as world:
        await world.ear.in_state(task, "input-required")
    assert approvers.asked.is_set()


@pytest.mark.parametrize("refused", [True, False])
async def test_nobody_to_ask_and_nobody_who_has_to_be(open_storage: Open, refused: bool) -> None:
    approvers = Approvers(refused=refused)
    approvers.answer.set()
    async with living(open_storage, erase, approvers=approvers) as world:
        task = await world.task("erase", undecided=True)
        ended = await world.ear.ended(task)
        if refused:
            assert ended.state == "rejected"
            assert conditions(ended) == (errors.ConfirmationUnavailable(),)
            assert ended.failure is not None
            assert ended.failure.repeatable  # nothing has run
        else:
            assert text_of(ended) == "erased"
