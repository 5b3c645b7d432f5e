"""The skill by which a model learns which agents and personas there are."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from component import DEFAULT_AGENT
from component.policy.flows import AgentLimits
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from component.store.errors import StorageError
from xep.jid import JID

if TYPE_CHECKING:
    from component.features.agents_admin.listing import AgentListing


def agents_skill(listing: Callable[[], "AgentListing"]) -> Skill:
    """Return the skill. `listing` is called only while it runs."""

    @own_skill(
        name="agents",
        title="List agents",
        question="May I list the agents[ and show {name}]?",
        read_only=True,
        idempotent=True,
        open_world=False,
        tags=("agent", OPTIONAL),
        examples=("What can you do?",),
        typical_duration=0.05,
        cost_usd=0.0,
    )
    async def agents(
        context: Context,
        name: Annotated[
            str, Meta(description="Name of one of them, for everything about it.", max_length=128)
        ] = "",
    ) -> str:
        """List the agents and personas that the person can use: what each can do, costs and may.

        Use it when the person asks what you can do, and before `agent_create`.
        """
        # Imported here, because the command line has no agents.
        from component.features.agents_admin.listing import listing_text, whole_text  # noqa: PLC0415

        agent = context.agent.partition("/")[0] or DEFAULT_AGENT
        principal, owner = JID.parse(context.principal), JID.parse(context.owner)
        # In a room it says only what can be used there.
        limits = context.limits if context.room else AgentLimits()
        try:
            rows = await listing().rows(agent, principal, owner, limits)
        except StorageError as error:
            raise SkillError("The agents cannot be listed at the moment.") from error
        if not name:
            return listing_text(rows)
        found = [row for row in rows if row.name.casefold() == name.casefold()]
        if not found:
            raise SkillError(f"There is no agent called {name!r}.")
        return "\n\n".join(map(whole_text, found))

    return agents
