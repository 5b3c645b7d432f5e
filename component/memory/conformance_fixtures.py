"""Skills that remember something about their caller, for the conformance kit to call.

They are offered only if the settings say so, as `component.skills.conformance_fixtures`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from component.memory.knowledge import Knowledge, KnowledgeError, Memo
from component.memory.sharing import PRIVATE
from component.memory.skills import Key
from component.policy.taint import worst
from component.skills.context import Context
from component.skills.declare import skill
from component.skills.errors import SkillError
from xep.jid import JID

if TYPE_CHECKING:
    from component.skills.skill import Skill


def memory_fixtures(knowledge: Callable[[], Knowledge]) -> tuple[Skill, ...]:
    """Return the skills `conformance.remember` and `conformance.recall`.

    `knowledge` returns the memories when one of them is called.
    """

    @skill(name="conformance.remember", destructive=False, idempotent=True, open_world=False)
    async def remember(key: Key, text: str, context: Context) -> str:
        """Remember a text about the caller.

        Args:
            key: The key to remember it under.
            text: What to remember.
        """
        memo = Memo(key, text, taint=worst(context.taints))
        who = JID.parse(context.principal)
        try:
            stored = await knowledge().store(context.agent, who, memo, trace=context.trace)
        except KnowledgeError as error:
            raise SkillError(str(error)) from error
        return f"version {stored.item.version}"

    @skill(name="conformance.recall", read_only=True, idempotent=True, open_world=False)
    async def recall(key: Key, context: Context) -> str:
        """Return what is remembered about the caller under a key, or nothing.

        Args:
            key: The key it was remembered under.
        """
        who = JID.parse(context.principal)
        found = await knowledge().get(context.agent, who, key, trace=context.trace)
        return next((one.item.body for one in found if one.scope == PRIVATE), "")

    return (remember, recall)
