"""What must hold for tasks that programs have asked for."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from tests.simulation.history import Effect, Entry, Fault, History, Stanza, Wish
from tests.simulation.life import CALLERS
from tests.simulation.rules import CONFIRM, EXECUTE, TASK, Rule, Violation
from tests.simulation.skills import EXPIRES_S

ENDS: Final = ("completed", "failed", "rejected", "cancelled")
"""The states after which nothing follows."""
RETENTION_S: Final = 7 * 86_400.0
"""Seconds for which the service keeps a task that has ended."""
_SURE: Final = ("note", "work", "again", "branch", "nap", "family")
"""Skills that succeed unless something fails, and wait for nobody."""
_SLOWEST_S: Final = 500.0
"""Seconds within which these end."""
_AFTERMATH_S: Final = 700.0
"""Seconds for which a fault may have consequences: a service is started again after ten minutes."""
_STOPS_S: Final = 0.5
"""Seconds within which a cancellation has stopped what is going on."""
_LATE_S: Final = 10.0
SEE: Final = "to see whether the agent is there"
NOT_SEE: Final = "no longer to see whether the agent is there"
"""Wishes to subscribe to the presence of the agent, and to end that."""
_LONGEST_S: Final = 50 * 3600.0
"""Seconds within which every task ends, with its questions."""
HASH: Final = "{urn:xmpp:hashes:2}hash"


class Requested(NamedTuple):
    """What a program has decided to execute, and within which time."""

    skill: str
    label: str
    within_s: float | None


def requested(entry: Entry) -> Requested | None:
    """Return the request that a wish is, if it is one."""
    if not isinstance(entry, Wish):
        return None
    match = re.fullmatch(r"(\w+) (x\d+), mode \w+(?:, within (\d+) s)?", entry.text)
    if match is None:
        return None
    return Requested(match[1], match[2], None if match[3] is None else float(match[3]))


def cancelled(entry: Entry) -> str | None:
    """Return the label of the request that somebody wants to cancel."""
    match = re.fullmatch(r"to cancel (x\d+)", entry.text) if isinstance(entry, Wish) else None
    return None if match is None else match[1]


def states_in(stanza: ET.Element) -> Sequence[tuple[str, str]]:
    """Return the tasks of a stanza with the states that it gives them."""
    found = [(one.get("id", ""), one.get("state")) for one in stanza.findall(f"{TASK}task")]
    accepted = [(one.get("task", ""), "accepted") for one in stanza.findall(f"{EXECUTE}accepted")]
    return [*accepted, *((id_, state) for id_, state in found if state is not None)]


def open_tasks(history: History) -> list[tuple[str, str]]:
    """Return each task whose end was reported to nobody, with the account that knows its id."""
    states: dict[str, tuple[str, str]] = {}
    for entry in history.entries:
        if isinstance(entry, Stanza) and entry.way == "received":
            is_about_tasks = "#task" in entry.xml or "#execute" in entry.xml
            for task, state in states_in(ET.fromstring(entry.xml)) if is_about_tasks else ():
                if states.get(task, ("", ""))[1] not in ENDS:
                    states[task] = entry.session.partition("@")[0], state
    return [(who, task) for task, (who, state) in states.items() if state not in ENDS]


class Times:
    """When there were faults of some kinds."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self._at: list[float] = []

    def saw(self, entry: Entry) -> None:
        """Note a fault of these kinds, or of any if none are given."""
        if isinstance(entry, Fault) and (not self._kinds or entry.kind in self._kinds):
            self._at.append(entry.at)

    def within(self, first: float, last: float) -> bool:
        """Return whether there was one in this time."""
        return any(first <= at <= last for at in self._at)


