"""The possible authors of a result are in its row, for all who read it later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from component.policy.taint import Taint
from component.skills import Context, Output, SkillError, SkillResult, SkillUnavailable, skill
from component.skills.operations import ChildResult
from tests.component.tasks.world import AGENT, ANN, Open, living
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


@skill(name="says", read_only=True, taint="web")
async def says(of: str) -> SkillResult:
    """Return a text of these authors; of nobody without any."""
    taints: tuple[Taint, ...] = msgspec.convert(of.split(), tuple[Taint, ...])
    return SkillResult((Output("x"),), taints=taints)


@skill(name="declares", read_only=True, taint="file", open_world=False)
async def declares() -> str:
    return "x"


@skill(name="refuses", read_only=True, taint="peer")
async def refuses() -> str:
    raise SkillError("No, as a stranger says.")


@skill(name="breaks", read_only=True, taint="peer")
async def breaks() -> str:
    raise OSError("broken")


@skill(name="remote", read_only=True, taint="peer")
async def remote() -> str:
    raise SkillUnavailable("a stranger says why", begun=False)


async def test_a_parent_gets_exactly_the_authors_of_each_result(open_storage: Open) -> None:
    results: Sequence[ChildResult] = ()

    @skill(name="asks", durable=True)
    async def asks(context: Context) -> str:
        nonlocal results
        calls = [("says", {"of": "file room"}), ("says", {"of": ""})]
        calls += [(name, {}) for name in ("declares", "refuses", "breaks", "remote")]
        started = [
            await context.start(name, params, key=at) for at, (name, params) in enumerate(calls)
        ]
        results = await context.wait(started, on_failure="return")
        return "asked"

    skills = (says, declares, refuses, breaks, remote)
    async with living(open_storage, asks, *skills) as world:
        task = await world.task("asks")
        await world.ear.ended(task)
        assert [one.taints for one in results] == [
            ("file", "room"),
            (),
            ("file",),
            ("peer",),
            (),
            ("peer",),
        ]
        found = await world.service.look_up(ANN.bare, AGENT, results[0].task)
        assert (found.authors, found.rests) == (("file", "room"), True)


async def test_what_is_a_part_of_a_task_that_has_ended_does_not_begin(open_storage: Open) -> None:
    async with living(open_storage, declares) as world:
        ended = await world.task("declares")
        await world.ear.ended(ended)
        late = msgspec.structs.replace(world.call("declares", mode="async"), parent=ended)
        with pytest.raises(StanzaError, match="has ended"):
            await world.execute(late)
        assert await world.scalar("SELECT count(*) FROM tasks") == 1
