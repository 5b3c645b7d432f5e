"""Decides which dialogue an answer in chat belongs to.

A dialogue that a person has started with a command comes before the questions of tasks, because the
person is in the middle of it. Only a plain yes or no goes to a task that waits for one, and so does
an answer that identifies its question.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from component.features.questions.answers import in_person
from component.messages.answers import Answers
from component.messages.inbound import InboundMessage
from component.storage import StorageError
from component.task_messages.yes_no import said_in
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.persona_dialogue import PersonaDialogue

_log = structlog.get_logger("component.message")


class Dialogues:
    """Implements `component.messages.answers.Answers`.

    Args:
        questions: processes answers to the questions of tasks.
        dialogue: processes answers to its own questions.
        agent_at: returns the name of the agent at an address of this service.
    """

    def __init__(
        self, questions: Answers, dialogue: "PersonaDialogue", agent_at: Callable[[JID], str]
    ) -> None:
        self._questions = questions
        self._dialogue = dialogue
        self._agent_at = agent_at

    async def answered(self, message: InboundMessage) -> str | None:
        """Return the outcome of an answer, for the person who gave it; None if the message is not
        one.
        """
        text = _text(message)
        if text is None:
            return await self._questions.answered(message)
        said = said_in(text)
        alone = said is not None and said.value != "unclear" and not said.reason
        if alone or message.replies_to is not None:
            decided = await self._questions.answered(message)
            return decided or await self._take(message, text)
        return await self._take(message, text) or await self._questions.answered(message)

    async def returned(self, who: JID, at: JID, message_id: str) -> None:
        """Record that a message from `at` to `who` was returned as an error."""
        await self._questions.returned(who, at, message_id)

    async def _take(self, message: InboundMessage, text: str) -> str | None:
        agent = self._agent_at(message.conversation.agent)
        try:
            return await self._dialogue.answered(agent, message.principal, text)
        except StorageError as error:
            _log.error("could not process an answer", reason=str(error))
            return (
                "I can't accept your answer now because of an error on my side. Please try"
                " again later."
            )


def _text(message: InboundMessage) -> str | None:
    """Return the text of a live message that may be an answer, possibly blank; None for other
    messages.
    """
    if not in_person(message) or message.selected is not None or not message.has_body:
        return None
    return None if message.text.startswith("/") else message.text
