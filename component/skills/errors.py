"""Errors of skills: in the declaration, in the parameters, and during a call.

Each error is one sentence that may be shown to a caller or an administrator. Texts from outside
(parameter names, values) are truncated and stripped of control characters, so that a sentence can
be sent and logged unchanged.
"""
# ruff: noqa: N818 - the names say what happened to the caller, who reads them in a reply.

from __future__ import annotations

from typing import Final

from xep.stanza_error import StanzaError

_LONGEST_NAME = 100
_LONGEST_REASON = 300


class DeclarationError(TypeError):
    """A function cannot be declared as a skill. Raised by `skill`, at the definition."""


class SkillLoadError(Exception):
    """A module of skills cannot be loaded. Raised by `load_module` and `skills_of`."""


class DuplicateSkillError(ValueError):
    """Two skills have the same name, `skill`. Raised by `Registry.add`."""

    def __init__(self, skill: str, message: str) -> None:
        super().__init__(message)
        self.skill = skill


class SearchError(ValueError):
    """A search has too many words, which is the requester's mistake. Raised by `View.search`."""


class InvalidParam(Exception):
    """The parameters of a call are invalid.

    Raised by `prepare`, and by a skill itself for conditions that its type hints cannot express.

    `name` is the parameter, or None if there is no single one (the JSON is invalid). `path` is the
    place inside it, for nested JSON: `point.x`, `items[3]`; the name itself otherwise.
    """

    def __init__(self, name: str | None, reason: str, path: str | None = None) -> None:
        self.name = None if name is None else printable(name, _LONGEST_NAME)
        self.path = self.name if path is None else printable(path, _LONGEST_NAME)
        self.reason = printable(reason, _LONGEST_REASON)
        super().__init__(self.reason if self.path is None else f"{self.path}: {self.reason}")


class SkillError(Exception):
    """A skill reports an error; the message is for its caller. Raised by skills, handled in `call`.

    The call is completed, with the message as its output and `is_error` set.
    """


class UsageError(Exception):
    """A skill used its Context in a way that is not possible: a mistake of its author."""


class StepFailed(Exception):
    """A step raised another exception than SkillError. It is recorded and not retried."""


class Denied(Exception):
    """The person who was asked declined to answer. `reason` is in their own words, if they gave
    one.

    A skill that needs the answer does not catch it: its task then fails with `denied`.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "The person asked declined to answer.")


class SkillFailed(Exception):
    """A skill broke: it raised an unexpected exception, or returned a value that no reply can
    contain.

    The text is meant for the caller. The cause, which is not, is in `__cause__` for the log.
    `reason` is a sentence for the caller, if the skill was stopped for one: a limit of its sandbox.
    """

    def __init__(self, skill: str, reason: str = "") -> None:
        self.skill = skill
        self.reason = printable(reason, _LONGEST_REASON)
        super().__init__(
            f"The skill {skill} failed: {self.reason}"
            if reason
            else f"The skill {skill} failed because of an internal error; see its log."
        )


class SkillUnavailable(Exception):
    """Something that the skill needs (a server, a process, a worker) failed or cannot be reached.

    The text is meant for the caller. `begun` says that the skill may have had an effect.
    """

    def __init__(self, reason: str, *, begun: bool = True) -> None:
        self.begun = begun
        super().__init__(printable(reason, _LONGEST_REASON))


class SkillInterrupted(SkillUnavailable):
    """A skill that must not run twice was interrupted, so whether it has had its effect is unknown.

    The text is meant for the caller.
    """


class RemoteError(SkillUnavailable):
    """An agent elsewhere, whose skill this is, has refused the call or failed.

    `error` is what callers get: the condition of the other agent if that says more to them than
    that something failed further on (DLG-021).
    """

    def __init__(self, error: StanzaError) -> None:
        self.error = error
        super().__init__(error.text or str(error))


class CapabilityMissing(Exception):
    """A skill tried to use what its manifest does not declare, or what nobody has approved.

    `capability` is the missing one.
    """

    def __init__(self, skill: str, capability: str) -> None:
        self.skill = skill
        self.capability = printable(capability, _LONGEST_NAME)
        super().__init__(
            f"The skill {skill} was stopped: it lacks the capability {self.capability}. Its author"
            " declares it in the manifest (skill.toml), and an admin approves it."
        )


class SkillTimeout(Exception):
    """A skill did not finish in its time."""

    def __init__(self, skill: str, seconds: float) -> None:
        self.skill = skill
        self.seconds = seconds
        super().__init__(f"The skill {skill} did not finish within {seconds:g} seconds.")


CALL_ERRORS: Final = (InvalidParam, SkillFailed, SkillTimeout, SkillUnavailable, CapabilityMissing)
"""The errors that a call of a skill raises."""


def printable(text: str, longest: int) -> str:
    """Return the text without control characters, of at most so many characters."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
