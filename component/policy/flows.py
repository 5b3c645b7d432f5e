"""Flow rules: which skills a model may call after it was shown untrusted data.

A model sometimes follows instructions in the data that it reads. So the sources of the texts that
it was shown decide whether a call is allowed, needs confirmation or is refused.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from component.policy.globs import pattern, within
from component.policy.taint import Taint

Verdict: TypeAlias = Literal["allow", "confirm", "refuse"]
_ORDER: Final[tuple[Verdict, ...]] = ("allow", "confirm", "refuse")
TRUSTED: frozenset[Taint] = frozenset(("person",))
"""Taints whose texts may contain instructions: those of the person in the conversation."""


class AgentLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent may use: patterns of the names of skills, and of their capabilities.

    `read_only` says that it may use only skills that only read. `unconfirmed` says that it is not
    known who asks, so that nobody can confirm a call as the one who has asked.
    """

    skills: tuple[str, ...] = ("*",)
    capabilities: tuple[str, ...] = ("*",)
    read_only: bool = False
    unconfirmed: bool = False

    def refusal(self, skill: str, capabilities: Iterable[str], *, read_only: bool) -> str | None:
        """Return the sentence why the agent must not use a skill; None if it may. `read_only` says
        whether the skill only reads.
        """
        if pattern(self.skills).fullmatch(skill) is None:
            return f"The skill {skill} is not among the skills of this agent."
        if self.read_only and not read_only:
            return f"{skill} must not be used here, because it does more than read."
        missing = covers(self.capabilities, capabilities)
        return None if missing is None else lacks(skill, missing)


class Flow(msgspec.Struct, frozen=True):
    """A rule for data `of` these taints that is to reach one of the capabilities `to`.

    In `to`, `*` matches any characters and `?` any single one, and `network` everything that begins
    with `network:`, as in granted capabilities; a skill that declares no capability is matched by
    `*` only.
    """

    of: tuple[Taint, ...]
    to: tuple[str, ...]
    then: Verdict


class Decision(msgspec.Struct, frozen=True):
    """Whether a call may be made, why, for the audit log, and what the model has chosen, if that
    is the reason.
    """

    verdict: Verdict
    reason: str = ""
    chosen: tuple[str, ...] = ()


class Flows:
    """Decides what tainted data may reach. The first matching rule applies.

    Without one, a model that was shown untrusted data may use skills that are not open to the
    world, and may pass to others what it has not chosen itself (`component.policy.provenance`).
    With values that it has chosen, skills of the open world that only read are refused, and all
    others need confirmation. A call with a value that is reserved for the person is refused.
    """

    def __init__(self, rules: Sequence[Flow] = ()) -> None:
        self._rules = [(frozenset(rule.of), _reached(rule.to), rule.then) for rule in rules]

    def decide(
        self,
        taints: Iterable[Taint],
        capabilities: Sequence[str],
        *,
        read_only: bool,
        open_world: bool,
        chosen: Callable[[], Sequence[str]] = lambda: ("everything",),
        reserved: Callable[[], Sequence[str]] = lambda: (),
    ) -> Decision:
        """Decide about a call of a skill by a model that was shown data with these taints.

        The strictest verdict over all pairs of a taint and a capability counts. `chosen` returns
        the names of the arguments that the model has chosen, `reserved` those of the arguments with
        a value that must be the person's own, and is not. They are called only if that matters.
        """
        untrusted = sorted(frozenset(taints) - TRUSTED)
        if not untrusted:
            return Decision("allow")
        rules = [
            self._rule_for(taint, capability)
            for taint in untrusted
            for capability in (capabilities or ("",))
        ]
        found = [
            Decision(self._rules[number][2], f"rule {number + 1}")
            for number in rules
            if number is not None
        ]
        if None in rules:
            found.append(_by_default(chosen, reserved, read_only=read_only, open_world=open_world))
        strictest = max(found, key=lambda one: _ORDER.index(one.verdict))
        if not strictest.reason:
            return strictest
        return msgspec.structs.replace(
            strictest, reason=f"{', '.join(untrusted)}: {strictest.reason}"
        )

    def _rule_for(self, taint: Taint, capability: str) -> int | None:
        for number, (origins, reached, _) in enumerate(self._rules):
            if taint in origins and reached.fullmatch(capability):
                return number
        return None


def _by_default(
    chosen: Callable[[], Sequence[str]],
    reserved: Callable[[], Sequence[str]],
    *,
    read_only: bool,
    open_world: bool,
) -> Decision:
    names = tuple(reserved())
    if names:
        return Decision("refuse", f"must be the person's own: {', '.join(names)}", names)
    if not open_world:
        return Decision("allow")
    names = tuple(chosen())
    if not names:
        return Decision("allow", "the model has chosen no value")
    return Decision(
        "refuse" if read_only else "confirm", f"chosen by the model: {', '.join(names)}", names
    )


def lacks(skill: str, capability: str) -> str:
    """Return the sentence that an agent lacks a capability of a skill."""
    return f"This agent must not use {skill}: it lacks the capability {capability}."


def covers(granted: Sequence[str], needed: Iterable[str]) -> str | None:
    """Return the first capability that is needed but not granted, or None.

    `network` grants everything that begins with `network:`; `*` and `?` are wildcards.
    """
    if "*" in granted:
        return None
    grants = _reached(granted)
    return next((one for one in needed if not grants.fullmatch(one)), None)


def narrowed_capabilities(asked: Sequence[str], had: Sequence[str]) -> tuple[str, ...]:
    """Return those of the capabilities `asked`, which may be patterns, that `had` grants."""
    return tuple([one for one in asked if within((one,), _granted(had)) is None])


def _reached(capabilities: Sequence[str]) -> re.Pattern[str]:
    return pattern(_granted(capabilities))


def _granted(capabilities: Sequence[str]) -> tuple[str, ...]:
    return (*capabilities, *(f"{one}:*" for one in capabilities))
