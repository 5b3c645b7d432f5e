"""What a plan does next."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from component.plans.advance import Attempt, AttemptState, advance
from component.plans.checks import faults
from component.plans.document import Plan, plan_of
from tests.component.plans.strategies import plans

OUTCOMES: tuple[AttemptState, ...] = ("done", "failed", "unknown", "cancelled")


def plan(*steps: dict[str, Any], **more: Any) -> Plan:
    """Return a plan of calls with these ids."""
    given = [{"kind": "call", "skill": "work"} | one for one in steps]
    made = plan_of({"title": "A plan", "goal": "Work", "steps": given, **more})
    assert faults(made) == []
    return made


def done(*ids: str) -> dict[str, Attempt]:
    """Return steps that are done."""
    return {id_: Attempt("done") for id_ in ids}


CHAIN = plan({"id": "a"}, {"id": "b", "after": ["a"]})


def test_a_step_begins_when_the_steps_before_it_are_done() -> None:
    assert advance(CHAIN, {}).start == (("a", 1),)
    assert advance(CHAIN, {"a": Attempt("running")}).start == ()
    assert advance(CHAIN, done("a")).start == (("b", 1),)
    assert advance(CHAIN, done("a", "b")).verdict == "completed"


def test_steps_that_do_not_wait_for_each_other_begin_together() -> None:
    both = plan({"id": "a"}, {"id": "b"})
    assert advance(both, {}).start == (("a", 1), ("b", 1))


def test_only_what_may_be_repeated_is_tried_again() -> None:
    retried = plan({"id": "a", "retries": 1})
    may, must_not = Attempt("failed", repeatable=True), Attempt("failed")
    assert advance(retried, {"a": may}).start == (("a", 2),)
    assert advance(retried, {"a": must_not}).verdict == "blocked"
    assert advance(retried, {"a": Attempt("failed", 2, repeatable=True)}).because == "a"


def test_another_step_runs_in_place_of_one_that_failed() -> None:
    replaced = plan({"id": "a", "otherwise": "b"}, {"id": "b"}, {"id": "c", "after": ["a"]})
    assert advance(replaced, {}).start == (("a", 1),)
    failed = {"a": Attempt("failed")}
    assert advance(replaced, failed).start == (("b", 1),)
    assert advance(replaced, failed | done("b")).start == (("c", 1),)
    assert advance(replaced, failed | {"b": Attempt("failed")}).because == "a"


def test_a_plan_goes_on_without_an_optional_step() -> None:
    optional = plan({"id": "a", "optional": True}, {"id": "b", "after": ["a"]})
    found = advance(optional, {"a": Attempt("failed")})
    assert found.start == (("b", 1),)
    assert found.situations["a"] == "skipped"


def test_an_unknown_outcome_is_never_repeated_without_a_person() -> None:
    retried = plan({"id": "a", "retries": 5, "optional": True, "otherwise": "b"}, {"id": "b"})
    unknown = Attempt("unknown", repeatable=True)
    found = advance(retried, {"a": unknown})
    assert (found.start, found.ask) == ((), ("a",))

    def decided(decision: Any) -> Attempt:
        return msgspec.structs.replace(unknown, decision=decision)

    assert advance(retried, {"a": decided("again")}).start == (("a", 2),)
    assert advance(retried, {"a": decided("done")}).verdict == "completed"
    assert advance(retried, {"a": decided("skip")}).situations["a"] == "skipped"
    assert advance(retried, {"a": decided("stop")}).verdict == "blocked"


@pytest.mark.parametrize(
    ("policy", "cancelled", "verdict"),
    [("all", ("b",), "blocked"), ("best-effort", (), None), ("first", (), None)],
)
def test_a_step_that_fails_ends_a_group_only_if_all_are_needed(
    policy: str, cancelled: tuple[str, ...], verdict: str | None
) -> None:
    grouped = plan({"id": "a", "group": "g"}, {"id": "b", "group": "g"}, groups={"g": policy})
    found = advance(grouped, {"a": Attempt("failed"), "b": Attempt("running")})
    assert (found.cancel, found.verdict) == (cancelled, verdict)


def test_the_first_success_ends_a_group_and_cancels_the_others() -> None:
    grouped = plan(
        {"id": "a", "group": "g"},
        {"id": "b", "group": "g"},
        {"id": "c", "after": ["g"]},
        groups={"g": "first"},
    )
    found = advance(grouped, done("a") | {"b": Attempt("running")})
    assert (found.cancel, found.start) == (("b",), (("c", 1),))


def test_a_group_in_which_nothing_succeeds_blocks_the_plan() -> None:
    for policy in ("best-effort", "first"):
        grouped = plan({"id": "a", "group": "g"}, {"id": "b", "group": "g"}, groups={"g": policy})
        found = advance(grouped, {"a": Attempt("failed"), "b": Attempt("cancelled")})
        assert found.verdict == "blocked"


@settings(max_examples=150)
@given(plans(), st.data())
def test_a_plan_ends_and_no_step_begins_too_early_or_too_often(made: Plan, data: Any) -> None:
    """Play a plan with any outcomes, and check each decision by rules that are written anew."""
    assert faults(made) == []
    attempts: dict[str, Attempt] = {}
    started: Counter[str] = Counter()
    replaces = {one.otherwise: one.id for one in made.steps if one.otherwise}
    for _ in range(200):
        found = advance(made, attempts)
        over = ("done", "skipped", "lost")
        for id_, number in found.start:
            step = made.step(id_)
            started[id_] += 1
            assert number == started[id_], "attempts are counted"
            for name in step.after:
                members = [one.id for one in made.members(name)] or [name]
                assert all(found.situations[one] in over for one in members)
            group = made.step(replaces.get(id_, id_)).group
            if made.groups.get(group) == "first":
                assert all(found.situations[one.id] != "done" for one in made.members(group))
            if id_ in replaces:
                assert attempts[replaces[id_]].state in ("failed", "cancelled")
            if number > 1:
                before = attempts[id_]
                assert before.decision == "again" or (
                    before.repeatable and before.state == "failed" and number <= step.retries + 1
                )
            attempts[id_] = Attempt("running", number)
        for id_ in found.cancel:
            assert attempts[id_].state == "running"
            attempts[id_] = Attempt("skipped", attempts[id_].number)
        for id_ in found.ask:
            decision = data.draw(st.sampled_from(("done", "again", "skip", "stop")))
            attempts[id_] = msgspec.structs.replace(attempts[id_], decision=decision)
        running = sorted(id_ for id_, one in attempts.items() if one.state == "running")
        if found.verdict is not None:
            break
        if running and not found.ask:
            id_ = data.draw(st.sampled_from(running))
            state = data.draw(st.sampled_from(OUTCOMES))
            repeatable = data.draw(st.booleans())
            attempts[id_] = Attempt(state, attempts[id_].number, repeatable)
        assert running or found.ask or found.start or found.cancel, "it never stands still"
    else:
        raise AssertionError("the plan does not end")
    if found.verdict == "completed":
        assert not running
        for step in made.steps:
            tolerant = step.optional or made.groups.get(step.group, "all") != "all"
            if step.id not in replaces and not tolerant:
                own = attempts.get(step.id)
                decided = own is not None and own.decision in ("skip", "done")
                place = attempts.get(step.otherwise)
                assert decided or any(
                    one is not None and (one.state == "done" or one.decision in ("skip", "done"))
                    for one in (own, place)
                )
    else:
        assert found.because in {one.id for one in made.steps}
