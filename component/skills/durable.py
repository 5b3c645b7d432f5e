"""What runs the durable parts of a call: steps, questions, timers, child tasks, answers of models.

`component.tasks.host` implements it in the service, `component.sandbox.guest` in a confined
process, and others where nothing is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from component.skills.model_answers import ModelQuestion

T = TypeVar("T")

Work: TypeAlias = Callable[[str], Awaitable[T]]
"""The work of a step, called with its idempotency key."""


class Parked(BaseException):
    """The call waits for a person: its function is interrupted, and runs again with the answer.

    It is not an `Exception`, so that `except Exception` in a skill does not catch it. Never catch
    it.
    """


class ChildResult(msgspec.Struct, frozen=True):
    """The outcome of a child task.

    `state` is `completed`, `failed`, `rejected`, `cancelled`, `unknown`, or that of a task that
    need not be waited for any more. `text` is what a completed one returned, `is_error` whether it
    raised SkillError, `reason` why another one failed.
    """

    task: str
    state: str
    text: str = ""
    is_error: bool = False
    reason: str = ""

    @property
    def success(self) -> bool:
        """Whether it completed and raised no SkillError."""
        return self.state == "completed" and not self.is_error


class DurableHost(Protocol):
    """Runs the call durably; `Context` delegates to it and documents its methods."""

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""

    @property
    def resumes(self) -> bool:
        """Whether another execution continues the call if this one is cancelled now."""
        ...

    async def progress(self, fraction: float, text: str) -> None:
        """Report progress."""

    async def output(self, name: str, text: str, media_type: str, *, last: bool) -> None:
        """Publish a part of an artifact."""

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - it is one
        *,
        repeatable: bool,
        key: str | int | None,
        input: object,  # noqa: A002 - the name that the author of a skill writes
    ) -> T:
        """Run a step once."""

    async def ask(
        self,
        question: str,
        schema: type[Any] | Mapping[str, Any],
        expires_s: float | None,
        *,
        key: str | int | None,
    ) -> Any:
        """Ask the principal; the answer is of the type, or a dict for a JSON Schema."""

    async def sleep(self, seconds: float, *, key: str | int | None) -> None:
        """Wait for a time."""

    async def start(
        self, skill: str, params: Mapping[str, Any], *, delay_s: float, key: str | int | None
    ) -> str:
        """Start a child task."""

    async def wait(
        self, tasks: Sequence[str], *, eager: bool, key: str | int | None
    ) -> list[ChildResult]:
        """Wait for child tasks."""

    async def wait_for_turn(self, turn: str) -> NoReturn:
        """Leave the skill until a turn has ended."""
        ...

    async def llm(self, question: ModelQuestion, *, key: str | int | None) -> str:
        """Ask a model."""
