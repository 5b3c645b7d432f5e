"""Creates a persona in the chat: three questions, each answered by a message."""

from typing import Final

import msgspec

from component.memory_directory.layout import SessionKey
from component.personas.own_personas import Draft, Drafts, OwnPersonas
from component.personas.packages import LONGEST_TEXT, TEXTS, PersonaError, PersonaText
from xep.binding.escaping import without_forbidden

_QUESTIONS: Final = (
    "Who should it be, and what should it do for you?",
    "How should it speak? Describe its tone, style and quirks.",
    "Which rules should it follow?",
)
_NOTHING: Final = "-"
_AS_IT_IS: Final = "="
_LONGEST_SHOWN: Final = 300
_LONGEST_DESCRIPTION: Final = 100


class PersonaDialogue:
    """Asks the questions. A person has one draft at a time with each agent."""

    def __init__(self, own: OwnPersonas, drafts: Drafts) -> None:
        """Create the dialogue on the personas and the drafts."""
        self._own = own
        self._drafts = drafts

    async def begin(self, key: SessionKey, id_: str, name: str, *, edits: bool) -> str:
        """Start a draft; return the first question. It replaces an earlier draft.

        Raises PersonaError: the persona to edit does not exist. Raises StorageError.
        """
        draft = Draft(id=id_, name=name, edits=edits)
        question = await self._question(key, draft)
        await self._drafts.put(key, draft)
        keeps = f" {_AS_IT_IS} keeps the current text," if edits else ""
        return (
            f"Three questions about {name}. Answer each in a message:{keeps} {_NOTHING} leaves"
            f" the text empty, and /persona cancel cancels.\n\n{question}"
        )

    async def answered(self, key: SessionKey, text: str) -> str | None:
        """Process an answer; return the reply, or None if there is no draft.

        Raises StorageError.
        """
        if not self._own.allowed:
            return None
        draft = await self._drafts.get(key)
        if draft is None:
            return None
        said = text.strip()
        if len(said) > LONGEST_TEXT:
            return (
                f"That has {len(said)} characters; the maximum is {LONGEST_TEXT}. Please"
                " shorten it."
            )
        draft = msgspec.structs.replace(draft, answers=(*draft.answers, said))
        try:
            if len(draft.answers) < len(TEXTS):
                question = await self._question(key, draft)
                await self._drafts.put(key, draft)
                return question
            made = await self._save(key, draft)
        except PersonaError as error:
            made = f"{error} So nothing has been {'changed' if draft.edits else 'created'}."
        # Last, so that after an interruption the person can give the last answer again.
        await self._drafts.drop(key)
        return made

    async def cancel(self, key: SessionKey) -> bool:
        """Delete the draft; return whether there was one. Raises StorageError."""
        return await self._drafts.drop(key)

    async def _question(self, key: SessionKey, draft: Draft) -> str:
        number = len(draft.answers)
        question = f"{number + 1} of {len(TEXTS)}: {_QUESTIONS[number]}"
        if not draft.edits:
            return question
        now = getattr(await self._own.get(key, draft.id), TEXTS[number])
        if len(now) > _LONGEST_SHOWN:
            now = now[: _LONGEST_SHOWN - 1] + "…"
        return f"{question}\nNow: {without_forbidden(now) or 'nothing'}"

    async def _save(self, key: SessionKey, draft: Draft) -> str:
        before = None
        if draft.edits:
            before = await self._own.get(key, draft.id)
        answers = dict(zip(TEXTS, draft.answers, strict=False))
        await self._own.save(key, changed_persona(before, draft.id, draft.name, answers))
        done = "is changed" if draft.edits else "is created"
        return f"{draft.name} {done}. Send /persona {draft.id} to use it."


def changed_persona(
    before: PersonaText | None, id_: str, name: str, answers: dict[str, str]
) -> PersonaText:
    """Return a persona changed by these answers, which are keyed by the name of the text: `-` and
    an empty answer clear the text, `=` keeps it.
    """
    old = before or PersonaText(id=id_, name=name)
    texts = {
        kind: getattr(old, kind) if said == _AS_IT_IS else "" if said == _NOTHING else said
        for kind, said in answers.items()
    }
    new = msgspec.structs.replace(old, **texts)
    if old.description in ("", _described(old.identity)):
        new = msgspec.structs.replace(new, description=_described(new.identity))
    return new


def _described(identity: str) -> str:
    """Return a one-line description from the text on who it is."""
    line = " ".join(identity.strip().partition("\n")[0].split())
    return line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"
