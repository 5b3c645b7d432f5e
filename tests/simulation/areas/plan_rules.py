"""What must hold of plans."""

import json
import re
from collections import defaultdict
from typing import Any, Final, TypeAlias
from xml.etree import ElementTree as ET

from tests.simulation.areas.block_rules import NoNews
from tests.simulation.history import Effect, Entry, KeptOut, Prompt, Stanza, Wish
from tests.simulation.people import label_in
from tests.simulation.rules import CONFIRM, OPEN_S, TASK, Rule, Violation

_LAST: Final = {"note": "note", "work": "s2", "nap": "after", "look": "looked", "errand": "errand"}
"""The last effect of each skill."""
_REPEATABLE: Final = ("look", "fail")
"""Skills whose effects may happen again: they are only read, or the skill fails before it ends."""
_NOTES: Final = re.compile(r"Please note (p\d+)\.(\w+)\.")
_UNDER_WAY_S: Final = 10.0
"""Seconds for which an effect may be under way that was begun before."""


_Having: TypeAlias = list[tuple[str, dict[str, Any], dict[str, Any]]]
"""Documents that have a step: who has proposed each, the document, and the step in it."""


class _Plan:
    """What was seen of a plan.

    Attributes:
        documents: all that were proposed, the last one last, and whose each is.
        allowed: the texts of questions about it that its owner has approved.
        done: the effects of each step.
        answers: what was answered about each step, or asked a model.
        ended: when it was said to have ended.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.documents: list[tuple[str, dict[str, Any]]] = []
        self.allowed: list[str] = []
        self.done: dict[str, list[Effect]] = defaultdict(list)
        self.answers: dict[str, list[str]] = defaultdict(list)
        self.ended: float | None = None
        self.is_denied = False
        self.is_paused = False
        self.is_heard_of = False
        self.asked_at = 0.0
        self.ends: set[str] = set()


class _Plans(Rule):
    """Knows the plans."""

    def __init__(self) -> None:
        self.plans: dict[str, _Plan] = {}
        self._asked: dict[str, tuple[str, str, set[str]]] = {}
        """By the id of a question: who was asked, about which plan, and the texts."""
        self._tasks: dict[str, str] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish):
            self._wished(entry)
        elif isinstance(entry, Prompt):
            for name, step in _NOTES.findall(entry.text):
                if name in self.plans:
                    self.plans[name].answers[step].append("was asked for")
        elif isinstance(entry, Stanza) and stanza is not None:
            self._said(entry, stanza)

    def _wished(self, wish: Wish) -> None:
        verb, _, rest = wish.text.partition(" ")
        label, _, rest = rest.partition(" ")
        if not re.fullmatch(r"p\d+(\.\w+)?", label):
            return
        name, _, step = label.partition(".")
        match verb:
            case "plan" | "revise":
                plan = self.plans.setdefault(name, _Plan(wish.who))
                # After a denial a model may propose another plan, which begins like any new one.
                is_new = wish.who == "model" and plan.is_denied and not plan.allowed
                plan.documents.append((plan.owner if is_new else wish.who, json.loads(rest)))
            case "answer":
                self.plans[name].answers[step].append(rest)
            case "pause" | "resume":
                self.plans[name].is_paused = verb == "pause"
            case "task":
                self._tasks[rest], self.plans[name].is_heard_of = name, True

    def _said(self, entry: Stanza, stanza: ET.Element) -> None:
        who = entry.session.partition("/")[0]
        if entry.way == "sent":
            for decision in stanza.iter(f"{CONFIRM}decision"):
                asked, name, texts = self._asked.get(decision.get("id", ""), ("", "", set[str]()))
                if asked == who and decision.get("value") == "approve":
                    self.plans[name].allowed += texts
                elif asked == who:
                    self.plans[name].is_denied = True
            return
        for confirm in stanza.iter(f"{CONFIRM}confirm"):
            action = confirm.find(f"{CONFIRM}action")
            if action is None or action.get("type") == "plan_start":
                continue  # that is about a call of the model, and the plan is asked about then
            texts = set(action.itertext())
            name = label_in(" ".join(texts)).partition(".")[0]
            if name in self.plans:
                self._asked.setdefault(confirm.get("id", ""), (who, name, texts))
                self.plans[name].asked_at = entry.at
        if stanza.find(f".//{TASK}input") is not None:
            name = label_in("".join(stanza.itertext())).partition(".")[0]
            if name in self.plans:
                self.plans[name].asked_at = entry.at


class Effects(_Plans):
    """A step runs once, after those that it waits for, and only as it was approved."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        super().saw(entry, stanza)
        if isinstance(entry, Effect):
            name, _, step = label_in(entry.label).partition(".")
            if name in self.plans:
                self._check(self.plans[name], step, entry)

    def _check(self, plan: _Plan, step: str, effect: Effect) -> None:
        having = [
            (by, document, one)
            for by, document in plan.documents
            for one in document["steps"]
            if one["id"] == step
        ]
        if not having:
            raise Violation(f"{effect.label} is a step of no plan")
        if not any(_waited(plan, document, one) for _, document, one in having):
            raise Violation(f"{effect.label} was done before what it waits for")
        shown = re.compile(rf"\b{re.escape(label_in(effect.label))}\b")
        is_free = any(not _asks(document) and by != "model" for by, document, _ in having)
        if not is_free and not any(map(shown.search, plan.allowed)):
            raise Violation(f"{effect.label} was done, and its plan was not approved")
        skill = having[-1][2].get("skill", "note")
        if skill == "pay":
            self._check_paid(plan, effect)
        self._check_once(plan, step, having, effect)
        plan.done[step].append(effect)

    def _check_paid(self, plan: _Plan, effect: Effect) -> None:
        exact = re.compile(rf"^\s*label: {re.escape(effect.label)}$", re.MULTILINE)
        if effect.label not in plan.allowed and not any(map(exact.search, plan.allowed)):
            raise Violation(f"{effect.label!r} was paid, and nobody has approved exactly that")

    def _check_once(self, plan: _Plan, step: str, having: _Having, effect: Effect) -> None:
        before, skill = plan.done[step], having[-1][2].get("skill", "note")
        if skill in _REPEATABLE:
            return
        last = _LAST.get(skill, "paid 5")
        again = plan.answers[step].count("do it again")
        if any(_is_cancelled_with_others(document, one) for _, document, one in having):
            again += len(plan.documents) - 1
        if [one.step for one in before].count(last) > again:
            raise Violation(f"{effect.label} was done again: {effect.step}")
        if any((one.key, one.step) == (effect.key, effect.step) for one in before):
            raise Violation(f"{effect.label}: {effect.step} was done again with the same key")


