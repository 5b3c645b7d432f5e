"""From results to verdicts, and from verdicts to profiles."""

from dataclasses import replace

import pytest

from conformance.model import Finding, Outcome, ProfileStatus, Result, Status
from conformance.requirements import load
from conformance.verdicts import profiles, verdicts

SPECIFICATION = load()
EVERYTHING = frozenset(SPECIFICATION.by_id)
CORE = frozenset({"core"})


def result(outcome: Outcome, id_: str = "EXE-003", *, held: bool = False, **more: object) -> Result:
    held_ids = frozenset({id_}) if held else frozenset()
    found = (Finding(id_, "this", "that"),) if outcome is Outcome.FAILED else ()
    name = f"some.{outcome.name.lower()}"
    return Result(name, "Some", (id_,), outcome, held_ids, found, "why", **more)  # type: ignore[arg-type]


KEPT = result(Outcome.PASSED, held=True)


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([KEPT], Status.KEPT),
        ([result(Outcome.FAILED)], Status.BROKEN),
        ([KEPT, result(Outcome.FAILED)], Status.BROKEN),
        ([result(Outcome.BLOCKED)], Status.BLOCKED),
        ([KEPT, result(Outcome.BLOCKED)], Status.BLOCKED),
        ([KEPT, result(Outcome.BLOCKED, optional=True)], Status.KEPT),
        ([result(Outcome.BLOCKED, held=True)], Status.KEPT),
        ([result(Outcome.FAULT)], Status.FAULT),
        ([result(Outcome.UNOBSERVABLE)], Status.NOT_OBSERVABLE),
        ([result(Outcome.UNCLAIMED)], Status.NOT_CLAIMED),
        ([KEPT, result(Outcome.UNOBSERVABLE)], Status.KEPT),
        ([], Status.UNWRITTEN),
    ],
)
def test_the_worst_that_was_seen_is_the_verdict(results: list[Result], status: Status) -> None:
    found = verdicts(SPECIFICATION, EVERYTHING, results, CORE, {})
    assert found["EXE-003"].status is status


@pytest.mark.parametrize(
    ("id_", "status"),
    [("EXE-010", Status.WARNING), ("SKL-009", Status.NOTE), ("EXE-003", Status.BROKEN)],
)
def test_what_is_broken_weighs_by_its_level(id_: str, status: Status) -> None:
    found = verdicts(SPECIFICATION, EVERYTHING, [result(Outcome.FAILED, id_)], CORE, {})
    assert found[id_].status is status


def test_what_nothing_can_see_says_why() -> None:
    found = verdicts(SPECIFICATION, EVERYTHING, [], CORE, {})
    assert found["COM-018"].status is Status.UNCHECKED
    assert found["COM-018"].reason == "Randomness cannot be proved by a sample."


def test_what_is_disputed_is_told_with_its_link_and_does_not_count() -> None:
    link = "https://example.org/issues/1"
    rows = [
        replace(one, disputed=link if one.id == "EXE-003" else "")
        for one in SPECIFICATION.requirements
    ]
    disputed = replace(SPECIFICATION, requirements=tuple(rows))
    found = verdicts(disputed, EVERYTHING, [result(Outcome.FAILED)], CORE, {})
    assert found["EXE-003"].status is Status.DISPUTED
    assert link in found["EXE-003"].reason
    judged = profiles(disputed, found, CORE, strict=True)
    assert judged["core"] is not ProfileStatus.FAILS


def test_a_warning_counts_only_if_strict() -> None:
    found = verdicts(SPECIFICATION, EVERYTHING, [result(Outcome.FAILED, "EXE-010")], CORE, {})
    assert profiles(SPECIFICATION, found, CORE, strict=False)["core"] is ProfileStatus.PARTLY
    assert profiles(SPECIFICATION, found, CORE, strict=True)["core"] is ProfileStatus.FAILS


def test_what_is_not_claimed_is_not_held_against_anybody() -> None:
    broken = [result(Outcome.FAILED, "TSK-003")]
    found = verdicts(SPECIFICATION, EVERYTHING, broken, CORE, {})
    assert found["TSK-003"].status is Status.NOT_CLAIMED
    assert profiles(SPECIFICATION, found, CORE, strict=True)["tasks"] is ProfileStatus.NOT_CLAIMED


def test_a_baseline_expects_and_is_expected_to_be_true() -> None:
    expected = {"EXE-003": "later"}
    found = verdicts(SPECIFICATION, EVERYTHING, [result(Outcome.FAILED)], CORE, expected)
    assert found["EXE-003"].status is Status.EXPECTED
    assert profiles(SPECIFICATION, found, CORE, strict=True)["core"] is not ProfileStatus.FAILS
    found = verdicts(SPECIFICATION, EVERYTHING, [KEPT], CORE, expected)
    assert found["EXE-003"].status is Status.UNEXPECTED
    assert profiles(SPECIFICATION, found, CORE, strict=False)["core"] is ProfileStatus.FAILS


def test_only_what_was_selected_is_judged() -> None:
    found = verdicts(SPECIFICATION, frozenset({"EXE-003"}), [KEPT], CORE, {})
    assert found["EXE-003"].status is Status.KEPT
    assert found["EXE-004"].status is Status.NOT_SELECTED
    judged = profiles(SPECIFICATION, found, CORE, strict=False)
    assert judged["core"] is ProfileStatus.HOLDS
    assert judged["tasks"] is ProfileStatus.NOT_JUDGED


def test_what_is_claimed_and_has_no_check_is_not_called_kept() -> None:
    claimed = frozenset({"core", "memory"})
    found = verdicts(SPECIFICATION, EVERYTHING, [KEPT], claimed, {})
    judged = profiles(SPECIFICATION, found, claimed, strict=False)
    assert judged["memory"] is ProfileStatus.NOT_JUDGED
    assert judged["delegation"] is ProfileStatus.NOT_CLAIMED
    assert judged["core"] is ProfileStatus.PARTLY
