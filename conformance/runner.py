"""Runs the checks, each with a time-out, and collects the results.

Faults of the kit are distinguished from those of the target: a violation is a finding, a missing
precondition blocks the check, and any other exception is a fault of the kit.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

import anyio

from conformance import verdicts
from conformance.baseline import unknown_ids
from conformance.checks.discovery import agent_form
from conformance.drivers import Driver, DriverError
from conformance.holding import BlockedError, NoAnswerError
from conformance.model import Check, Finding, Outcome, Result, Run
from conformance.post import Post
from conformance.record import Record
from conformance.requirements import Specification
from conformance.selection import Selection
from conformance.skills_map import Skill
from conformance.talk import Talk
from conformance.target import Target
from conformance.watches import watches
from xep.binding import ContentError
from xep.disco import InfoQuery
from xep.fluux_agent.skills import SkillsQuery
from xep.result_sets import ResultSet

CHECK_TIMEOUT = 60.0
"""Seconds that one check may take in total."""
ONE_ANSWER = "rules.one-answer"
"""The name of the check of all answers of the run."""
_SETTLE = 0.3
"""Seconds after the last check in which a second answer may still arrive."""

Progress = Callable[[Result, int, int], None]
"""Called with each result, the number of results so far, and the total."""


async def _nothing(_talk: Talk) -> None:
    pass


_ABOUT = Check("target.about", "What the target says of itself", ("RUL-004",), _nothing)


@dataclass
class Plan:
    """The parameters of a run.

    Attributes:
        address: the address for requests.
        selection: the checks to run.
        skills: the skill for each role.
        timeout: seconds to wait for an answer.
        strict: whether a SHOULD counts.
        baseline: the requirements that are expected to be violated, and why.
        claims: profiles that are tested whether or not they are advertised.
    """

    address: str
    specification: Specification
    selection: Selection
    skills: Mapping[str, Skill]
    timeout: float = 10.0
    strict: bool = False
    baseline: Mapping[str, str] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()


async def run(plan: Plan, driver: Driver, progress: Progress | None = None) -> Run:
    """Test the target.

    Raises:
        DriverError: it cannot be reached.
    """
    target = Target(plan.address, plan.skills)
    post = Post(driver)
    started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    begun = monotonic()
    async with driver.open(post.deliver):
        about = await _about(post, target, plan.timeout)
        post.watch(watches(target.number("max_stanza_bytes", 262144)))
        results = [about]
        if about.outcome is Outcome.PASSED:
            results += await _checks(plan, post, target, progress)
            await anyio.sleep(_SETTLE)
    results += _watched(post) if about.outcome is Outcome.PASSED else []
    results.append(_one_answer(post, results))
    return _judged(plan, driver, target, results, started, monotonic() - begun)


def _judged(
    plan: Plan,
    driver: Driver,
    target: Target,
    results: Sequence[Result],
    started: str,
    seconds: float,
) -> Run:
    specification = plan.specification
    claimed = plan.claims | {
        profile.name for profile in specification.profiles if profile.feature in target.features
    }
    about = results[0]
    if about.outcome is not Outcome.PASSED:
        claimed |= {"core"}  # nobody tests a target that does not claim to be an agent
    selected = plan.selection.ids
    found = verdicts.verdicts(specification, selected, results, claimed, plan.baseline)
    judged = verdicts.profiles(specification, found, claimed, strict=plan.strict)
    faults = [f"{one.name}: {one.reason}" for one in results if one.outcome is Outcome.FAULT]
    return Run(
        target=plan.address,
        driver=driver.name,
        about=target.about(),
        started=started,
        seconds=seconds,
        results=tuple(results),
        verdicts=found,
        profiles=judged,
        faults=tuple(faults),
        stale=unknown_ids(plan.baseline, specification.by_id),
    )


# -- the parts of a run --------------------------------------------------------------------------


async def _about(post: Post, target: Target, timeout_s: float) -> Result:
    """Query the information about the target that checks need."""
    talk = Talk(_ABOUT, post, target, timeout_s)

    async def ask(t: Talk) -> None:
        info = t.given(await t.iq("get", InfoQuery()), InfoQuery, "disco#info")
        target.features = frozenset(one.var for one in info.features)
        target.fields = agent_form(info) or {}
        offered: list[str] = []
        after: str | None = None
        while True:
            page = None if after is None else ResultSet(after=after)
            answer = await t.iq("get", SkillsQuery(page=page))
            query = t.given(answer, SkillsQuery, "The skills query")
            offered += [skill.name for skill in query.skills]
            last = query.page.last if query.page is not None else None
            if not query.skills or last in (None, after):
                break
            after = last
        target.offered = frozenset(offered)
        t.hold("RUL-004", True, "answers")

    return await _carry_out(_ABOUT, talk, ask)


async def _checks(
    plan: Plan, post: Post, target: Target, progress: Progress | None
) -> list[Result]:
    chosen = plan.selection.checks
    results: dict[str, Result] = {}

    async def one(check: Check) -> None:
        result = _beforehand(check, post.driver, target)
        if result is None:
            talk = Talk(check, post, target, plan.timeout)
            result = await _carry_out(check, talk, check.run)
        results[check.name] = result
        if progress is not None:
            progress(result, len(results), len(chosen))

    async def lane(*queues: list[Check]) -> None:
        for queue in queues:
            while queue:
                await one(queue.pop(0))

    together = [check for check in chosen if not check.alone]
    in_order = [check for check in together if check.ordered]
    others = [check for check in together if not check.ordered]
    ordered = post.driver.ordered
    async with anyio.create_task_group() as group:
        for number in range(post.driver.lanes):
            queues = (in_order, others) if number < ordered else (others,)
            group.start_soon(lane, *queues)
    for check in chosen:
        if check.alone:
            await one(check)
    return [results[check.name] for check in chosen]


def _beforehand(check: Check, driver: Driver, target: Target) -> Result | None:
    """Return the result of a check that need not be run; None when it must be run."""

    def result(outcome: Outcome, reason: str) -> Result:
        return Result(check.name, check.title, check.observes, outcome, reason=reason)

    lacking = check.needs - driver.abilities
    if lacking:
        words = "; ".join(sorted(one.value for one in lacking))
        return result(Outcome.UNOBSERVABLE, f"This driver cannot: {words}.")
    missing = [one for one in check.features if one not in target.features]
    if missing:
        return result(Outcome.UNCLAIMED, f"Not in disco#info: {', '.join(missing)}.")
    for role in check.roles:
        name = target.skills[role].name
        if role != "hidden" and name not in target.offered:
            reason = (
                f"The caller is not offered {name}, which plays the role {role}. Offer the"
                " fixtures (conformance.*), or name the target's equivalent in --skills."
            )
            return result(Outcome.BLOCKED, reason)
    return None


async def _carry_out(check: Check, talk: Talk, run_check: Callable[[Talk], object]) -> Result:
    """Run one check to its end, however it ends."""
    begun = monotonic()
    outcome, reason = Outcome.PASSED, ""
    try:
        async with talk.open():
            with anyio.fail_after(CHECK_TIMEOUT):
                await run_check(talk)  # type: ignore[misc]
    except NoAnswerError as error:
        outcome, reason = Outcome.BLOCKED, str(error)
    except (BlockedError, DriverError) as error:
        outcome, reason = Outcome.BLOCKED, str(error)
    except ContentError as error:
        outcome, reason = Outcome.BLOCKED, f"What came does not fit its schema: {error}"
    except TimeoutError:
        outcome, reason = Outcome.BLOCKED, f"It took more than {CHECK_TIMEOUT:g} s."
    except Exception as error:  # noqa: BLE001 - a fault of the kit must not end the run
        lines = traceback.format_exception(error)
        outcome, reason = Outcome.FAULT, f"{error!r}\n{''.join(lines[-4:])}"
    else:
        unheld = [id_ for id_ in check.observes if id_ not in talk.held]
        if unheld and not talk.findings:
            outcome = Outcome.FAULT
            reason = f"The check says that it observes {', '.join(unheld)} and did not."
    findings = list(talk.findings)
    findings += [
        Finding("RUL-004", "exactly one answer to each IQ", f"no answer to the IQ {id_}")
        for id_ in talk.unanswered
        if not (check.name == _ABOUT.name and not talk.target.features)
    ]
    if findings and outcome is not Outcome.FAULT:
        outcome = Outcome.FAILED
    broken = {one.id for one in findings}
    return Result(
        check.name,
        check.title,
        check.observes,
        outcome,
        frozenset(talk.held - broken),
        tuple(findings),
        reason,
        talk.record,
        monotonic() - begun,
    )


def _watched(post: Post) -> list[Result]:
    """Return the results of the watches."""
    results = []
    for watch in watches(0):
        found = post.watched[watch.name]
        if not post.seen[watch.name]:
            outcome, reason = Outcome.BLOCKED, "No stanza came that it is about."
        else:
            outcome = Outcome.FAILED if found else Outcome.PASSED
            reason = f"Looked at {post.seen[watch.name]} stanzas."
        record = Record()
        for _, stanza in found[:3]:
            record.add("in", 0.0, stanza.xml)
        results.append(
            Result(
                watch.name,
                watch.title,
                watch.observes,
                outcome,
                frozenset(watch.observes) if outcome is Outcome.PASSED else frozenset(),
                tuple([finding for finding, _ in found[:20]]),
                reason,
                record,
                optional=True,
            )
        )
    return results


def _one_answer(post: Post, results: Sequence[Result]) -> Result:
    """Return the result on whether each IQ of the whole run had exactly one answer."""
    findings = [finding for finding, _ in post.strays]
    record = Record()
    for _, xml in post.strays[:3]:
        record.add("in", 0.0, xml)
    outcome = Outcome.FAILED if findings else Outcome.PASSED
    held = frozenset({"RUL-004"}) if post.asked and not findings else frozenset()
    reason = f"{post.asked} IQs were sent in {len(results)} checks."
    title = "Every IQ has exactly one answer, to who asked"
    return Result(ONE_ANSWER, title, ("RUL-004",), outcome, held, tuple(findings), reason, record)
