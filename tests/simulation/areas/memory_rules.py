"""What must hold for what people have the agent remember."""

import re
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from tests.simulation.history import Entry, Fault, Prompt, Stanza, Wish
from tests.simulation.rules import Rule, Violation

ABSENT: Final = "nothing"
"""The value of what was forgotten, or never remembered."""
_VALUE: Final = re.compile(r"\bvalue-\w+\b")
_SYNC_S: Final = 3600.0
"""Seconds within which a change in an account is known to the agent, when nothing fails."""

_ROUND_S: Final = 60.0
"""Seconds from an answer of a model to its next prompt in the same turn."""


class Write(msgspec.Struct):
    """A change that somebody wants: of which memory, to which value, at which side, from when, and
    when it was confirmed.
    """

    who: str
    key: str
    value: str
    side: str
    began: float
    ended: float = float("inf")


class Memories(Rule):
    """What was confirmed to be remembered is found again, what was confirmed to be forgotten is
    not, and what is no longer remembered is in no prompt.

    Changes of the same memory that were made at the same time may have any order, as may those on
    the two sides if the agent could not see one of them before the other was made. With nodes in
    accounts (`is_remote`) it may see them late. A turn keeps the memories with which it has begun.
    """

    def __init__(self) -> None:
        self._writes: dict[str, Write] = {}
        self._is_remote = False
        self._shown: dict[str, float] = {}
        """When the last prompt with each value was answered."""
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        elif isinstance(entry, Prompt):
            for value in set(_VALUE.findall(entry.text)):
                self._check_prompt(entry, value)
        elif isinstance(entry, Wish):
            self._wished(entry)
        elif isinstance(entry, Stanza) and stanza is not None and stanza.get("type") == "error":
            # A command that was returned is not done.
            self._writes.pop(stanza.get("id", "").rpartition("-")[2], None)

    def _wished(self, wish: Wish) -> None:
        match wish.text.split():
            case ["memories", "are", "in", "accounts"]:
                self._is_remote = True
            case ["memory", key, "shall", "be", value, "in", side, number]:
                self._writes[number] = Write(wish.who, key, value, side, wish.at)
            case ["change", number, "is", "done"]:
                if number in self._writes:
                    self._writes[number].ended = wish.at
            case ["change", number, "has", "failed"]:
                self._writes.pop(number, None)
            case ["memory", key, "is", value, "in", side]:
                self._check(wish.who, key, value, side)

    def _of(self, who: str, key: str) -> list[Write]:
        return [one for one in self._writes.values() if (one.who, one.key) == (who, key)]

    def _replaces(self, later: Write, earlier: Write) -> bool:
        """Return whether the later change is certainly made to what the earlier one has left."""
        if later.ended == float("inf"):
            return False
        pause = _SYNC_S if self._is_remote and later.side != earlier.side else 0.0
        failed = any(earlier.began <= at <= later.began for at in self._faults)
        if pause and failed:  # it may have been seen only then
            last = max(at for at in self._faults if at <= later.began)
            return later.began > max(last, earlier.ended) + pause
        return later.began > earlier.ended + pause

    def _possible(self, who: str, key: str) -> set[str]:
        """Return the values that a memory can have at the end."""
        writes = self._of(who, key)
        left = [
            one
            for one in writes
            if not any(self._replaces(other, one) for other in writes if other is not one)
        ]
        found = {one.value for one in left}
        if all(one.ended == float("inf") for one in writes):
            found.add(ABSENT)
        return found

    def _check(self, who: str, key: str, value: str, side: str) -> None:
        possible = self._possible(who, key)
        if value not in possible:
            raise Violation(f"{key} of {who} is {value} in {side}, and not {sorted(possible)}")

    def _check_prompt(self, prompt: Prompt, value: str) -> None:
        mine = next((one for one in self._writes.values() if one.value == value), None)
        if mine is None:
            return
        began_before = prompt.at <= self._shown.get(value, float("-inf")) + _ROUND_S
        self._shown[value] = prompt.until
        if began_before:
            return
        for other in self._of(mine.who, mine.key):
            is_far = self._is_remote and other.side != mine.side
            since = other.ended + (_SYNC_S if is_far else 0.0)
            last = prompt.at - 2 * _SYNC_S
            failed = is_far and any(last <= at <= prompt.at for at in self._faults)
            if self._replaces(other, mine) and prompt.at > since and not failed:
                raise Violation(
                    f"a model was shown {value}, after {mine.key} of {mine.who} became"
                    f" {other.value}"
                )
