"""Plans of a service that is killed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.component.features.plans.planning import Deeds, answer, plan, planning, started
from tests.kit import anyio_backend

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


def slow(id_: str, *after: str) -> dict[str, Any]:
    """Return a step that takes a minute."""
    return {"id": id_, "skill": "slow", "params": {"text": id_}, "after": list(after)}


async def test_each_step_runs_once_however_often_the_service_is_killed(tmp_path: Path) -> None:
    document = plan(slow("a"), slow("b"), slow("c", "a", "b"), result="{a.text} {b.text} {c.text}!")
    async with planning(tmp_path) as (kit, juliet, deeds):
        await started(juliet, document)
        for seconds in (0, 20, 45, 0, 30):
            await kit.advance(seconds)
            await kit.restart(kill=True)
        await juliet.hear("slow a slow b slow c!", within_s=600)
    assert sorted(deeds.done) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("decision", "done", "said"),
    [
        ("do it again", ["a", "a", "b"], "did b"),
        ("it is done", ["a", "b"], "did b"),
        ("skip it", ["a", "b"], "Without: run do"),
        ("stop the plan", ["a"], "could not finish"),
    ],
)
async def test_a_step_with_an_unknown_outcome_is_decided_by_the_person(
    tmp_path: Path, decision: str, done: list[str], said: str
) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]})
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        await started(juliet, document)
        await kit.settled()
        await kit.restart(kill=True)
        deeds.release()
        await juliet.hear("do not know whether it was done")
        await answer(kit, juliet, decision)
        await juliet.hear(said)
    assert deeds.done == done


@pytest.mark.parametrize("decision", ["it is done", "skip it"])
async def test_a_revision_does_not_repeat_what_a_person_has_decided(
    tmp_path: Path, decision: str
) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, slow("b", "a"))
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        id_ = await started(juliet, document)
        await kit.settled()
        await kit.restart(kill=True)
        deeds.release()
        await juliet.hear("do not know whether it was done")
        await answer(kit, juliet, decision)
        await kit.settled()
        other = plan({"id": "a"}, slow("b", "a"), {"id": "c", "after": ["b"]})
        await juliet.ask(f"/plan revise {id_} {json.dumps(other)}", "as you have revised it")
        await juliet.hear("did c", within_s=600)
    assert deeds.done == ["a", "b", "c"]