class Told(Rule):
    """The service reports the end of a task to who has asked for it, unless they were away, or had
    ended their subscription to the agent.
    """

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[str, float]] = {}
        self._told: set[str] = set()
        self._away: dict[str, Times] = {}
        self._stopped: set[str] = set()
        """Who wants no news now."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault) and entry.kind == "away":
            self._away.setdefault(entry.about, Times()).saw(entry)
        elif isinstance(entry, Wish) and entry.text == SEE:
            self._stopped.discard(entry.who)
        elif isinstance(entry, Wish) and entry.text == NOT_SEE:
            self._stopped.add(entry.who)
            self._told.update(one for one, (who, _) in self._accepted.items() if who == entry.who)
        if stanza is None or not isinstance(entry, Stanza) or entry.way != "received":
            return
        who = entry.session.partition("/")[0]
        for accepted in stanza.findall(f"{EXECUTE}accepted"):
            if who not in self._stopped:
                self._accepted.setdefault(accepted.get("task", ""), (who, entry.at))
        if stanza.tag.endswith("}message"):
            self._told.update(task for task, state in states_in(stanza) if state in ENDS)
            if "Set aside" in entry.xml:  # an operator has to decide
                self._told.update(task for task, _ in states_in(stanza))

    def at_rest(self) -> None:
        for task, (who, at) in self._accepted.items():
            away = self._away.get(who, Times()).within(at - 3700, at + _LONGEST_S)
            if task not in self._told and not away:
                raise Violation(f"the end of the task {task} was never reported to {who}")


def _disturbs(fault: Fault) -> bool:
    """Return whether a fault may keep the request of a program from succeeding."""
    is_of_person = fault.kind in ("away", "back") and not fault.about.startswith(CALLERS)
    return not (is_of_person or fault.about.startswith("the model"))


class Outcomes(Rule):
    """What nothing disturbs succeeds, in time."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._of_tasks: dict[str, str] = {}
        self._faults = Times()
        self._away: set[str] = set()
        """Who cannot send a request now."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault) and _disturbs(entry):
            self._faults.saw(entry)
        if isinstance(entry, Fault) and entry.kind == "away":
            self._away.add(entry.about)
        elif isinstance(entry, Fault) and entry.kind == "back":
            self._away.discard(entry.about)
        wanted = requested(entry)
        if wanted is not None and wanted.skill in _SURE and wanted.within_s is None:
            assert isinstance(entry, Wish), "it is a request"
            if entry.who not in self._away:
                self._begun[wanted.label] = entry.at
        self._begun.pop(cancelled(entry) or "", None)
        if stanza is None or not isinstance(entry, Stanza) or entry.way != "received":
            return
        label = stanza.get("id", "").rpartition("-")[0]
        for accepted in stanza.findall(f"{EXECUTE}accepted"):
            self._of_tasks[accepted.get("task", "")] = label
        for result in stanza.findall(f"{EXECUTE}result"):
            self._ended(label, entry.at, "failed" if result.get("error") else "completed")
        error = stanza.find("{*}error")
        if error is not None and error.get("type") != "wait":
            self._ended(label, entry.at, "failed")
        for task, state in states_in(stanza):
            if state in ENDS:
                self._ended(self._of_tasks.get(task, ""), entry.at, state)

    def _ended(self, label: str, at: float, state: str) -> None:
        began = self._begun.pop(label, None)
        last = min(at, (began or 0.0) + _SLOWEST_S)
        if began is None or self._faults.within(began - _AFTERMATH_S, last):
            return
        if state != "completed":
            raise Violation(f"nothing has disturbed {label}, and it is {state}")
        if at - began > _SLOWEST_S:
            raise Violation(f"nothing has disturbed {label}, and it took {at - began:.0f} s")

    def at_rest(self) -> None:
        for label, began in self._begun.items():
            if not self._faults.within(began - _AFTERMATH_S, began + _SLOWEST_S):
                raise Violation(f"nothing has disturbed {label}, and it has not ended")


class Decisions(Rule):
    """A decision counts if it is that of somebody who was asked, about what was asked, and the
    first one; others are refused.
    """

    def __init__(self) -> None:
        self._asked: defaultdict[str, defaultdict[str, set[str]]]
        self._asked = defaultdict(lambda: defaultdict(set))
        """Who was asked each question, and the digests that everybody was shown."""
        self._sent: dict[tuple[str, str], tuple[str, str, str]] = {}
        self._counted: dict[tuple[str, str], str] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if stanza is None or not isinstance(entry, Stanza):
            return
        who, key = entry.session.partition("/")[0], (entry.session, stanza.get("id", ""))
        if entry.way == "received":
            for confirm in stanza.iter(f"{CONFIRM}confirm"):
                digests = (one.text or "" for one in confirm.iter(HASH))
                self._asked[confirm.get("id", "")][who].update(digests)
            if stanza.tag.endswith("}iq") and stanza.get("type") == "result" and key in self._sent:
                self._check(who, *self._sent.pop(key))
        else:
            for decision in stanza.iter(f"{CONFIRM}decision"):
                digest = decision.findtext(HASH, "")
                value = decision.get("value", "")
                self._sent[key] = decision.get("id", ""), value, digest

    def _check(self, who: str, question: str, value: str, digest: str) -> None:
        asked = self._asked[question]
        if who not in asked:
            raise Violation(f"{who} has decided {question}, which {list(asked)} were asked")
        if digest and digest not in asked[who]:
            raise Violation(f"{who} has decided {question} with the digest of something else")
        if self._counted.setdefault((question, who), value) != value:
            raise Violation(f"{who} has decided {question} twice, and differently")


class Expiries(Rule):
    """No answer counts after the question has expired."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if not isinstance(entry, Effect):
            return
        if entry.step == "before":
            self._before[entry.label] = entry.at
        elif entry.step.startswith("after "):
            asked = self._before.get(entry.label, entry.at)
            if entry.at - asked > EXPIRES_S + 7200:
                raise Violation(f"the answer about {entry.label} came too late, and counted")


class Deadlines(Rule):
    """Nothing is done after the deadline."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, float]] = {}
        self._faults = Times("clock", "full", "error")

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        self._faults.saw(entry)
        wanted = requested(entry)
        if wanted is not None and wanted.within_s is not None:
            self._due[wanted.label] = entry.at, entry.at + wanted.within_s
        elif isinstance(entry, Effect) and (label := entry.label.partition(".")[0]) in self._due:
            began, due = self._due[label]
            is_late = entry.at > due + _LATE_S
            if is_late and not self._faults.within(began - _AFTERMATH_S, entry.at):
                raise Violation(f"{entry.label}: {entry.step} was done after the deadline")


class Cancelled(Rule):
    """Nothing is done here after a cancellation was confirmed. `peer_rules` is about what agents of
    other domains do.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._delegated: set[str] = set()
        self._faults = Times("full", "error", "healthy")

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        self._faults.saw(entry)
        if isinstance(entry, Wish) and entry.text.startswith("delegates "):
            self._delegated.add(entry.text.split()[-1])
        elif isinstance(entry, Effect):
            at = self._at.get(entry.label.partition(".")[0])
            is_late = at is not None and entry.at > at + _STOPS_S
            if is_late and not self._faults.within((at or 0.0) - 70, entry.at):
                raise Violation(f"{entry.label}: {entry.step} was done after it was cancelled")
        elif stanza is not None and isinstance(entry, Stanza) and entry.way == "received":
            match = re.fullmatch(r"cancel-(x\d+)-\d+", stanza.get("id", ""))
            states = [state for _, state in states_in(stanza)]
            is_here = match is not None and match[1] not in self._delegated
            if match is not None and is_here and {"cancelling", "cancelled"} & {*states}:
                self._at.setdefault(match[1], entry.at)
