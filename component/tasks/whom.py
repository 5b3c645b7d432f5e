"""Who is asked before a skill runs, if anybody has to be (CNF-001 to CNF-006)."""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, Protocol

import anyio

from component.policy import Asking
from component.skills.declare import AnySkill
from component.tasks.protocol import Asker, Confirmation
from xep.disco import InfoQuery
from xep.fluux_agent import NAMESPACE, errors
from xep.jid import JID
from xep.stanza_error import StanzaError

_REMEMBERED_S: Final = 600.0
_MOST_REMEMBERED: Final = 4096


class Info(Protocol):
    """Asks an entity what it is (XEP-0030 §3)."""

    async def __call__(self, to: JID, from_: JID, /) -> InfoQuery:
        """The answer of `to`. Raises StanzaError: its own, or `remote-server-timeout`."""


class Whom:
    """Decides whom to ask, if anybody.

    **Who is a person.** An account (a JID with a localpart) that is not one of ours, and that lists
    neither our feature nor itself as a room. The client that sent the request is asked, because an
    agent that runs as an ordinary account can say so only there, and the account itself, for which
    its server answers. Servers tell strangers nothing about their accounts, and many clients do not
    answer strangers: whoever answers with an error, or not at all, has not said that it is an
    agent, and is taken for a person. So an agent that hides what it is gets its own questions. It
    gains nothing by silence: it could as well say that it is none. What was answered is remembered
    for ten minutes; who did not answer is asked again.

    Args:
        asking: what the policy says of a skill by its name.
        info: asks an entity what it is.
        domain: of this component; its addresses are no persons.
        expires_s: seconds that a confirmation has.
        clock: seconds that only go forward; the event loop's by default.
    """

    def __init__(
        self,
        asking: Callable[[str], Asking],
        info: Info,
        domain: str,
        expires_s: float = 86400.0,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._asking = asking
        self._info = info
        self._domain = domain
        self._expires_s = expires_s
        self._clock = clock
        self._always = lru_cache(_MOST_REMEMBERED)(lambda name: asking(name).when == "always")
        self._known: OrderedDict[JID, tuple[bool, float]] = OrderedDict()

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

    async def _is_person(self, principal: JID, requester: JID, target: JID) -> bool:
        if principal.local is None or principal.domain == self._domain:
            return False
        found: list[bool] = []

        async def look(who: JID) -> None:
            found.append(await self._says_it_is_none(who, target))

        async with anyio.create_task_group() as group:
            for who in {requester, principal.bare}:
                group.start_soon(look, who)
        return not any(found)

    async def _says_it_is_none(self, who: JID, target: JID) -> bool:
        """Whether an entity says of itself that it is no person."""
        known = self._known.get(who)
        if known is not None and self._clock() < known[1]:
            return known[0]
        try:
            answer = await self._info(who, target)
        except StanzaError as error:
            if error.condition == "remote-server-timeout":
                return False
            none = False
        else:
            none = any(each.var == NAMESPACE for each in answer.features) or any(
                each.category == "conference" for each in answer.identities
            )
        self._known[who] = (none, self._clock() + _REMEMBERED_S)
        self._known.move_to_end(who)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return none


def risk_of(skill: AnySkill) -> Literal["low", "medium", "high"]:
    """How much is at stake, by what the skill's author says of it."""
    if skill.annotations.destructive:
        return "high"
    return "low" if skill.annotations.read_only else "medium"
