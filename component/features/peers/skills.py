"""The skill `peers_ask`: it calls skills of several peers at the same time.

Each call is a child task, so it needs what a call of that skill alone needs: the rights of the
caller, the limits of its agent, the rules for data, and the confirmation of the person.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from component.kernel.environment import Catalog
from component.policy.globs import pattern
from component.policy.policy import ASKS_PEERS
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError, printable
from component.skills.operations import ChildFailed, ChildResult
from component.skills.outputs import SkillResult, text_and_data
from component.skills.skill import Skill
from xep.jid import JID

MOST_CALLS: Final = 16
_LONGEST_NAME: Final = 100

How: TypeAlias = Literal["all", "best-effort", "first-good"]
Params: TypeAlias = dict[str, Any]


class PeerCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call: the name of a skill of a peer, such as research.report, and its parameters."""

    skill: str
    params: Params = {}


class PeerAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a call. `agent` is the name of the peer, `skill` that of its skill here, `text`
    the result, `reason` why there is none. `task` is the task of the call, if it was started.
    """

    agent: str
    skill: str
    state: Literal["completed", "failed", "cancelled"]
    text: str = ""
    reason: str = ""
    task: str = ""


class PeerAnswers(msgspec.Struct, frozen=True):
    """The answers, in the order of the calls."""

    answers: list[PeerAnswer]


def peers_ask_skill(catalog: Callable[[], Catalog]) -> Skill:
    """Return the skill. `catalog` returns the skills, while the service runs."""

    @own_skill(
        name=ASKS_PEERS,
        title="Ask several agents",
        # The calls that it starts are judged and confirmed one by one.
        destructive=False,
        open_world=False,
        durable=True,
        taint="peer",
        tags=("agents",),
        examples=("Ask all archives for the river, and take the first good answer.",),
    )
    async def peers_ask(
        context: Context,
        skills: Annotated[
            tuple[str, ...],
            Meta(
                description="Skills of other agents that all get `params`: names such as"
                " research.report, or patterns such as *.search.",
                max_length=MOST_CALLS,
            ),
        ] = (),
        params: Annotated[Params | None, Meta(description="Parameters of these skills.")] = None,
        calls: Annotated[
            tuple[PeerCall, ...],
            Meta(
                description="Calls with parameters of their own.",
                max_length=MOST_CALLS,
            ),
        ] = (),
        how: Annotated[
            How,
            Meta(
                description="best-effort: wait for all, and say what failed. all: if one fails, the"
                " others are cancelled. first-good: the first success counts, and the others are"
                " cancelled."
            ),
        ] = "best-effort",
    ) -> Annotated[SkillResult, PeerAnswers]:
        """Call skills of several other agents at the same time, and get each answer with the name
        of its agent. Example: {"skills": ["*.search"], "params": {"words": "rivers"}}
        """

        async def find(_key: str) -> list[PeerCall]:
            alike = [PeerCall(name, params or {}) for name in _named(catalog(), context, skills)]
            return [*alike, *calls]

        wanted = await context.step("calls", find, list[PeerCall], repeatable=True)
        _check(catalog(), wanted)
        found = await _results(context, wanted, how)
        answers = [_answer(one, result) for one, result in zip(wanted, found, strict=True)]
        return _made(answers, how)

    return peers_ask


def _named(catalog: Catalog, context: Context, skills: Sequence[str]) -> list[str]:
    """Return the names of skills of peers: as given, and those that match a pattern and may be
    called.
    """
    view, found = catalog.view(JID.parse(context.principal)), dict[str, None]()
    for name in skills:
        if not {"*", "?"}.intersection(name):
            found[name] = None
            continue
        matches, policy = pattern((name,)), catalog.rights.policy
        for each in view.names():
            if policy.is_of_peer(each) and matches.fullmatch(each):
                skill = view.get(each)
                if skill is not None and _may_ask(context, skill):
                    found[each] = None
            if len(found) > MOST_CALLS:
                break
    return list(found)


def _may_ask(context: Context, skill: Skill) -> bool:
    reads = skill.annotations.read_only
    return context.limits.refusal(skill.name, skill.capabilities, read_only=reads) is None


def _check(catalog: Catalog, calls: Sequence[PeerCall]) -> None:
    """Raise SkillError if there is no call, one too many, or one that is not of a peer."""
    if not calls:
        raise SkillError("No skill of another agent has such a name. Name one in skills or calls.")
    if len(calls) > MOST_CALLS:
        raise SkillError(f"These are more than {MOST_CALLS} calls. Name fewer skills.")
    for one in calls:
        if not catalog.rights.policy.is_of_peer(one.skill):
            name = printable(one.skill, _LONGEST_NAME)
            raise SkillError(f"{name} is not a skill of another agent: run it by itself.")


async def _results(
    context: Context, calls: Sequence[PeerCall], how: How
) -> list[ChildResult | SkillError]:
    """Make the calls; return what came of each, or why it was not started."""
    found: list[ChildResult | SkillError] = []
    tasks: list[str] = []
    await context.confirm_tasks([(one.skill, one.params) for one in calls])
    for one in calls:
        try:
            tasks.append(await context.start(one.skill, one.params))
            found.append(ChildResult(tasks[-1], "cancelled"))
        except SkillError as error:
            found.append(error)
            if how == "all":
                return [*found, *(ChildResult("", "cancelled") for _ in calls[len(found) :])]
    results: Sequence[ChildResult]
    try:
        if how == "first-good":
            results = await context.wait_first(tasks)
        else:
            results = await context.wait(tasks, on_failure="raise" if how == "all" else "return")
    except ChildFailed as failed:
        results = failed.results
    by_task = {one.task: one for one in results}
    return [by_task[one.task] if isinstance(one, ChildResult) else one for one in found]


def _answer(call: PeerCall, result: ChildResult | SkillError) -> PeerAnswer:
    agent, skill = call.skill.partition(".")[0], call.skill
    if isinstance(result, SkillError):
        return PeerAnswer(agent, skill, "failed", reason=str(result))
    if result.success:
        return PeerAnswer(agent, skill, "completed", text=result.text, task=result.task)
    if result.is_error or result.state in ("failed", "rejected", "unknown"):
        reason = result.reason or result.text
        return PeerAnswer(agent, skill, "failed", reason=reason, task=result.task)
    return PeerAnswer(agent, skill, "cancelled", reason=result.reason, task=result.task)


def _made(answers: list[PeerAnswer], how: How) -> SkillResult:
    """Return the result for people and for programs; it is an error if too few have succeeded."""
    good = [one for one in answers if one.state == "completed"]
    if how == "first-good":
        good = good[:1]
    lines = [f"{one.skill}:\n{one.text}" for one in good]
    lines += [f"{one.skill} failed: {one.reason}" for one in answers if one.state == "failed"]
    if stopped := [one.skill for one in answers if one.state == "cancelled"]:
        lines.append(f"Cancelled: {', '.join(stopped)}")
    made = text_and_data("\n\n".join(lines), PeerAnswers(answers), "answers")
    is_error = len(good) < len(answers) if how == "all" else not good
    return msgspec.structs.replace(made, is_error=is_error)
