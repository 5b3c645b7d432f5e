"""The texts of the recall benchmark: 500 memories of one person, and questions about them.

140 of the memories, 35 in each of four languages, have a question that paraphrases them; some also
have one in another language. The other 360 are about similar things. Three sevenths of the
questions are for development; the others are held out: they are only evaluated, never tuned on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from component.memory.words import words

Part = Literal["development", "held out"]

_FOLDER = Path(__file__).with_name("recall_set")
_LANGUAGES = {"en": "english", "de": "german", "fr": "french", "es": "spanish"}


class Text(NamedTuple):
    """A memory."""

    language: str
    key: str
    body: str


class Question(NamedTuple):
    """A question, the memory that answers it, and its part of the set."""

    language: str
    text: str
    about: Text
    part: Part

    @property
    def crosses(self) -> bool:
        """Whether the memory is in another language."""
        return self.language != self.about.language


def load() -> tuple[list[Text], list[Question]]:
    """Read all memories and questions."""
    memories: list[Text] = []
    questions: list[Question] = []
    for language, name in _LANGUAGES.items():
        for number, line in enumerate(_lines(name)):
            key, body, question, *others = line.split(" | ")
            memory = Text(language, key, body)
            memories.append(memory)
            part: Part = "development" if number % 7 < 3 else "held out"
            questions.append(Question(language, question, memory, part))
            for other in others:
                foreign, _, text = other.partition(": ")
                questions.append(Question(foreign, text, memory, part))
    for line in _lines("others"):
        language, key, template, rows = line.split(" | ")
        for row in rows.split(" ; "):
            values = [value.strip() for value in row.split(", ")]
            memories.append(Text(language, key.format(*values), template.format(*values)))
    return memories, questions


def shared(question: Question, common: frozenset[str]) -> int:
    """The number of words that a question has in common with its memory, but for `common` ones."""
    there = set(words(f"{question.about.key} {question.about.body}")) - common
    return len(there & set(words(question.text)))


def _lines(name: str) -> list[str]:
    lines = (_FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]
