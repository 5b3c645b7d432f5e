"""A skill: its description, and how it is called. What implements it is invisible to callers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from component.policy.taint import TAINTS, Taint, worst
from component.skills.inputs import Arguments, Inputs
from component.skills.outputs import SkillResult, as_result
from component.skills.spec import TAINT_CHOICES, SkillSpec
from xep.jid import JID

if TYPE_CHECKING:
    from component.skills.context import Context

_CONTENT: Final = r"\+sha256\.[0-9a-f]{12}\Z"

RunKind = Literal["inline", "thread", "async"]
Invoke: TypeAlias = Callable[[Arguments, "Context | None"], Any]
Complete: TypeAlias = Callable[[JID, JID, Arguments], Awaitable[Arguments]]
"""Completes the arguments of a call, for its requester (a full JID, if known) and the address of
this service that received it. Raises InvalidParam and StorageError.
"""
Own: TypeAlias = Callable[[JID, Arguments], bool]
"""Returns whether a call for a principal, a bare JID, affects nobody else."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skill(SkillSpec):
    """A skill that can be called.

    `inputs` converts parameters to validated arguments, with which `invoke` is called, and with the
    call's context if `wants_context`. `kind` is how that runs: `inline` at once on the event loop,
    `thread` in a worker thread, `async` as a coroutine function. A `repeatable` skill may run
    twice; another one without recorded steps is `atomic`. If a repeatable one runs inline, it is
    served `at_once`: it needs neither a task nor a record. `granted` returns the capabilities that
    are approved now; without it the skill is trusted, and has all that it declares. `described_by`
    is the least trusted possible author of its name, texts and schemas, or None if that is the
    operator; `claims` is what else that author says of it, in types of JSON. The version of one
    that is `versioned_by_content` also has a hash of its description (`1.0.0+sha256.a3f1…`), since
    its source may change it without a new version. `complete` fills in arguments that depend on the
    person, before they are asked to confirm the call. `own` says which calls of a skill with `undo`
    affect nobody else; None: all of them.
    """

    inputs: Inputs
    kind: RunKind
    wants_context: bool
    invoke: Invoke = dataclasses.field(repr=False)
    granted: Callable[[], Sequence[str]] | None = dataclasses.field(default=None, repr=False)
    described_by: Taint | None = None
    claims: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    versioned_by_content: bool = dataclasses.field(default=False, repr=False)
    complete: Complete | None = dataclasses.field(default=None, repr=False)
    own: Own | None = dataclasses.field(default=None, repr=False)
    repeatable: bool = dataclasses.field(init=False, repr=False)
    atomic: bool = dataclasses.field(init=False, repr=False)
    at_once: bool = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the description. Raises DeclarationError."""
        if self.versioned_by_content:  # a copy of such a skill has a hash already
            object.__setattr__(self, "version", re.sub(_CONTENT, "", self.version))
        SkillSpec.__post_init__(self)
        if self.versioned_by_content:
            object.__setattr__(self, "version", f"{self.version}+sha256.{self.digest.hex()[:12]}")
        object.__setattr__(self, "repeatable", self.annotations.repeatable)
        object.__setattr__(self, "atomic", not (self.repeatable or self.durable))
        plain = self.queue is None and self.attempts == 1
        at_once = self.kind == "inline" and self.repeatable and plain
        object.__setattr__(self, "at_once", at_once)

    def result(self, value: Any, duration: float) -> SkillResult:
        """Convert the value that `invoke` returned to a result.

        Raises as `as_result` does, and ValueError for a result that declares a less trusted author
        than the skill does: others rely on the skill's declaration.
        """
        made = as_result(value, duration)
        if made.taints is None:
            return made
        if not set(made.taints) <= set(TAINTS):
            raise ValueError(f"a result says taints={made.taints!r}: {TAINT_CHOICES}, in a tuple")
        if worst((self.taint, *made.taints)) != self.taint:
            raise ValueError(
                f"a result says taints={made.taints!r}, and the skill declares taint={self.taint!r}"
                ": declare the most that its results can hold"
            )
        return made
