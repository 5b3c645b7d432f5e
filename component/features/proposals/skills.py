"""The skills that propose: `create_skill` a skill, and `agent_create` an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from component.features.proposals.draft import (
    FORMAT,
    SkillDraft,
    SkillDrafts,
    UnreadableDraftError,
)
from component.features.proposals.drafts import DraftError
from component.features.proposals.proposing import Proposing
from component.kernel.options import AGENT_CREATE, CREATE_SKILL
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError
from component.skills.outputs import Output, SkillResult
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL

if TYPE_CHECKING:
    from component.features.proposals.agents import AgentDesigner

_TIMEOUT_S: Final = 600.0
_LONGEST_DESCRIPTION: Final = 4_000
_LONGEST: Final = 65_536
"""Of each text of a proposal; the settings limit it further."""


def _text(description: str) -> Meta:
    return Meta(description=description, max_length=_LONGEST)


def create_skill_skill(proposing: Proposing) -> Skill:
    """Return the skill that proposes a skill."""

    @own_skill(
        name=CREATE_SKILL,
        title="Propose a skill",
        question="May I propose a skill: {description}[ ({manifest})][ ({code})][ ({tests})]?",
        destructive=False,
        idempotent=True,
        open_world=False,
        capabilities=("llm",),
        # The reasons of a refusal contain what the caller or the model has written.
        taint="web",
        tags=("skill",),
        examples=("Make a skill that splits a bill.",),
        timeout=_TIMEOUT_S,
        typical_duration=20.0,
    )
    async def create_skill(
        context: Context,
        description: Annotated[
            str,
            Meta(
                description="What the skill should do. Without the other parameters the model"
                " writes it.",
                min_length=1,
                max_length=_LONGEST_DESCRIPTION,
            ),
        ],
        manifest: Annotated[str, _text("skill.toml, in TOML.")] = "",
        code: Annotated[str, _text("main.py; empty for an HTTP request.")] = "",
        tests: Annotated[str, _text("tests/cases.toml, in TOML.")] = "",
    ) -> SkillResult:
        """Propose a new skill, in Python or as an HTTP request. Its tests run at once.

        Nobody can use it before an admin has read and approved it.
        """
        drafts = SkillDrafts(description, proposing.settings.max_bytes)
        if not (manifest or code or tests):
            said = await proposing.written(context, description, drafts)
        else:
            for name, value in (("manifest", manifest), ("tests", tests)):
                if not value:
                    raise InvalidParam(name, "must be given, too: a skill is written as a whole")
            draft = SkillDraft(manifest=manifest, code=code, tests=tests)
            try:
                said = await proposing.passed(context, description, drafts, draft)
            except DraftError as error:
                hint = f"\n\n{FORMAT}" if isinstance(error, UnreadableDraftError) else ""
                raise SkillError(f"Nothing was proposed. {error}{hint}") from error
        # The sentence contains the name of the skill, which the author of the proposal has chosen.
        return SkillResult((Output(said),), taints=context.taints)

    return create_skill


def agent_create_skill(proposing: Proposing, designer: AgentDesigner) -> Skill:
    """Return the skill that proposes an agent."""

    @own_skill(
        name=AGENT_CREATE,
        title="Propose an agent",
        question="May I propose an agent: {description}?",
        destructive=False,
        idempotent=True,
        open_world=False,
        capabilities=("llm",),
        taint="web",  # as of `create_skill`
        tags=("agent", "persona", OPTIONAL),
        examples=("Make an agent that plans trips.",),
        timeout=_TIMEOUT_S,
        typical_duration=30.0,
    )
    async def agent_create(
        context: Context,
        description: Annotated[
            str,
            Meta(
                description="What the agent should do, in one or a few sentences: its task, what it"
                " needs, and its limits.",
                min_length=1,
                max_length=_LONGEST_DESCRIPTION,
            ),
        ],
    ) -> SkillResult:
        """Propose a new agent, which people choose with /persona. It is tried at once.

        Nobody can use it before an admin has read and approved it. Look with the skill `agents`
        whether a fitting one exists. It never gets more skills than you have.
        """
        if context.room:
            raise SkillError("Ask me outside of this room: its trials would be shown here.")
        drafts = await designer.drafts(context, description)
        said = await proposing.written(context, description, drafts)
        return SkillResult((Output(said),), taints=tuple(drafts.taints))

    return agent_create
