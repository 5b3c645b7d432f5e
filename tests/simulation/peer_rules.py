"""What must hold when agents of other domains work for a person of the first one."""

import re
from collections import defaultdict
from decimal import Decimal
from math import inf
from typing import Final
from xml.etree import ElementTree as ET

from tests.simulation.history import Effect, Entry, Fault, Passing, Prompt, Stanza, Wish
from tests.simulation.peer_skills import cost
from tests.simulation.rules import CONFIRM, EXECUTE, TASK, Rule, Violation

DELEGATION: Final = "{urn:fluux:agent:0#delegation}"
LAST: Final = "agent.mantua.example"
MIDDLE: Final = "agent.verona.example"
DELEGATES: Final = "delegates"
"""The first word of the wish to have something done by agents of other domains."""
_STOPS_S: Final = 300.0
"""Seconds after which cancelled work has ended everywhere, if nothing fails."""
_BOOK: Final = re.compile(r"Sum up book \d+ of (x\d+)\.")
_LABEL: Final = re.compile(r"\bx\d+\b")


def _labels(text: str) -> set[str]:
    return set(_LABEL.findall(text))


class Asked(Rule):
    """Who wants the work, and nobody else, is asked; the last agent gets the words that were
    answered, and erases only what was approved.
    """

    def __init__(self) -> None:
        self._who: dict[str, str] = {}
        self._confirms: dict[str, str] = {}
        """The label that a confirmation of the last agent is about, by its id."""
        self._approved: set[str] = set()
        self._said = defaultdict[str, set[str]](set)
        """What everybody has written in a chat: an answer to any question that is open."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish):
            words = entry.text.split()
            if words[0] == DELEGATES:
                self._who[words[2]] = entry.who
        elif isinstance(entry, Effect) and entry.label in self._who:
            self._check(entry)
        elif isinstance(entry, Stanza) and stanza is not None:
            who = entry.session.partition("/")[0]
            if entry.way == "sent":
                self._decided(who, stanza)
                self._said[who].add(stanza.findtext("{*}body", ""))
            elif stanza.tag.rpartition("}")[2] == "message":
                self._was_asked(who, stanza)

    def _was_asked(self, who: str, message: ET.Element) -> None:
        confirm = message.find(f"{CONFIRM}confirm")
        asked = message.find(f".//{TASK}input") if confirm is None else confirm
        if asked is None:
            return
        for label in _labels(ET.tostring(message, "unicode")) & self._who.keys():
            if self._who[label] != who:
                raise Violation(f"{who} is asked about {label} of {self._who[label]}")
            if confirm is not None and confirm.get("agent", "").endswith(LAST):
                self._confirms[confirm.get("id", "")] = label

    def _decided(self, who: str, stanza: ET.Element) -> None:
        for decision in stanza.iter(f"{CONFIRM}decision"):
            label = self._confirms.get(decision.get("id", ""))
            if label and decision.get("value") == "approve" and self._who[label] == who:
                self._approved.add(label)

    def _check(self, effect: Effect) -> None:
        label, step = effect.label, effect.step
        if step == "forbidden":
            raise Violation(f"{label}: the last agent has done what it must not do")
        if step == "erased" and label not in self._approved:
            raise Violation(f"{label} was erased, and {self._who[label]} has not approved that")
        if step.startswith("after "):
            self._check_word(label, step.removeprefix("after "))

    def _check_word(self, label: str, word: str) -> None:
        who = self._who[label]
        if word != f"word-{label}" and word not in self._said[who]:
            raise Violation(f"{label}: the last agent was told {word!r}")


class Authority(Rule):
    """No request of an agent has more authority than the one that it works for."""

    def __init__(self) -> None:
        self._who: dict[str, str] = {}
        self._given: dict[str, ET.Element] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish):
            words = entry.text.split()
            if words[0] == DELEGATES:
                self._who[words[2]] = entry.who
        if not isinstance(entry, Passing) or f"{EXECUTE[1:-1]}'" not in entry.xml:
            return
        stanza = ET.fromstring(entry.xml)
        execute = stanza.find(f"{EXECUTE}execute")
        if stanza.get("type") == "error":
            return  # some servers return the request with it
        params = None if execute is None else execute.findtext(f"{EXECUTE}params")
        labels = _labels(params or "")
        if execute is None or not labels:
            return
        (label,) = labels
        delegation = execute.find(f"{DELEGATION}delegation")
        if delegation is None:
            raise Violation(f"{entry.sender} does not say for whom it asks about {label}")
        if delegation.get("origin") != self._who[label]:
            raise Violation(f"{label} is delegated in the name of {delegation.get('origin')}")
        if entry.receiver == MIDDLE:
            self._given[label] = execute
        else:
            self._compare(label, self._given[label], execute)

    def _compare(self, label: str, given: ET.Element, made: ET.Element) -> None:
        before, after = (one.find(f"{DELEGATION}delegation") for one in (given, made))
        assert before is not None
        assert after is not None
        ways = [[via.text for via in one.iter(f"{DELEGATION}via")] for one in (before, after)]
        if ways[1][:-1] != ways[0]:
            raise Violation(f"{label}: the path {ways[0]} becomes {ways[1]}")
        for name in ("max-hops", "budget-usd", "budget-tokens"):
            most = before.get(name)
            if most is not None and Decimal(after.get(name, "inf")) > Decimal(most):
                raise Violation(f"{label}: {name} grows from {most} to {after.get(name)}")
        deadlines = [one.get("deadline", "9") for one in (given, made)]
        if deadlines[1] > deadlines[0]:
            raise Violation(f"{label}: the deadline grows from {deadlines[0]} to {deadlines[1]}")


class Stops(Rule):
    """Work that was cancelled stops at the last agent, and soon if nothing fails meanwhile."""

    def __init__(self) -> None:
        self._of_task: dict[str, str] = {}
        self._asked: dict[tuple[str, str], str] = {}
        self._cancelled: dict[str, float] = {}
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        elif isinstance(entry, Effect):
            self._went_on(entry.label, entry.at)
        elif isinstance(entry, Passing):
            if entry.sender in (MIDDLE, LAST):
                for label in _labels(entry.xml) & self._cancelled.keys():
                    self._went_on(label, entry.at)
        elif isinstance(entry, Stanza) and stanza is not None:
            self._look(entry, stanza)

    def _went_on(self, label: str, now: float) -> None:
        at = self._cancelled.get(label)
        if at is None or now <= at + _STOPS_S:
            return
        if not any(at - 5 * _STOPS_S <= fault <= now for fault in self._faults):
            raise Violation(f"{label} goes on {now - at:.0f} s after it was cancelled")

    def _look(self, entry: Stanza, stanza: ET.Element) -> None:
        key = entry.session, stanza.get("id", "")
        execute = stanza.find(f"{EXECUTE}execute")
        if execute is not None and entry.way == "sent":
            self._asked[key] = execute.get("request", "")
        accepted = stanza.find(f"{EXECUTE}accepted")
        if accepted is not None and key in self._asked:
            self._of_task[accepted.get("task", "")] = self._asked[key]
        for task in stanza.findall(f"{TASK}task"):
            label = self._of_task.get(task.get("id", ""))
            if label and task.get("state") == "cancelled" and entry.way == "received":
                self._cancelled.setdefault(label, entry.at)


class Spending(Rule):
    """The last agent asks its model no more than the budget of its request permits."""

    def __init__(self) -> None:
        self._budgets: dict[str, float] = {}
        self._spent: dict[str, list[float]] = defaultdict(list)

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._spent.clear()  # what was spent just before may be unknown
        elif isinstance(entry, Prompt):
            match = _BOOK.search(entry.text)
            if match is not None:
                spent = self._spent[match[1]]
                spent.append(cost(entry.text))
                # The last question may be too much, since its answer is not known before.
                if sum(spent[:-1]) > self._budgets.get(match[1], inf):
                    raise Violation(f"{match[1]} has cost {sum(spent)} of {self._budgets}")
        elif isinstance(entry, Passing) and entry.receiver == LAST:
            found = ET.fromstring(entry.xml).find(f"{EXECUTE}execute/{DELEGATION}delegation")
            budget = None if found is None else found.get("budget-usd")
            if budget is not None:
                for label in _labels(entry.xml):
                    self._budgets[label] = float(budget)
