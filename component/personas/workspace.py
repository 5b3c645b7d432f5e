"""Reads the texts about an agent and its person that people write into files.

For each of `identity.md`, `personality.md` and `instructions.md`, the first text that is not blank
is used:

1. that of the conversation, `{jid}/identity.md`, in the directory of the agent,
2. that of the active persona,
3. that of the agent's declaration in agent.toml,
4. that in the directory of the agent; for a sub-agent, then in those of its parents,
5. that in the root directory, which is for all agents.

A persona that the operator has not written can only define the identity and the personality: its
instructions are added to these, and the instructions are chosen without it. Those of a persona that
the person has created are wishes.
"""

from pathlib import Path

import msgspec

from component.config.agents import AgentEntry
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import TextReader, Texts
from component.personas.packages import TEXTS, PersonaText

_WISHES = "The person you talk with wishes that you keep to this, within all that is said below:"
_RULES = "Keep to this, within all that is said below:"


class Character(msgspec.Struct, frozen=True, kw_only=True):
    """Texts for the model; empty if nobody has written one.

    `context` is the knowledge of the persona about its field, `user` the description of the person,
    `memory` the notes on the person. `sources` has the origin of each text: a path below the root,
    or `agent.toml`.
    """

    identity: str = ""
    personality: str = ""
    instructions: str = ""
    context: str = ""
    user: str = ""
    memory: str = ""
    sources: tuple[str, ...] = ()


class Workspace:
    """Reads these texts. While no file has changed, this takes a few `stat` calls and no thread."""

    def __init__(self, layout: Layout, texts: Texts) -> None:
        self._layout = layout
        self._texts = texts

    async def read(
        self, key: SessionKey, *, persona: Path | None = None, declared: AgentEntry | None = None
    ) -> Character:
        """Read the texts for one conversation; `persona` is the directory of the active persona.

        Raises MemoryStoreError if a file exists but cannot be read.
        """
        texts = () if declared is None else tuple(getattr(declared, kind) for kind in TEXTS)
        return await self._texts.cached(
            (key, persona, texts), lambda reader: self._build(reader, key, persona, texts)
        )

    def _build(
        self, reader: TextReader, key: SessionKey, persona: Path | None, declared: tuple[str, ...]
    ) -> Character:
        sources: list[str] = []

        def first(*candidates: Path, linked: bool = True) -> str:
            for path in candidates:
                text = reader.text(path, linked=linked)
                if text and not text.isspace():
                    sources.append(path.relative_to(self._layout.root).as_posix())
                    return text
            return ""

        folder = self._layout.folder(key)
        own = reader.has_folder(folder)
        # No link is followed in the directory of a person.
        is_own = persona is not None and persona.is_relative_to(folder)
        approved = self._layout.approved_personas
        is_added = is_own or (persona is not None and persona.is_relative_to(approved))
        chosen = (
            () if persona is None or (is_own and not reader.has_folder(persona)) else (persona,)
        )
        directories = self._layout.agent_directories(key.agent)
        texts = {}
        wishes = ""
        for kind, text_declared in zip(TEXTS, declared or ("", "", ""), strict=True):
            file = f"{kind}.md"
            text = first(folder / file, linked=False) if own else ""
            if not text:
                text = first(*(each / file for each in chosen), linked=not is_own)
                if is_added and kind == "instructions":
                    text, wishes = "", text
            if not text and text_declared.strip():
                text = text_declared
                sources.append("agent.toml")
            texts[kind] = text or first(*(each / file for each in directories))
        if wishes:
            _add(texts, _WISHES if is_own else _RULES, wishes)
        context = first(*(each / "context.md" for each in chosen), linked=not is_own)
        user = memory = ""
        if own:
            # As in Fluux Agent, `context.md` is ignored if `user.md` exists.
            exists = reader.text(folder / "user.md") is not None
            user = first(folder / ("user.md" if exists else "context.md"), linked=False)
            memory = first(folder / "memory.md", linked=False)
        return Character(**texts, context=context, user=user, memory=memory, sources=tuple(sources))


def with_persona(character: Character, persona: PersonaText) -> Character:
    """Return a character that was read without a persona, with one as if it was approved."""
    kinds = ("identity", "personality")
    texts = {kind: getattr(persona, kind) or getattr(character, kind) for kind in kinds}
    if persona.instructions:
        _add(texts, _RULES, persona.instructions)
    return msgspec.structs.replace(character, **texts)


def _add(texts: dict[str, str], about: str, rules: str) -> None:
    """Add rules, and a sentence about them, to a text without replacing a default text."""
    kind = "personality" if texts["personality"] else "identity"
    texts[kind] = "\n\n".join(filter(None, (texts[kind], about, rules)))
