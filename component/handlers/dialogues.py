"""What is said in the chat where an agent is asking somebody: first whose answer it is.

A dialogue that a person has begun with a command comes before the questions of tasks: they are in
the middle of it. Only a plain yes or no goes to a task that waits for one, and so does what names
its question itself.
"""

from typing import Protocol

import structlog

from component.handlers.chat_answers import in_person
from component.handlers.message import Answers
from component.router.table import Request
from component.storage import StorageError
from component.tasks.words import said_in
from xep.jid import JID
from xep.message_replies import Reply
from xep.quick_responses import ActionSelected

_log = structlog.get_logger("component.message")


class Dialogue(Protocol):
    """Asks several things in turn: `component.commands.persona_dialogue.PersonaDialogue`."""

    async def answered(self, agent: str, who: JID, text: str) -> str | None:
        """Take an answer; what to say to it, or None if nothing was asked. Raises StorageError."""


class Dialogues:
    """Implements `component.handlers.message.Answers`.

    Args:
        questions: takes answers to the questions of tasks.
        dialogue: takes those to its own.
        default_agent: the localpart of the agent that answers for the domain.
    """

    def __init__(self, questions: Answers, dialogue: Dialogue, default_agent: str) -> None:
        self._questions = questions
        self._dialogue = dialogue
        self._default_agent = default_agent

    def concerns(self, request: Request[None]) -> bool:
        """Whether `answered` has anything to look at. Never waits."""
        return _text(request) is not None or self._questions.concerns(request)

    async def answered(self, request: Request[None]) -> str | None:
        """What came of an answer, for the one who gave it; None if the message is none."""
        text = _text(request)
        if text is None:
            return await self._questions.answered(request)
        said = said_in(text)
        alone = said is not None and said.value != "unclear" and not said.reason
        if alone or Reply.xml.tag in request.stanza.payload_names:
            decided = await self._questions.answered(request)
            return decided or await self._take(request, text)
        return await self._take(request, text) or await self._questions.answered(request)

    async def _take(self, request: Request[None], text: str) -> str | None:
        agent = request.to.local or self._default_agent
        try:
            return await self._dialogue.answered(agent, request.principal, text)
        except StorageError as error:
            _log.error("an answer could not be taken", reason=str(error))
            return "I cannot take that now, because of a fault on my side. Try again later."


def _text(request: Request[None]) -> str | None:
    """What somebody says here and now and that may be an answer, be it blank; None for the rest."""
    stanza = request.stanza
    if not in_person(request) or ActionSelected.xml.tag in stanza.payload_names:
        return None
    body = stanza.text_of("body", stanza.lang)
    return None if body is None or body.lstrip().startswith("/") else body
