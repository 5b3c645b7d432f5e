"""Derives verdicts on requirements from the results of checks, and on profiles from these."""

from collections.abc import Mapping, Sequence
from typing import Final

from conformance.model import RED, Outcome, ProfileStatus, Result, Status, Verdict
from conformance.requirements import Profile, Requirement, Specification

_BROKEN: Final = {"must": Status.BROKEN, "should": Status.WARNING, "may": Status.NOTE}


def verdicts(
    specification: Specification,
    selected: frozenset[str],
    results: Sequence[Result],
    claimed: frozenset[str],
    baseline: Mapping[str, str],
) -> dict[str, Verdict]:
    """Derive the verdict on every requirement.

    Args:
        specification: the requirements.
        selected: the requirements that are tested in this run.
        results: the results of checks and watches.
        claimed: the names of the profiles that the target claims.
        baseline: the requirements that are expected to be broken, and why.
    """
    by_id: dict[str, list[Result]] = {}
    for result in results:
        for id_ in {*result.observes, *(one.id for one in result.findings)}:
            by_id.setdefault(id_, []).append(result)
    found = {}
    for requirement in specification.requirements:
        own = tuple(by_id.get(requirement.id, ()))
        if requirement.id not in selected:
            found[requirement.id] = Verdict(requirement.id, Status.NOT_SELECTED)
            continue
        verdict = _verdict(requirement, own, requirement.profile in claimed)
        found[requirement.id] = _expected(verdict, baseline.get(requirement.id))
    return found


def profiles(
    specification: Specification,
    found: Mapping[str, Verdict],
    claimed: frozenset[str],
    *,
    strict: bool,
) -> dict[str, ProfileStatus]:
    """Derive the verdict on every profile from its requirements.

    With ``strict``, a SHOULD that is not followed also fails a profile.
    """
    red = RED | {Status.WARNING} if strict else RED
    return {
        profile.name: _profile(specification, profile, found, claimed, red)
        for profile in specification.profiles
    }


def _verdict(requirement: Requirement, results: tuple[Result, ...], claimed: bool) -> Verdict:
    id_ = requirement.id
    if not results:
        return _without_check(requirement)
    broken = [one for result in results for one in result.findings if one.id == id_]
    if broken and not claimed:
        return Verdict(id_, Status.NOT_CLAIMED, broken[0].expected, results)
    if broken:
        reason = broken[0].expected
        if requirement.disputed:
            reason = f"{reason} (disputed: {requirement.disputed})"
            return Verdict(id_, Status.DISPUTED, reason, results)
        return Verdict(id_, _BROKEN[requirement.severity], reason, results)
    outcomes = {result.outcome: result for result in reversed(results)}
    if Outcome.FAULT in outcomes:
        return Verdict(id_, Status.FAULT, outcomes[Outcome.FAULT].reason, results)
    if not claimed:
        return Verdict(id_, Status.NOT_CLAIMED, "Its feature is not in disco#info.", results)
    stuck = [one for one in results if one.outcome is Outcome.BLOCKED and id_ not in one.held]
    stuck = [one for one in stuck if not one.optional]
    if stuck:
        return Verdict(id_, Status.BLOCKED, stuck[0].reason, results)
    if any(id_ in result.held for result in results):
        return Verdict(id_, Status.KEPT, "", results)
    for outcome, status in (
        (Outcome.UNOBSERVABLE, Status.NOT_OBSERVABLE),
        (Outcome.UNCLAIMED, Status.NOT_CLAIMED),
    ):
        if outcome in outcomes:
            return Verdict(id_, status, outcomes[outcome].reason, results)
    reason = results[0].reason or "Nothing was seen that it is about."
    return Verdict(id_, Status.NOT_OBSERVABLE, reason, results)


def _without_check(requirement: Requirement) -> Verdict:
    if requirement.unobservable:
        return Verdict(requirement.id, Status.UNCHECKED, requirement.unobservable)
    if "::" in requirement.check:
        reason = "It is observed by a test of the reference implementation, not by this kit."
        return Verdict(requirement.id, Status.UNCHECKED, reason)
    reason = f"The check {requirement.check} is not part of this release of the kit."
    return Verdict(requirement.id, Status.UNWRITTEN, reason)


def _expected(verdict: Verdict, reason: str | None) -> Verdict:
    if reason is None:
        return verdict
    if verdict.status in (Status.BROKEN, Status.WARNING, Status.BLOCKED):
        return Verdict(verdict.id, Status.EXPECTED, reason, verdict.results)
    if verdict.status is Status.KEPT:
        text = f"The baseline expects it to be broken: {reason}. Take the entry out."
        return Verdict(verdict.id, Status.UNEXPECTED, text, verdict.results)
    return verdict


def _profile(
    specification: Specification,
    profile: Profile,
    found: Mapping[str, Verdict],
    claimed: frozenset[str],
    red: frozenset[Status],
) -> ProfileStatus:
    own = [
        found[one.id].status for one in specification.requirements if one.profile == profile.name
    ]
    if all(status is Status.NOT_SELECTED for status in own):
        return ProfileStatus.NOT_JUDGED
    if profile.name not in claimed:
        return ProfileStatus.NOT_CLAIMED
    idle = (Status.NOT_SELECTED, Status.UNCHECKED, Status.UNWRITTEN)
    if all(status in idle for status in own):
        return ProfileStatus.NOT_JUDGED
    if red & set(own):
        return ProfileStatus.FAILS
    return ProfileStatus.PARTLY if Status.UNWRITTEN in own else ProfileStatus.HOLDS
