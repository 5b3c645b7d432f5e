"""Drafts of what is proposed: what a model writes, and how it is judged."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from component.policy.taint import Taint
from component.skill_directories.proposals import AnsweredPrompt, Proposal


class DraftError(Exception):
    """A draft is refused. The message says what is wrong, for its author."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A draft that was checked, and may be tried.

    Attributes:
        name: its name in the directory of proposals, and for admins.
        kind: the noun for what is proposed.
        title: its name for people.
        how: what people read about it besides, in a word.
        files: by their names.
        uses: what it would use, for people.
        capabilities: the same as policies know it.
    """

    name: str
    kind: str
    title: str
    how: str = ""
    files: Mapping[str, str]
    uses: tuple[str, ...]
    capabilities: tuple[str, ...]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a draft after it was tried, as `Proposal` has it."""

    digest: str
    tests: tuple[str, ...] = ()
    answers: tuple[AnsweredPrompt, ...] = ()
    cost: str = ""
    taints: tuple[Taint, ...] = ()


D = TypeVar("D")
P = TypeVar("P", bound=Prepared)


class Drafts(ABC, Generic[D, P]):
    """What a model writes when something is proposed, and how that is judged.

    Attributes:
        schema: the type of a draft.
    """

    schema: type[D]

    @abstractmethod
    def prompt(self, last: D | None, problem: str) -> str:
        """Return the question for a model: the first, or the one after a draft that was refused."""

    @abstractmethod
    def prepare(self, draft: D) -> P:
        """Check a draft, without a model. Blocks for a moment. Raises DraftError."""

    @abstractmethod
    async def try_out(self, prepared: P) -> Tried:
        """Try what was checked; nothing real is changed.

        Raises DraftError: another draft may be better; SkillError: that would not help.
        """

    @abstractmethod
    def said(self, prepared: P, proposal: Proposal) -> str:
        """Return the report for the caller about a proposal that was kept."""


def check_text(what: str, text: str, most_bytes: int, longest_line: int) -> None:
    """Refuse a text that an admin cannot read as it is used. Raises DraftError."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise DraftError(f"{what} has half of a surrogate pair.") from None
    if size > most_bytes:
        raise DraftError(f"{what} has {size:,} bytes, more than the permitted {most_bytes:,}.")
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > longest_line:
            raise DraftError(
                f"{what}, line {number}: more than {longest_line} characters: wrap it."
            )
        for char in line:
            # Control and format characters hide text, or change its order on a screen.
            if char != "\t" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cn"):
                name = unicodedata.name(char, "a control character")
                raise DraftError(f"{what}, line {number} has {name}: write an escape instead.")


def quoted(description: str) -> str:
    """Return a description for a prompt, between lines of dashes that it cannot end."""
    line = "-" * 20
    return f"{line}\n{description.replace('-----', '- - -')}\n{line}"
