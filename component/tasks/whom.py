"""Who is asked before a skill runs, if anybody has to be (CNF-001 to CNF-006)."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from component.policy import Asking
from component.policy.persons import Persons
from component.skills.declare import AnySkill
from component.tasks.protocol import Asker, Confirmation
from xep.fluux_agent import errors
from xep.jid import JID

_MOST_REMEMBERED: Final = 4096


class Whom:
    """Decides whom to ask, if anybody.

    Args:
        asking: what the policy says of a skill by its name.
        persons: tells who is a person.
        expires_s: seconds that a confirmation has.
    """

    def __init__(
        self, asking: Callable[[str], Asking], persons: Persons, expires_s: float = 86400.0
    ) -> None:
        self._asking = asking
        self._is_person = persons.is_person
        self._expires_s = expires_s
        self._always = lru_cache(_MOST_REMEMBERED)(lambda name: asking(name).when == "always")

    def needed(self, principal: JID, skill: AnySkill, asker: Asker = "caller") -> bool:
        """Whether somebody may have to be asked before this skill runs. Never waits."""
        always = self._always
        return skill.annotations.destructive or asker == "misled model" or always(skill.name)

    async def whom(
        self,
        principal: JID,
        requester: JID,
        target: JID,
        skill: AnySkill,
        asker: Asker = "caller",
    ) -> Confirmation | None:
        """Who has to confirm that `skill` runs for `principal`; None if nobody has to.

        `requester` is the full address of the request, `target` the address of ours that it came
        to. That nobody is to be asked (`never`) holds for what a principal asks for itself, and not
        for what a model does (CNF-001).
        Raises StanzaError: `confirmation-unavailable`, if somebody has to and nobody can (CNF-005).
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

    def _confirmation(self, skill: AnySkill, asked: tuple[JID, ...]) -> Confirmation:
        return Confirmation(asked=asked, risk=risk_of(skill), expires_s=self._expires_s)


def risk_of(skill: AnySkill) -> Literal["low", "medium", "high"]:
    """How much is at stake, by what the skill's author says of it."""
    if skill.annotations.destructive:
        return "high"
    return "low" if skill.annotations.read_only else "medium"
