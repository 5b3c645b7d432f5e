"""Reasoning that models write into the text of an answer, between `<think>` and `</think>`."""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from component.models.marks import Marks

_OPENING: Final = (
    "<think>",
    "<thinking>",
    "<thought>",
    "<seed:think>",
    "[think]",
    "<|start_thinking|>",
)
_CLOSING: Final = (
    "</think>",
    "</thinking>",
    "</thought>",
    "</seed:think>",
    "[/think]",
    "<|end_thinking|>",
)

Piece: TypeAlias = tuple[Literal["said", "thought", "unsaid"], str]
"""A piece of what is said, or of reasoning. `unsaid`: all that was said so far is reasoning."""


class WrittenThoughts:
    """Separates reasoning from what is said, wherever the pieces of the answer are cut.

    Reasoning that does not end is reasoning up to the end of the answer. A closing tag without an
    opening one ends reasoning that began with the answer: some templates write the opening tag
    into the prompt. White space around reasoning belongs to it.

    Args:
        opened: whether the prompt of this model ends with the opening tag. Then nothing counts as
            said before the closing tag, or before the end of an answer without tags.

    Attributes:
        was_opened: whether the answer began with reasoning that had no opening tag.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self.was_opened = False
        self._marks = Marks(_OPENING + _CLOSING)
        self._state: Literal["before", "thought", "after", "said"] = "before"
        self._holding = opened
        self._held: list[str] = []  # until it is known whether it was said
        self._tags = False

    def feed(self, text: str) -> Iterator[Piece]:
        """Take the next piece of the answer."""
        return self._pieces(text, last=False)

    def end(self) -> Iterator[Piece]:
        """The answer is complete: give the rest."""
        yield from self._pieces("", last=True)
        yield from self._release("said" if self._state == "before" else "thought")

    def apart(self) -> Iterator[Piece]:
        """The server sends reasoning apart from the text: what was held was said."""
        if self._holding:
            self._holding = False
            yield from self._release("said")

    def _pieces(self, piece: str, *, last: bool) -> Iterator[Piece]:
        for text, mark in self._marks.feed(piece, last=last):
            if text:
                yield from self._text(text)
            if mark:
                yield from self._tag(mark)

    def _tag(self, mark: str) -> Iterator[Piece]:
        closing = mark.lower() in _CLOSING
        if closing and self._state != "thought":
            self.was_opened = self.was_opened or not self._tags
            yield "unsaid", ""
            yield from self._release("thought")
        elif self._state != "thought":
            blank = not "".join(self._held).strip()
            yield from self._release("thought" if blank else "said")
        yield "thought", mark
        self._tags, self._holding = True, False
        if closing or self._state != "thought":
            self._state = "after" if closing else "thought"
        self._marks.in_code = self._state != "thought"

    def _text(self, text: str) -> Iterator[Piece]:
        if self._state == "thought":
            yield "thought", text
        elif self._holding or (self._state != "said" and text.isspace()):
            self._held.append(text)
        elif self._state == "said":
            yield "said", text
        else:
            bare = text.lstrip()
            space = text[: len(text) - len(bare)]
            yield from self._release("thought" if self._state == "after" else "said", space)
            self._state = "said"
            yield "said", bare

    def _release(self, kind: Literal["said", "thought"], more: str = "") -> Iterator[Piece]:
        held, self._held = "".join((*self._held, more)), []
        if held:
            yield kind, held
