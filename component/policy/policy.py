"""The policy: which principals the agent answers, and which skills each of them may use."""

import functools
from collections.abc import Sequence
from typing import Literal, NewType

import msgspec

from component.policy.entries import EntryReader
from component.policy.globs import pattern
from xep.jid import JID

# Cached results per principal and per skill name. Names are untrusted: long ones are not cached.
_CACHE_ENTRIES = 4096
_MAX_CACHED_CHARACTERS = 256

ViewKey = NewType("ViewKey", int)
"""The rules that a principal passes. Principals with equal views may use the same skills, so values
computed for one view (a list of skills, its version hash) hold for all of them. Bit 0 is set
if the principal is admitted, bit n + 1 if it passes rule n."""

_ADMITTED = 1

When = Literal["destructive", "always", "never"]
"""Skills that need confirmation: destructive ones, all, or none that people execute directly."""


class Rule(msgspec.Struct, frozen=True):
    """Restricts who may use the skills that match. A list that is None restricts nothing.

    In `skills`, `*` matches any characters and `?` any single one. `confirm` says when a
    person is asked before such a skill runs, `approvers` who is asked; None leaves this to the next
    matching rule.
    """

    skills: tuple[str, ...]
    allowed_jids: tuple[str, ...] | None = None
    allowed_domains: tuple[str, ...] | None = None
    confirm: When | None = None
    approvers: tuple[str, ...] | None = None


class ConfirmationRule(msgspec.Struct, frozen=True):
    """When a person is asked before a skill runs, and who (CNF-001 to CNF-004).

    `approvers` are bare JIDs, any one of which can answer; if empty, the requesting principal is
    asked.
    """

    when: When
    approvers: tuple[JID, ...] = ()


class _Gate:
    """Two lists, both of which a principal must pass."""

    def __init__(self, jids: frozenset[JID] | None, domains: frozenset[str] | None) -> None:
        self._jids = jids
        self._domains = domains

    def passes(self, principal: JID) -> bool:
        return (self._domains is None or principal.domain in self._domains) and (
            self._jids is None or principal in self._jids
        )


class Policy:
    """Decides which principals are admitted, and which skills each of them may use.

    A principal is admitted when its domain and its JID are both allowed. It may use a skill when
    it is admitted and passes every rule that matches the skill's name; a skill that no rule
    matches is available to every admitted principal.

    In each list, `["*"]` means all, and an empty list means nobody. An entry of
    `allowed_jids` is a bare JID; a domain alone means that address itself, not its users.
    An entry of `allowed_domains` does not cover subdomains.

    Raises PolicyError with all invalid entries: those that are not addresses, those with
    a resource, and those that servers interpret differently from RFC 7622, because access would
    then be given to a different account. An approver that is not an
    account, or is not admitted, could never answer and is invalid, too.
    """

    def __init__(
        self,
        *,
        allowed_domains: Sequence[str],
        allowed_jids: Sequence[str] | None = None,
        rules: Sequence[Rule] = (),
        confirm: When = "destructive",
    ) -> None:
        """Read the lists; None for `allowed_jids` allows all."""
        read = EntryReader()
        lists = {"agent": (allowed_jids, allowed_domains)} | {
            f"policy.rules[{index}]": (rule.allowed_jids, rule.allowed_domains)
            for index, rule in enumerate(rules)
        }
        self._gates = [
            _Gate(
                read.jids(f"{section}.allowed_jids", jids),
                read.domains(f"{section}.allowed_domains", domains),
            )
            for section, (jids, domains) in lists.items()
        ]
        passes = self._gates[0].passes
        self._approvers = [
            None
            if rule.approvers is None
            else read.approvers(f"policy.rules[{index}].approvers", rule.approvers, passes)
            for index, rule in enumerate(rules)
        ]
        read.finish()
        self._confirm = confirm
        self._confirms = [rule.confirm for rule in rules]
        self._patterns = [pattern(rule.skills) for rule in rules]
        self._view = functools.lru_cache(_CACHE_ENTRIES)(self._find_view)
        self._demand = functools.lru_cache(_CACHE_ENTRIES)(self._find_demand)

    def admits(self, principal: JID) -> bool:
        """Whether the agent answers this bare JID."""
        return bool(self._view(principal) & _ADMITTED)

    def view_key(self, principal: JID) -> ViewKey:
        """Return the view of this bare JID, which all principals with the same rights share."""
        return self._view(principal)

    def may_use(self, view: ViewKey, skill: str, *, hidden: bool = False) -> bool:
        """Whether a principal with this view may use the skill; nobody may use a hidden one."""
        if hidden:
            return False
        kept = len(skill) <= _MAX_CACHED_CHARACTERS
        demand = self._demand(skill) if kept else self._find_demand(skill)
        return view & demand == demand

    def asking(self, skill: str) -> ConfirmationRule:
        """When a person is asked before this skill runs, and who if approvers are set."""
        matched = [index for index, each in enumerate(self._patterns) if each.fullmatch(skill)]
        when = [found for index in matched if (found := self._confirms[index]) is not None]
        asked = [named for index in matched if (named := self._approvers[index]) is not None]
        return ConfirmationRule(when[0] if when else self._confirm, asked[0] if asked else ())

    def _find_view(self, principal: JID) -> ViewKey:
        bare = principal.bare
        return ViewKey(sum(gate.passes(bare) << bit for bit, gate in enumerate(self._gates)))

    def _find_demand(self, skill: str) -> int:
        matched = (bool(pattern.fullmatch(skill)) for pattern in self._patterns)
        return _ADMITTED | sum(match << bit for bit, match in enumerate(matched, start=1))
