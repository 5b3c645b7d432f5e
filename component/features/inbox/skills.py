"""The skill by which agents read what waits for a person."""

from collections.abc import Awaitable, Callable

from component import system
from component.features.inbox.texts import MOST_LISTED, row_of, text_for_model
from component.features.inbox.view import InboxView
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.outputs import JSON, TEXT, SkillResult, text_and_data
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from component.store.errors import StorageError
from xep.jid import JID


def inbox_skill(view: Callable[[], InboxView], zone_of: Callable[[JID], Awaitable[str]]) -> Skill:
    """Return the skill `inbox`. `view` gives the view when the skill is called: skills are declared
    before the database is open. `zone_of` returns the name of the time zone of a person.
    """

    @own_skill(
        title="What is waiting",
        question="May I look at what waits for you?",
        read_only=True,
        open_world=False,
        taint="web",
        capabilities=("inbox:read",),
        output_media_types=(TEXT, JSON),
        tags=("inbox", "question", "task", OPTIONAL),
        typical_duration=0.05,
        cost_usd=0.0,
        examples=("What is waiting for me?",),
    )
    async def inbox(context: Context) -> SkillResult:
        """List what waits for the person: open questions, failed and waiting tasks, unread results,
        and notifications that are held.

        Use it when the person asks what is new or open, what failed, or what you have asked.
        """
        if context.room:
            raise SkillError("In a room it is not said what waits for a person: say it in private.")
        person, at = JID.parse(context.principal), JID.parse(context.address)
        try:
            entries = await view().of(person.bare, at.bare)
            zone = await zone_of(person)
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        text = text_for_model(entries, system.now(), zone)
        found = text_and_data(text, [row_of(one) for one in entries[:MOST_LISTED]], "data")
        taints = dict.fromkeys(taint for one in entries for taint in one.taints)
        return SkillResult(found.outputs, taints=tuple(taints))

    return inbox
