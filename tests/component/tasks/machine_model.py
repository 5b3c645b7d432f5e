"""What the specification says becomes of requests and tasks, without a line of how it is done.

The work of a task is a script, one letter after another:

| letter | the skill |
|---|---|
| `g` | waits at a gate, between steps |
| `s` | does a step with an effect |
| `S` | waits at a gate inside such a step |
| `o` | shows an artifact |
| `a` | asks the principal |
| `n` | says no |
| `x` | breaks |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["durable", "repeatable", "atomic", "quick", "count"]
"""A skill with recorded steps; one that may run twice; one that must not and has no steps; two that
never wait, of which the second must not run twice."""

TERMINAL: Final = ("completed", "failed", "rejected", "cancelled")
WAYS: Final = {  # TSK-001
    "accepted": {"running", "input-required", "cancelled", "failed", "rejected"},
    "running": {"running", "input-required", "cancelling", "completed", "failed"},
    "input-required": {
        *("input-required", "accepted", "running", "cancelled", "failed", "rejected"),
    },
    "cancelling": {"cancelling", "cancelled", "completed", "failed"},
}


@dataclass(frozen=True)
class Script:
    """What is asked for."""

    kind: Kind
    text: str
    guarded: bool = False

    @property
    def repeatable(self) -> bool:
        return self.kind in ("repeatable", "quick")

    @property
    def waits(self) -> bool:
        """Whether it can come to a gate."""
        return "g" in self.text or "S" in self.text

    def steps(self) -> Iterator[int]:
        """Where it has effects; -1 is the whole of one that has no steps."""
        if self.kind in ("atomic", "count"):
            yield -1
        for place, letter in enumerate(self.text):
            if letter in "sS":
                yield place


@dataclass
class Put:
    """A question."""

    id: str
    revision: int
    place: int
    expires: int
    confirms: bool
    state: Literal["open", "answered", "expired", "withdrawn"] = "open"
    answer: object = None


@dataclass
class ModelTask:
    """A task, as its principal should see it."""

    id: str
    owner: str
    label: str
    script: Script
    deadline: int | None
    state: str = "accepted"
    why: str | None = None
    """The condition of its failure."""
    opened: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    approved: bool = False
    declined: bool = False
    at: int = 0
    """Where its script stands."""
    questions: list[Put] = field(default_factory=list)
    forgotten: bool = False
    expires: int = 0
    """When its record does."""

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def open(self) -> Put | None:
        return next((put for put in self.questions if put.state == "open"), None)

    def end(self, state: str, why: str | None = None) -> None:
        """It has ended; its questions go with it (CAN-007)."""
        self.state, self.why = state, why
        for put in self.questions:
            if put.state == "open":
                put.state = "withdrawn"

    def run(self) -> None:
        """It has its turn: how far it comes."""
        self.state, self.why = self._reached()

    def _reached(self) -> tuple[str, str | None]:
        for place, letter in enumerate(self.script.text):
            self.at = place
            if letter in "gS" and place not in self.opened:
                return "running", None
            if letter == "a" and place not in self.answered:
                return "input-required", None
            if letter == "a" and self.declined and place == max(self.answered):
                return "failed", "denied"
            if letter == "n":
                return "completed", None
            if letter == "x":
                return "failed", "internal"
        self.at = len(self.script.text)
        return "completed", None

    @property
    def inside(self) -> bool:
        """Whether it stands where it cannot be known what has happened, should it end here."""
        if self.state != "running" or self.script.repeatable:
            return False
        return self.script.kind == "atomic" or self.script.text[self.at] == "S"

    def cancel(self) -> None:
        """CAN-001 to CAN-006, with nothing under way but a gate."""
        if self.over:
            return
        if self.inside:
            self.end("failed", "outcome-unknown")
        else:
            self.end("cancelled")

    def die(self) -> None:
        """The process is killed, and another one takes it up (RPL-018 to RPL-020)."""
        if self.inside:
            self.end("failed", "outcome-unknown")

    def pass_time(self, now: int, steady: int) -> None:
        """EXE-027, CNF-038, INP-013. `steady` is the time without what the clock was set."""
        put = self.open
        if self.over:
            return
        if self.deadline is not None and now >= self.deadline:
            if put is not None and steady >= put.expires:
                put.state = "expired"
            self.end("failed", "deadline-expired")
        elif put is not None and steady >= put.expires:
            put.state = "expired"
            self.end("failed", "confirmation-expired" if put.confirms else "input-expired")

    def decide(self, put: Put, value: str, *, wrong_hash: bool, now: int) -> str | None:
        """CNF-032 for somebody who was asked; the condition it is refused with."""
        if wrong_hash:
            return "conflict"
        if put.state == "answered":
            return None if put.answer == value else "conflict"
        if put.state == "expired" or now >= put.expires:
            return "expired"
        if put.state != "open" or self.over:
            return "conflict"
        put.state, put.answer = "answered", value
        if value == "approve":
            self.approved = True
            self.run()
        else:
            self.end("failed", "denied")
        return None

    def answer(
        self, put: Put, value: object, *, fits: bool, wrong_revision: bool, now: int
    ) -> str | None:
        """INP-010 for its principal; `value` None declines."""
        if put.state == "answered":
            same = put.answer == value and fits and not wrong_revision
            return None if same else "conflict"
        if wrong_revision:
            return "conflict"
        if put.state == "expired" or now >= put.expires:
            return "expired"
        if put.state != "open" or self.over:
            return "conflict"
        if not fits:
            return "invalid-param"
        put.state, put.answer = "answered", value
        self.answered.add(put.place)
        self.declined = value is None
        self.run()
        return None


@dataclass
class Record:
    """What answers a repetition."""

    owner: str
    answer: str | None
    """None: not known yet."""
    on_disk: bool
    life: int
    expires: int
    task: ModelTask | None = None
    named: bool = True

    def is_kept(self, now: int, life: int) -> bool | None:
        """Whether a repetition must get the same; None if it may, and may be new work too."""
        if not self.named and now >= self.expires:
            return False
        if self.on_disk and (now < self.expires or (self.task is not None and not self.task.over)):
            return True
        if self.life != life:
            return False
        return True if now < self.expires else None


def first_answers(script: Script, mode: str, within_limit: bool) -> set[str]:
    """What may answer a request that nothing speaks against.

    `accepted`, `result`, or a condition. `within_limit` says that the inline limit is not reached.
    """
    if script.guarded:
        return {"confirmation-unavailable"} if mode == "inline" else {"accepted"}
    if mode == "async":
        return {"accepted"}
    ends = {"result"}
    for letter in script.text:
        if letter in "gS":
            ends = {"timeout"} if mode == "inline" else {"accepted"}
            break
        if letter == "a":
            ends = {"confirmation-unavailable"} if mode == "inline" else {"accepted"}
            break
        if letter == "n":
            break
        if letter == "x":
            ends = {"internal"}
            break
    if not within_limit:
        ends = ends | ({"timeout"} if mode == "inline" else {"accepted"})
    if script.kind in ("quick", "count"):
        # Never waits; and may all the same be a task before anybody has looked.
        ends = {"result"} if within_limit or script.kind == "quick" else ends
    return ends


def leaves_nothing(script: Script, mode: str) -> bool:
    """Whether the refusal of it is one at admission, which is not recorded (RPL-003)."""
    return script.guarded and mode == "inline"
