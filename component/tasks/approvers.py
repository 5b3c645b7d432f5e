"""Decides which persons must confirm a skill before it runs (CNF-001 to CNF-006)."""

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Final, Literal

from component.policy import ConfirmationRule
from component.policy.persons import Persons
from component.skills.skill import Skill
from component.tasks.protocol import Asker, Confirmation
from xep.fluux_agent import errors
from xep.jid import JID

_MOST_REMEMBERED: Final = 4096


class Unknown(Enum):
    """The confirmers are not known yet."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class Approvers:
    """Decides who has to confirm that a skill runs.

    Args:
        asking: gives the policy's confirmation rule for a skill by its name.
        persons: tells which addresses are persons.
        expires_s: seconds until a confirmation expires.
    """

    def __init__(
        self,
        asking: Callable[[str], ConfirmationRule],
        persons: Persons,
        expires_s: float = 86400.0,
    ) -> None:
        self._asking = asking
        self._is_person = persons.is_person
        self._known = persons.known
        self._expires_s = expires_s
        self._always = lru_cache(_MOST_REMEMBERED)(lambda name: asking(name).when == "always")

    def needed(self, principal: JID, skill: Skill, asker: Asker = "caller") -> bool:
        """Return whether a confirmation may be needed before this skill runs. Never waits.

        What the principal has approved needs only the confirmation of other approvers.
        """
        if asker == "approved":
            return bool(self._asking(skill.name).approvers)
        always = self._always
        return skill.annotations.destructive or asker == "misled model" or always(skill.name)

    def at_once(
        self, principal: JID, requester: JID, skill: Skill, asker: Asker = "caller"
    ) -> "Confirmation | Unknown | None":
        """Return the result of `find` if it is known without waiting, else UNKNOWN.

        Raises StanzaError, as `find` does. Never waits.
        """
        if not self.needed(principal, skill, asker):
            return None
        said = self._asking(skill.name)
        never = said.when == "never" and asker == "caller"
        person = None if said.approvers and not never else self._known(principal, requester)
        if never and person is not False:
            return UNKNOWN if person is None else None
        if said.approvers:
            return self._confirmation(skill, said.approvers)
        if person is None:
            return UNKNOWN
        if person:
            return self._confirmation(skill, (principal.bare,))
        raise errors.confirmation_unavailable()

    async def find(
        self,
        principal: JID,
        requester: JID,
        target: JID,
        skill: Skill,
        asker: Asker = "caller",
    ) -> Confirmation | None:
        """Return who has to confirm that `skill` runs for `principal`; None if nobody has to.

        `requester` is the full JID of the request, `target` the address that received it. The rule
        `never` applies to a principal's own requests, not to those of a model (CNF-001).

        Raises StanzaError: `confirmation-unavailable`, if a confirmation is needed and nobody can
        give it (CNF-005).
        """
        if not self.needed(principal, skill, asker):
            return None
        said = self._asking(skill.name)
        person: bool | None = None
        if said.when == "never" and asker == "caller":
            person = await self._is_person(principal, requester, target)
            if person:
                return None
        if said.approvers:
            return self._confirmation(skill, said.approvers)
        if person is None:
            person = await self._is_person(principal, requester, target)
        if person:
            return self._confirmation(skill, (principal.bare,))
        raise errors.confirmation_unavailable()

    def _confirmation(self, skill: Skill, asked: tuple[JID, ...]) -> Confirmation:
        return Confirmation(asked=asked, risk=risk_of(skill), expires_s=self._expires_s)


def risk_of(skill: Skill) -> Literal["low", "medium", "high"]:
    """Return the risk of a skill, derived from its author's annotations."""
    if skill.annotations.destructive:
        return "high"
    return "low" if skill.annotations.read_only else "medium"
