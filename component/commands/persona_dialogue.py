"""How a persona of one's own is made in the chat: three questions, each answered by a message."""

from typing import Final, Protocol

import msgspec

from component.memory.packages import PersonaError
from component.memory.persona_drafts import Draft
from component.memory.persona_text import LONGEST_TEXT, TEXTS, Written
from xep.binding.escaping import without_forbidden
from xep.jid import JID

_QUESTIONS: Final = (
    "Who is it to be, and what is it to do for you?",
    "How is it to speak? Its tone, style, quirks.",
    "Which rules is it to keep to?",
)
_NOTHING: Final = "-"
_AS_IT_IS: Final = "="
_LONGEST_SHOWN: Final = 300
_LONGEST_DESCRIPTION: Final = 100


class Own(Protocol):
    """Personas of people's own: `component.memory.own_personas.OwnPersonas`.

    Everything raises PersonaError and StorageError.
    """

    @property
    def allowed(self) -> bool:
        """Whether people may have any."""

    async def save(self, agent: str, who: JID, written: Written) -> None:
        """Keep one."""

    async def get(self, agent: str, who: JID, id_: str) -> Written:
        """One that somebody has made."""


class Drafts(Protocol):
    """What is being asked about: `component.memory.persona_drafts.Drafts`.

    All raise StorageError.
    """

    async def get(self, agent: str, who: JID) -> Draft | None:
        """What somebody is being asked about."""

    async def put(self, agent: str, who: JID, draft: Draft) -> None:
        """Keep it."""

    async def drop(self, agent: str, who: JID) -> bool:
        """Ask no more; whether somebody was being asked."""


class PersonaDialogue:
    """The questions. A person is asked about one persona at a time, by one agent."""

    def __init__(self, own: Own, drafts: Drafts) -> None:
        """Take where answers are kept, and where the persona goes in the end."""
        self._own = own
        self._drafts = drafts

    async def begin(self, agent: str, who: JID, id_: str, name: str, *, edits: bool) -> str:
        """Begin to ask; returns the first question. What was asked before is asked no more.

        Raises PersonaError: there is no such persona to edit. Raises StorageError.
        """
        draft = Draft(id=id_, name=name, edits=edits)
        question = await self._question(agent, who, draft)
        await self._drafts.put(agent, who, draft)
        keeps = f" {_AS_IT_IS} keeps what there is," if edits else ""
        return (
            f"Three questions about {name}. Answer each in a message:{keeps} {_NOTHING} leaves it"
            f" out, /persona cancel ends this.\n\n{question}"
        )

    async def answered(self, agent: str, who: JID, text: str) -> str | None:
        """Take an answer; returns what to say to it, or None if nothing was asked.

        Raises StorageError.
        """
        if not self._own.allowed:
            return None
        draft = await self._drafts.get(agent, who)
        if draft is None:
            return None
        said = text.strip()
        if len(said) > LONGEST_TEXT:
            return (
                f"That has {len(said)} characters, and {LONGEST_TEXT} are the most. Say it shorter."
            )
        draft = msgspec.structs.replace(draft, answers=(*draft.answers, said))
        try:
            if len(draft.answers) < len(TEXTS):
                question = await self._question(agent, who, draft)
                await self._drafts.put(agent, who, draft)
                return question
            made = await self._save(agent, who, draft)
        except PersonaError as error:
            made = f"{error} So nothing has been {'changed' if draft.edits else 'made'}."
        # Last, so that whoever is interrupted before can give the last answer again.
        await self._drafts.drop(agent, who)
        return made

    async def cancel(self, agent: str, who: JID) -> bool:
        """Ask no more; whether somebody was being asked. Raises StorageError."""
        return await self._drafts.drop(agent, who)

    async def _question(self, agent: str, who: JID, draft: Draft) -> str:
        number = len(draft.answers)
        question = f"{number + 1} of {len(TEXTS)}: {_QUESTIONS[number]}"
        if not draft.edits:
            return question
        now = getattr(await self._own.get(agent, who, draft.id), TEXTS[number])
        if len(now) > _LONGEST_SHOWN:
            now = now[: _LONGEST_SHOWN - 1] + "…"
        return f"{question}\nNow: {without_forbidden(now) or 'nothing'}"

    async def _save(self, agent: str, who: JID, draft: Draft) -> str:
        before = None
        if draft.edits:
            before = await self._own.get(agent, who, draft.id)
        answers = dict(zip(TEXTS, draft.answers, strict=False))
        await self._own.save(agent, who, changed(before, draft.id, draft.name, answers))
        done = "is changed" if draft.edits else "is made"
        return f"{draft.name} {done}. /persona {draft.id} takes it on."


def changed(before: Written | None, id_: str, name: str, answers: dict[str, str]) -> Written:
    """A persona as it is with these answers, by the name of the text: `-` and nothing leave it
    empty, `=` as it was.
    """
    old = before or Written(id=id_, name=name)
    texts = {
        kind: getattr(old, kind) if said == _AS_IT_IS else "" if said == _NOTHING else said
        for kind, said in answers.items()
    }
    new = msgspec.structs.replace(old, **texts)
    if old.description in ("", _described(old.identity)):
        new = msgspec.structs.replace(new, description=_described(new.identity))
    return new


def _described(identity: str) -> str:
    """One line on who it is."""
    line = " ".join(identity.strip().partition("\n")[0].split())
    return line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"
