"""Skills with which the conformance kit sees how this service delegates work, and what it pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from anyio.lowlevel import checkpoint

from component.agent_addresses import canonical_address
from component.budget.protocol import Amount
from component.config.peers import Peer
from component.features.peers.calls import PeerCalls
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import RemoteError, SkillError
from component.skills.outputs import SkillResult
from component.skills.skill import Skill
from xep.fluux_agent import errors
from xep.jid import JID, JIDError

_ECHO = "echo"


class ConformanceFixtures:
    """The skills `conformance.delegate` and `conformance.spend`.

    `peers` are the agents to which the first one may delegate, and `calls` returns what calls them.
    """

    def __init__(self, peers: Sequence[Peer], calls: Callable[[], PeerCalls]) -> None:
        self._peers = {canonical_address(JID.parse(peer.jid)): peer for peer in peers}
        self._calls = calls
        self._spent: dict[str, int] = {}

    async def spent(self, task: str) -> Amount:
        """Return what `conformance.spend` has cost a task."""
        await checkpoint()
        return Amount(tokens=self._spent.get(task, 0))

    def ended(self, task: str) -> None:
        """Forget the costs of a task that has ended."""
        self._spent.pop(task, None)

    def skills(self) -> tuple[Skill, ...]:
        """Return the skills."""

        @own_skill(name="conformance.delegate", destructive=False, durable=True, taint="peer")
        async def delegate(peer: str, text: str, context: Context) -> SkillResult:
            """Let another agent return a text, by its skill `echo`, and return its answer.

            Args:
                peer: The address of the agent: that of a `[[peer]]` whose `skills` include `echo`.
                text: What to say back.
            """
            try:
                found = self._peers.get(canonical_address(JID.parse(peer)))
            except JIDError as error:
                raise SkillError(f"{peer} is not an address: {error}") from None
            if found is None or pattern(found.skills).fullmatch(_ECHO) is None:
                raise SkillError(
                    f"{peer} is not the jid of a [[peer]] with {_ECHO!r} in its skills."
                )
            invoke = self._calls().invoke_of(found, _ECHO)
            result: SkillResult = await invoke({"text": text}, context)
            return result

        @own_skill(name="conformance.spend", destructive=False, open_world=False)
        async def spend(
            tokens: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)], context: Context
        ) -> str:
            """Spend tokens of the budget of the delegation, as a language model would.

            Args:
                tokens: How many.
            """
            left = (await self._calls().left(context)).tokens
            if left is not None and tokens > left:
                raise RemoteError(errors.budget_exhausted())
            self._spent[context.paid_by] = tokens
            return f"spent {tokens} tokens"

        return delegate, spend
