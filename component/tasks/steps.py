"""What is recorded of the steps of one run: their names, their keys, and how they ended.

A step of the skill and a question to a person are both steps here: what they gave is recorded
under a name that is the same in every life of the run.
"""

import hashlib
from collections import Counter
from typing import TypeVar

import msgspec

from component.skills.errors import Denied, SkillError, StepFailed
from component.tasks.leases import Journal

T = TypeVar("T")


class Steps:
    """The steps of a run, those of its earlier lives included.

    Args:
        task: the id that its task has, or would have.
        journal: what earlier lives have recorded.

    Attributes:
        done: the records of those that are done, by name.
        under_way: those with effects that have begun.
        unbegun: those of which is written that they begin, and that were stopped just then.
    """

    def __init__(self, task: str, journal: Journal | None) -> None:
        self._task = task
        self._used: Counter[str] = Counter()
        self.done: dict[str, str] = {} if journal is None else journal.done
        self.under_way: set[str] = set()
        self.unbegun: list[str] = []

    def step_named(self, name: str) -> str:
        """The name under which a step of the skill is recorded."""
        return self._name(f".{name}")

    def question_named(self, question: str) -> str:
        """The name under which the answer to a question is recorded."""
        return self._name(f"?{hashlib.sha256(question.encode()).hexdigest()[:16]}")

    def _name(self, name: str) -> str:
        """A second use of a name is another step, whatever comes between."""
        self._used[name] += 1
        count = self._used[name]
        return name if count == 1 else f"{name}#{count}"

    def key_of(self, step: str) -> str:
        """The idempotency key of a step, the same in every life."""
        return hashlib.sha256(f"{self._task}/{step}".encode()).hexdigest()[:32]


def gave(value: object) -> str:
    """The record of a step that gave a value."""
    return msgspec.json.encode({"value": value}).decode()


def refused(error: SkillError) -> str:
    """The record of a step whose error is meant for the caller."""
    return msgspec.json.encode({"refused": str(error)}).decode()


def failed(error: Exception) -> str:
    """The record of a step that failed in any other way."""
    return msgspec.json.encode({"failed": described(error)}).decode()


def described(error: Exception) -> str:
    """An error and what a person calls it."""
    return f"{type(error).__name__}: {error}"


def recalled(record: str, wanted: type[T]) -> T:
    """What a step gave, as it was recorded; a question's answer is a `Reply`.

    Raises what the step raised: Denied, SkillError or StepFailed.
    """
    recorded = msgspec.json.decode(record)
    if "value" in recorded:
        return msgspec.convert(recorded["value"], wanted)
    if "declined" in recorded:
        raise Denied(recorded["declined"])
    if "refused" in recorded:
        raise SkillError(recorded["refused"])
    raise StepFailed(f"The step failed: {recorded.get('failed', 'nobody knows why')}")
