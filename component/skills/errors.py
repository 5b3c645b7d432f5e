"""What can go wrong with a skill: at its declaration, with its parameters, while it runs.

Each error is one sentence that may be shown to a caller or an administrator. What came from outside
(parameter names, values) is cut short and stripped of control characters, so that a sentence can be
put on the wire and into a log as it stands.
"""
# ruff: noqa: N818 - the names say what happened to the caller, who reads them in a reply.

from __future__ import annotations

_LONGEST_NAME = 100
_LONGEST_REASON = 300


class DeclarationError(TypeError):
    """A function cannot be a skill as it stands. Raised by `skill`, where it is defined."""


class SkillLoadError(Exception):
    """A module of skills cannot be loaded. Raised by `load_module` and `skills_of`."""


class DuplicateSkillError(ValueError):
    """Two skills have one name. Raised by `Registry.add`."""


class SearchError(ValueError):
    """A search has too many words, which is its sender's fault. Raised by `View.search`."""


class InvalidParam(Exception):
    """A call's parameters do not fit the skill.

    Raised by `prepare`, and by a skill itself for what its type hints cannot say.

    `name` is the parameter, or None where no single one is to blame (the JSON cannot be read).
    `path` is where inside it, for nested JSON: `point.x`, `items[3]`; the name itself otherwise.
    """

    def __init__(self, name: str | None, reason: str, path: str | None = None) -> None:
        """Take the parameter's name, the reason as an unfinished sentence, and the path."""
        self.name = None if name is None else printable(name, _LONGEST_NAME)
        self.path = self.name if path is None else printable(path, _LONGEST_NAME)
        self.reason = printable(reason, _LONGEST_REASON)
        super().__init__(self.reason if self.path is None else f"{self.path}: {self.reason}")


class SkillError(Exception):
    """A skill ran and says no; the message is for its caller. Raised by skills, ends in `call`.

    The call is completed, with the message as its output and `is_error` set.
    """


class UsageError(Exception):
    """A skill used its Context in a way that cannot be kept: a mistake of its author."""


class StepFailed(Exception):
    """A step of a skill raised what is no SkillError. It is recorded, and not tried again."""


class Denied(Exception):
    """Who was asked declined to answer. `reason` is in their own words, if they gave one.

    A skill that cannot do without lets it pass: its task then fails with `denied`.
    """

    def __init__(self, reason: str = "") -> None:
        """Take the reason."""
        self.reason = reason
        super().__init__(reason or "The person asked declined to answer.")


class SkillFailed(Exception):
    """A skill broke: it raised what it should not, or returned what no reply can carry.

    The text is fit for the caller. The cause, which is not, is in `__cause__` for the log.
    """

    def __init__(self, skill: str) -> None:
        """Take the name of the skill."""
        self.skill = skill
        super().__init__(f"The skill {skill} failed for a reason of its own; its log has more.")


class SkillTimeout(Exception):
    """A skill did not finish in its time."""

    def __init__(self, skill: str, seconds: float) -> None:
        """Take the name of the skill and the seconds it had."""
        self.skill = skill
        self.seconds = seconds
        super().__init__(f"The skill {skill} did not finish within {seconds:g} seconds.")


def printable(text: str, longest: int) -> str:
    """Return the text without control characters, of at most so many characters."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
