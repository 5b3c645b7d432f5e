"""What data that strangers could have written may reach, and whether a person is asked first.

A model does what it reads, now and then. So what counts is where the texts come from that it has
been shown: a call that could carry orders of a stranger out into the world is held back.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from component.policy.globs import pattern
from component.policy.taint import Taint

Verdict: TypeAlias = Literal["allow", "confirm", "refuse"]
TRUSTED: frozenset[Taint] = frozenset(("person",))
"""The person who is talked with may give orders."""


class Flow(msgspec.Struct, frozen=True):
    """A rule: data `of` these origins that is to reach one of these capabilities.

    In `to`, `*` stands for any characters and `?` for any one, and `network` for everything that
    begins with `network:`, as in what is granted; a skill that declares no capability is reached by
    `*` only.
    """

    of: tuple[Taint, ...]
    to: tuple[str, ...]
    then: Verdict


class Flows:
    """Decides what tainted data may reach. The first rule that matches counts.

    Where none does, data of strangers may reach what only reads, and what is not of the open world;
    for everything else a person is asked.

    Args:
        rules: the rules, in order.
    """

    def __init__(self, rules: Sequence[Flow] = ()) -> None:
        self._rules = [(frozenset(rule.of), _reached(rule.to), rule.then) for rule in rules]

    def verdict(
        self,
        taints: Iterable[Taint],
        capabilities: Sequence[str],
        *,
        read_only: bool,
        open_world: bool,
    ) -> Verdict:
        """What is to be done about a call of a skill by a model that was shown such data.

        The strictest counts, of all the origins and of all that the skill touches.
        """
        untrusted = frozenset(taints) - TRUSTED
        if not untrusted:
            return "allow"
        otherwise: Verdict = "confirm" if open_world and not read_only else "allow"
        found = {
            self._of(taint, capability) or otherwise
            for taint in untrusted
            for capability in (capabilities or ("",))
        }
        return "refuse" if "refuse" in found else "confirm" if "confirm" in found else "allow"

    def _of(self, taint: Taint, capability: str) -> Verdict | None:
        for origins, reached, then in self._rules:
            if taint in origins and reached.fullmatch(capability):
                return then
        return None


def covers(granted: Sequence[str], needed: Iterable[str]) -> str | None:
    """The first capability that is needed and not granted, or None.

    `network` grants everything that begins with `network:`; `*` and `?` are patterns.
    """
    grants = _reached(granted)
    return next((one for one in needed if not grants.fullmatch(one)), None)


def _reached(capabilities: Sequence[str]) -> re.Pattern[str]:
    return pattern((*capabilities, *(f"{one}:*" for one in capabilities)))
