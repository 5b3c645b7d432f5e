"""What must always hold, from what can be seen outside: written from the specification.

Each class looks at the entries of a history as they are added, and raises Violation. `at_rest` is
called after a time without faults, in which everything must have ended.
"""

import re
from collections import Counter, defaultdict
from typing import Any, Final
from xml.etree import ElementTree as ET

from tests.simulation.history import Effect, Entry, Fault, History, Prompt, Stanza, Wish

_PATIENCE_S: Final = 60.0
_ENDS: Final = ("completed", "failed", "rejected", "cancelled")
_SECRET: Final = re.compile(r"secret-([a-z]+)-\d+")
_LABEL: Final = re.compile(r"\b[xms]\d+(?:\.\w+)?\b")
_EXECUTE: Final = "{urn:fluux:agent:0#execute}"
_TASK: Final = "{urn:fluux:agent:0#task}"
_CONFIRM: Final = "{urn:fluux:agent:0#confirm}"


class Violation(Exception):  # noqa: N818 - it says what was violated
    """Something that must not happen has happened."""


class Invariants:
    """All invariants of one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._rules: tuple[Rule, ...] = (
            Answers(),
            Ends(),
            Effects(),
            Approvals(),
            Replies(),
            Privacy(),
            Schedules(),
        )
        history.observers.append(self._look)

    def _look(self, entry: Entry) -> None:
        stanza = None
        if isinstance(entry, Stanza):
            stanza = ET.fromstring(entry.xml)  # noqa: S314 - of this process
        for rule in self._rules:
            rule.saw(entry, stanza)

    def at_rest(self, kit: Any) -> None:
        """Check what must hold after a time without faults. Raises Violation."""
        for rule in self._rules:
            rule.at_rest()
        check_internals(kit)


class Rule:
    """One invariant."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        """Look at an entry; `stanza` is its stanza. Raises Violation."""

    def at_rest(self) -> None:
        """Look whether everything has ended. Raises Violation."""


class Answers(Rule):
    """Each IQ is answered once, unless the service or the asker has gone meanwhile."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], float] = {}
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault) and entry.kind in ("kill", "stop", "crash", "cut", "start", "away"):
            self._faults.append(entry.at)
        if stanza is None or not stanza.tag.endswith("}iq"):
            return
        assert isinstance(entry, Stanza)
        key = entry.session, stanza.get("id", "")
        if entry.way == "sent" and stanza.get("type") in ("get", "set"):
            self._open[key] = entry.at
        elif entry.way == "received" and stanza.get("type") in ("result", "error"):
            if self._open.pop(key, None) is None:
                raise Violation(f"an IQ was answered twice, or without being asked: {key}")

    def at_rest(self) -> None:
        for (session, id_), at in self._open.items():
            if not any(at - 1 <= fault <= at + _PATIENCE_S for fault in self._faults):
                raise Violation(f"the IQ {id_} of {session} was never answered")


class Ends(Rule):
    """An accepted task ends, once, and nothing follows its end."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], str] = {}
        self.tasks: dict[str, str] = {}
        """The state of each task that was heard of."""
        self._revisions: dict[str, int] = {}
        self._of_request: dict[tuple[str, str], str] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if stanza is None:
            return
        assert isinstance(entry, Stanza)
        who = entry.session.partition("/")[0]
        if entry.way == "sent":
            execute = stanza.find(f"{_EXECUTE}execute")
            if execute is not None:
                self._asked[entry.session, stanza.get("id", "")] = execute.get("request", "")
            return
        accepted = stanza.find(f"{_EXECUTE}accepted")
        if accepted is not None:
            request = self._asked.get((entry.session, stanza.get("id", "")), "")
            task = accepted.get("task", "")
            before = self._of_request.setdefault((who, request), task)
            if before != task:
                raise Violation(f"the request {request} became two tasks: {before} and {task}")
            self.tasks.setdefault(task, "accepted")
        for task_ in stanza.findall(f"{_TASK}task"):
            self._event(task_, is_event=stanza.tag.endswith("}message"))

    def _event(self, task: ET.Element, *, is_event: bool) -> None:
        id_, state = task.get("id", ""), task.get("state")
        if state is None:
            return
        revision, before = int(task.get("revision", "0")), self.tasks.get(id_)
        if before in _ENDS and (state != before or revision != self._revisions[id_]):
            if revision > self._revisions[id_] or state in _ENDS:
                raise Violation(f"the task {id_} has ended as {before}, and is {state} then")
            return
        if revision >= self._revisions.get(id_, -1):
            self.tasks[id_], self._revisions[id_] = state, revision


class Effects(Rule):
    """No completed step repeats, and no other one unless it may."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = defaultdict(list)
        self._keys: dict[tuple[str, str], str] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Effect):
            self._check(entry)
        elif isinstance(entry, Stanza) and stanza is not None and entry.way == "received":
            for result in stanza.iter(f"{_EXECUTE}result"):
                self._check_result(" ".join(result.itertext()))

    def _check(self, effect: Effect) -> None:
        done, step = self.seen[effect.label], effect.step
        before = self._keys.setdefault((effect.label, step), effect.key)
        if before != effect.key:
            raise Violation(f"{effect.label}: {step} has two idempotency keys")
        may_repeat = step in self._repeatable(effect.label)
        if step in done and not (may_repeat and done[-1] == step):
            raise Violation(f"{effect.label}: {step} was done again, after {done}")
        order = ("before", "s0", "s1", "s2", "left", "right", "both", "after")
        place = order.index(step.partition(" ")[0]) if step.partition(" ")[0] in order else 99
        later = [one for one in done if one in order and order.index(one) > place]
        if later and step not in ("left", "right"):
            raise Violation(f"{effect.label}: {step} was done after {later}")
        done.append(step)

    def _repeatable(self, label: str) -> tuple[str, ...]:
        is_again = label.endswith(".again") or label in self.again
        return ("s0", "s1", "s2") if is_again else ()

    again: set[str] = set()

    def _check_result(self, text: str) -> None:
        match = re.search(r"\b(worked|noted|paid) ([xm]\d+(?:\.\w+)?)\b", text)
        if match is None:
            return
        done = self.seen.get(match[2], [])
        if not done:
            raise Violation(f"{match[2]} is said to be {match[1]}, and nothing was done")


