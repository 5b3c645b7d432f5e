"""Whom an agent answers in a room, and how often: so that it does not disturb, two programs do not
answer each other for ever, and one occupant does not use up what all have.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from component.caches import LRUCache

_MINUTE_S: Final = 60.0
_OCCUPANTS: Final = 1_000
"""The number of occupants whose rate is remembered."""
_BUSY: Final = (
    "I am still working on your messages. I have read the last one, and consider it when you ask me"
    " again."
)
_TOO_FAST: Final = (
    "You have asked me {count} times in the last minute, which is the most that I answer here."
    " Please wait for a minute."
)
_TOO_MANY: Final = (
    "I have written {count} messages in the last minute, which is the most that I do here. I am"
    " silent for a minute."
)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much an agent says in a room.

    Attributes:
        answers: the most messages in a minute.
        per_occupant: the most answers to one occupant in a minute.
        agent_turns: the most answers to other agents in a row without a message of a person.
        agents: whether other agents may ask at all.
    """

    answers: int = 10
    per_occupant: int = 5
    agent_turns: int = 2
    agents: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """Whether a request is answered; if not, `sentence` is what is said instead, if anything."""

    answers: bool
    sentence: str = ""


_YES: Final = Verdict(answers=True)
_SILENT: Final = Verdict(answers=False)


class Manners:
    """The manners of an agent in one room.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._written: deque[float] = deque()
        self._asked: LRUCache[str, deque[float]] = LRUCache(_OCCUPANTS)
        self._said: LRUCache[str, float] = LRUCache(_OCCUPANTS)
        self._agent_turns = 0

    def heard_person(self) -> None:
        """Note a message of a person."""
        self._agent_turns = 0

    def ask(self, occupant: str, *, is_agent: bool, waiting: int) -> Verdict:
        """Decide whether a request of an occupant is answered; if so, it counts.

        `waiting` is the number of requests of this occupant that wait.
        """
        now, limits = self._clock(), self.limits
        if is_agent and (not limits.agents or self._agent_turns >= limits.agent_turns):
            return _SILENT
        if len(_recent(self._written, now)) >= limits.answers:
            text = _TOO_MANY.format(count=limits.answers)
            return Verdict(answers=False, sentence=text) if self._is_due("", now) else _SILENT
        asked = self._asked.get(occupant, None) or deque[float]()
        self._asked[occupant] = asked
        if waiting or len(_recent(asked, now)) >= limits.per_occupant:
            text = _BUSY if waiting else _TOO_FAST.format(count=limits.per_occupant)
            told = not is_agent and self.may_say(f"limit {occupant}")
            return Verdict(answers=False, sentence=text) if told else _SILENT
        asked.append(now)
        self._written.append(now)
        self._agent_turns += is_agent
        return _YES

    def may_say(self, what: str, every_s: float = _MINUTE_S) -> bool:
        """Return whether something may be said that is said once in a time; if so, it counts."""
        now = self._clock()
        if len(_recent(self._written, now)) >= self.limits.answers:
            return False
        if not self._is_due(what, now, every_s):
            return False
        self._written.append(now)
        return True

    def _is_due(self, what: str, now: float, every_s: float = _MINUTE_S) -> bool:
        last = self._said.get(what)
        if last is not None and now - last < every_s:
            return False
        self._said[what] = now
        return True


def _recent(times: deque[float], now: float) -> deque[float]:
    """Return the times of the last minute; the others are removed."""
    while times and now - times[0] >= _MINUTE_S:
        times.popleft()
    return times