_REPORT: Final = re.compile(
    # Several notifications in one message have a title each.
    r"^(?:\*[^*\n]+\* \([^)]+\): )?"
    r"(?:Report (p\d+): |The plan Plan (p\d+) (?:failed|was cancelled))",
    re.MULTILINE,
)
"""The report of the end of a plan."""
_STOPPED_TRYING: Final = "so I have stopped trying"


class Ends(_Plans):
    """A plan ends once, and none of its steps runs afterwards. Its owner learns of the end, except
    one who wants no news from the agent, or who is away while nothing is kept; or that it waits for
    an operator, because a step was interrupted again and again.
    """

    _now = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._no_news = NoNews()
        self._began: dict[str, float] = {}
        self._wait_for_operator: set[str] = set()
        """Whose work does."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        super().saw(entry, stanza)
        self._no_news.saw(entry)
        if len(self._began) < len(self.plans):
            self._began = dict.fromkeys(self.plans, entry.at) | self._began
        self._now = entry.at
        if isinstance(entry, Effect):
            plan = self.plans.get(label_in(entry.label).partition(".")[0])
            if plan is None:
                return
            plan.is_heard_of = True
            if plan.ended is not None and entry.at > plan.ended + _UNDER_WAY_S:
                raise Violation(f"{entry.label} was done after the end of its plan")
        elif isinstance(entry, Stanza) and stanza is not None and entry.way == "received":
            self._hear(entry, stanza)
        elif isinstance(entry, KeptOut):
            self._hear(entry, ET.fromstring(entry.xml))

    def _hear(self, entry: Stanza | KeptOut, stanza: ET.Element) -> None:
        body = stanza.findtext("{*}body", "")
        if _STOPPED_TRYING in body:
            who = entry.session if isinstance(entry, Stanza) else entry.who
            self._wait_for_operator.add(who.partition("/")[0])
        for task in stanza.iter(f"{TASK}task"):
            if task.get("state") in ("completed", "failed", "cancelled", "rejected"):
                self._ends(self._tasks.get(task.get("id", ""), ""), "", entry.at)
        started = re.match(r"Started: Plan (p\d+) ", body)
        if started is not None and started[1] in self.plans:
            self.plans[started[1]].is_heard_of = True
        if "May I carry out this plan" in body or "I have begun this plan" in body:
            name = label_in(body).partition(".")[0]
            if name in self.plans:
                self.plans[name].is_heard_of = True
        for match in _REPORT.finditer(body):
            self._ends(match[1] or match[2], stanza.get("id", ""), entry.at)
        for name in re.findall(r"^Cancelled: Plan (p\d+)\.", body, re.MULTILINE):
            self._ends(name, "", entry.at)

    def _ends(self, name: str, message: str, at: float) -> None:
        if name not in self.plans:
            return
        plan = self.plans[name]
        if plan.ended is None:
            plan.ended = at
        if message:
            plan.ends.add(message)
            if len(plan.ends) > 1:
                raise Violation(f"the plan {name} has reported {len(plan.ends)} times")

    def at_rest(self) -> None:
        for name, plan in self.plans.items():
            waits = plan.is_paused or plan.asked_at > self._now - OPEN_S
            waits = waits or self._no_news.since(plan.owner, self._began[name])
            waits = waits or plan.owner in self._wait_for_operator
            if plan.is_heard_of and plan.ended is None and not waits:
                raise Violation(f"the plan {name} has not ended, and waits for nobody")


def _asks(document: dict[str, Any]) -> bool:
    """Return whether a plan needs an approval before it begins."""
    return any(
        step.get("skill") == "pay" and "{" not in step["params"]["label"]
        for step in document["steps"]
    )


def _is_cancelled_with_others(document: dict[str, Any], step: dict[str, Any]) -> bool:
    """Return whether a step is cancelled if another one fails; it may have done its work then, and
    a revision does it again.
    """
    policy: str = document.get("groups", {}).get(step.get("group", ""), "")
    return policy == "all"


def _waited(plan: _Plan, document: dict[str, Any], step: dict[str, Any]) -> bool:
    """Return whether everything was done that a step waits for, as a document says."""
    main = next((one for one in document["steps"] if one.get("otherwise") == step["id"]), None)
    if main is not None:
        return bool(plan.done[main["id"]]) and _waited(plan, document, main)
    return all(_is_settled(plan, document, name) for name in step.get("after", ()))


def _is_settled(plan: _Plan, document: dict[str, Any], name: str) -> bool:
    members = [one for one in document["steps"] if one.get("group") == name]
    if members:
        return all(_is_settled(plan, document, one["id"]) for one in members)
    step = next(one for one in document["steps"] if one["id"] == name)
    group = step.get("group", "")
    if document.get("groups", {}).get(group, "all") != "all":  # it may go on without this one
        members = [one for one in document["steps"] if one.get("group") == group]
        return any(_is_done(plan, document, one) for one in members)
    return _is_done(plan, document, step)


def _is_done(plan: _Plan, document: dict[str, Any], step: dict[str, Any]) -> bool:
    name = step["id"]
    if step["kind"] in ("ask", "agent"):
        return bool(plan.answers[name])
    if {"skip it", "it is done"} & set(plan.answers[name]):
        return True
    done = [one.step for one in plan.done[name]]
    skill = step.get("skill", "note")
    if skill == "fail":
        other = step.get("otherwise")
        return bool(done) and (other is None or _is_settled(plan, document, other))
    return _LAST.get(skill, "paid 5") in done