class Approvals(Rule):
    """Nobody pays without the approval of the one who is asked, for exactly that, and only once."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, set[str]]] = {}
        """By the id of a question: who was asked, and what labels it has."""
        self._decided: dict[str, str] = {}
        self._paid: Counter[str] = Counter()

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Effect):
            if entry.step.startswith("paid"):
                self._check(entry.label)
            return
        if stanza is None:
            return
        assert isinstance(entry, Stanza)
        who = entry.session.partition("/")[0]
        for confirm in stanza.iter(f"{_CONFIRM}confirm"):
            if entry.way == "received":
                action = confirm.find(f"{_CONFIRM}action")
                text = "" if action is None else " ".join(action.itertext())
                self._asked.setdefault(confirm.get("id", ""), (who, set(_LABEL.findall(text))))
        for decision in stanza.iter(f"{_CONFIRM}decision"):
            id_ = decision.get("id", "")
            if entry.way == "sent" and id_ in self._asked and self._asked[id_][0] == who:
                self._decided.setdefault(id_, decision.get("value", ""))

    def _check(self, label: str) -> None:
        self._paid[label] += 1
        approved = [
            id_
            for id_, (_, labels) in self._asked.items()
            if label in labels and self._decided.get(id_) == "approve"
        ]
        if len(approved) < self._paid[label]:
            raise Violation(f"{label} was paid {self._paid[label]} times, approved: {approved}")


class Replies(Rule):
    """Every message of a person is answered, bounced or reported."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], str] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if stanza is None or not stanza.tag.endswith("}message"):
            return
        assert isinstance(entry, Stanza)
        who, body = entry.session.partition("/")[0], stanza.findtext("{*}body", "")
        if entry.way == "sent":
            if body.startswith("m"):
                self._open[who, body.partition(" ")[0]] = stanza.get("id", "")
            return
        if stanza.get("type") == "error":
            for key, id_ in list(self._open.items()):
                if id_ == stanza.get("id"):
                    del self._open[key]
            return
        for label in _LABEL.findall(body):
            self._open.pop((who, label), None)

    def at_rest(self) -> None:
        if self._open:
            raise Violation(f"nobody has answered {list(self._open)}")


class Privacy(Rule):
    """No text of one person is in another one's prompt or stanzas."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Prompt):
            people = set(_SECRET.findall(entry.text))
            if len(people) > 1:
                raise Violation(f"a prompt has secrets of {sorted(people)}")
        elif isinstance(entry, Stanza) and entry.way == "received":
            mine = entry.session.partition("@")[0]
            others = set(_SECRET.findall(entry.xml)) - {mine}
            if others:
                raise Violation(f"{entry.session} has received a secret of {sorted(others)}")


class Schedules(Rule):
    """What is to happen once happens once."""

    def __init__(self) -> None:
        self._once: dict[str, str] = {}
        self._added: set[str] = set()
        self._fired: Counter[str] = Counter()

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish):
            match = re.fullmatch(r"/schedule add (.*): remember (s\d+)", entry.text)
            if match is not None and not match[1].startswith("every"):
                self._once[match[2]] = entry.who
        if stanza is None or not isinstance(entry, Stanza) or entry.way != "received":
            return
        body = stanza.findtext("{*}body", "")
        for label in re.findall(r"Time for (s\d+)", body):
            self._fired[label] += 1
            if label in self._once and self._fired[label] > 1:
                raise Violation(f"the schedule {label} has fired {self._fired[label]} times")


def check_internals(kit: Any) -> None:
    """Check that a service at rest holds nothing. Raises Violation."""
    service = kit.kernel.tasks.service
    runs = service._worker._runs
    if runs:
        raise Violation(f"runs that never end: {list(runs)}")
    slots = service._worker.slots.snapshot()
    if slots.free != slots.total:
        raise Violation(f"slots that were not given back: {slots}")
