"""Programs that execute skills."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, ClassVar, Final
from xml.etree import ElementTree as ET

import anyio

from component.skills import Skill
from tests.simulation.area import Area
from tests.simulation.history import Effect, Entry, Fault, Stanza, Wish
from tests.simulation.life import CALLERS, REACTIONS, Action, Reaction
from tests.simulation.people import Resident
from tests.simulation.rules import CONFIRM, EXECUTE, TASK, Rule, Violation
from tests.simulation.skills import make_skills
from tests.simulation.task_rules import (
    ENDS,
    HASH,
    RETENTION_S,
    Cancelled,
    Deadlines,
    Decisions,
    Expiries,
    Outcomes,
    Told,
    open_tasks,
    states_in,
)

_PATIENCE_S: Final = 60.0
_INTERRUPTIONS: Final = ("kill", "stop", "crash", "cut", "start", "away")
_SKILLS: Final = (
    *("note", "work", "work", "again", "ask", "nap", "family", "branch", "pay", "pay", "fail"),
)


class Execute(Action, frozen=True, kw_only=True):
    """A program executes a skill, and repeats the request until it has an answer."""

    who: str
    skill: str
    mode: str = "auto"
    reaction: Reaction = "approve"
    cancel_after: float | None = None
    repeats: int = 0
    within: float | None = None


def _execute(chance: Random, at: float, number: int) -> Execute:
    return Execute(
        at=at,
        number=number,
        who=chance.choice(CALLERS),
        skill=chance.choice(_SKILLS),
        mode=chance.choice(("auto", "auto", "async")),
        reaction=chance.choice(REACTIONS),
        cancel_after=chance.choice((None, None, None, 0.0, 0.1, 5.0)),
        repeats=chance.choice((0, 0, 0, 1, 3)),
        within=chance.choice((None, None, None, None, None, 8.0, 60.0)),
    )


class Answers(Rule):
    """Each IQ is answered once, unless the service or the asker has gone meanwhile."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], float] = {}
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault) and entry.kind in _INTERRUPTIONS:
            self._faults.append(entry.at)
        if stanza is None or not stanza.tag.endswith("}iq"):
            return
        assert isinstance(entry, Stanza)
        key = entry.session, stanza.get("id", "")
        if entry.way == "sent" and stanza.get("type") in ("get", "set"):
            self._open[key] = entry.at
        elif stanza.get("type") in ("result", "error") and self._open.pop(key, None) is None:
            raise Violation(f"an IQ was answered twice, or without being asked: {key}")

    def at_rest(self) -> None:
        for (session, id_), at in self._open.items():
            if not any(at - 1 <= fault <= at + _PATIENCE_S for fault in self._faults):
                raise Violation(f"the IQ {id_} of {session} was never answered")


class Ends(Rule):
    """An accepted task ends, once, and nothing follows its end."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._aside: set[str] = set()
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
            execute = stanza.find(f"{EXECUTE}execute")
            if execute is not None:
                self._asked[entry.session, stanza.get("id", "")] = execute.get("request", "")
            return
        accepted = stanza.find(f"{EXECUTE}accepted")
        if accepted is not None:
            request = self._asked.get((entry.session, stanza.get("id", "")), "")
            task = accepted.get("task", "")
            before = self._of_request.setdefault((who, request), task)
            if before != task:
                raise Violation(f"the request {request} became two tasks: {before} and {task}")
            self.tasks.setdefault(task, "accepted")
        look = re.fullmatch(r"look-(\w+)-\d+", stanza.get("id", ""))
        error = None if look is None else stanza.find("{*}error")
        if look is not None and error is not None:
            is_missing = error.find("{*}item-not-found") is not None
            if is_missing and entry.at - self._heard.get(look[1], 0.0) < RETENTION_S:
                raise Violation(f"the accepted task {look[1]} does not exist")
            self._aside.add(look[1])  # or nobody can be told about it
        for task, _ in states_in(stanza):
            self._heard[task] = entry.at
            if "Set aside" in entry.xml:
                self._aside.add(task)  # an operator has to decide
        for task_ in stanza.findall(f"{TASK}task"):
            self._event(task_, is_event=stanza.tag.endswith("}message"))

    def _event(self, task: ET.Element, *, is_event: bool) -> None:
        id_, state = task.get("id", ""), task.get("state")
        if state is None:
            return
        revision, before = int(task.get("revision", "0")), self.tasks.get(id_)
        if before in ENDS and (state != before or revision != self._revisions[id_]):
            if revision > self._revisions[id_] or state in ENDS:
                raise Violation(f"the task {id_} has ended as {before}, and is {state} then")
            return
        if revision >= self._revisions.get(id_, -1):
            self.tasks[id_], self._revisions[id_] = state, revision

    def at_rest(self) -> None:
        for task, state in self.tasks.items():
            if state not in ENDS and task not in self._aside:
                raise Violation(f"the task {task} is still {state}")


class Effects(Rule):
    """No completed step repeats, and no other one unless it may."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = defaultdict(list)
        self._keys: dict[tuple[str, str], str] = {}
        self._again: set[str] = set()
        """Labels of requests whose steps may be repeated."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Effect):
            if entry.label[:1] in ("x", "m", "c"):
                self._check(entry)
        elif isinstance(entry, Wish):
            words = entry.text.replace(",", "").split()
            if words[0] == "again":
                self._again.add(words[1])
        elif isinstance(entry, Stanza) and stanza is not None and entry.way == "received":
            for result in stanza.iter(f"{EXECUTE}result"):
                self._check_result(" ".join(result.itertext()))

    def _check(self, effect: Effect) -> None:
        step = effect.step
        before = self._keys.setdefault((effect.label, step), effect.key)
        if effect.label[0] in ("m", "r", "w", "c"):
            # A model may ask for the same again, which is another call with other keys.
            done = self.seen[effect.label if before == effect.key else effect.key]
        elif before != effect.key:
            raise Violation(f"{effect.label}: {step} has two idempotency keys")
        else:
            done = self.seen[effect.label]
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
        is_again = label.endswith(".again") or label in self._again
        return ("s0", "s1", "s2") if is_again else ()

    def _check_result(self, text: str) -> None:
        match = re.search(r"\b(worked|noted|paid) ([xmc]\d+(?:\.\w+)?)\b", text)
        if match is None:
            return
        done = self.seen.get(match[2], [])
        if not done:
            raise Violation(f"{match[2]} is said to be {match[1]}, and nothing was done")


class Approvals(Rule):
    """Nobody pays without the approval of the one who is asked, for exactly that, and only once."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, set[str], str]] = {}
        """By the id of a question: who was asked, the texts of the action, and its digest."""
        self._decided: dict[str, str] = {}
        self._paid: Counter[str] = Counter()

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Effect):
            if entry.step.startswith("paid") and entry.label[:1] in ("x", "m", "c"):
                self._check(entry.label)
            return
        if stanza is None:
            return
        assert isinstance(entry, Stanza)
        who = entry.session.partition("/")[0]
        for confirm in stanza.iter(f"{CONFIRM}confirm"):
            if entry.way == "received":
                action = confirm.find(f"{CONFIRM}action")
                values = set() if action is None else set(action.itertext())
                self._asked.setdefault(
                    confirm.get("id", ""), (who, values, confirm.findtext(HASH, ""))
                )
        for decision in stanza.iter(f"{CONFIRM}decision"):
            id_ = decision.get("id", "")
            asked, _, digest = self._asked.get(id_, ("", set(), ""))
            is_same = decision.findtext(HASH, digest) == digest
            if entry.way == "sent" and asked == who and is_same:
                self._decided.setdefault(id_, decision.get("value", ""))

    def _check(self, label: str) -> None:
        self._paid[label] += 1
        approved = [
            id_
            for id_, (_, values, _) in self._asked.items()
            if label in values and self._decided.get(id_) == "approve"
        ]
        if len(approved) < self._paid[label]:
            raise Violation(f"{label} was paid {self._paid[label]} times, approved: {approved}")


class Work(Area):
    """Programs that execute skills."""

    draws: ClassVar = {_execute: 35}
    actions = (Execute,)
    rules = (
        *(Answers, Ends, Effects, Approvals, Told, Outcomes, Decisions, Expiries, Deadlines),
        *(Cancelled,),
    )

    def skills(self) -> Sequence[Skill]:
        """Return the skills that people and programs use."""
        return make_skills(self.world.outside)

    async def perform(self, action: Any) -> None:
        """Execute a skill, several times at once if wanted, and cancel it."""
        assert isinstance(action, Execute)
        label, who = f"x{action.number}", self.world.residents[action.who]
        self.world.reactions[label] = action.reaction
        wish, more = f"{action.skill} {label}, mode {action.mode}", ""
        if action.within is not None:
            wish += f", within {action.within:.0f} s"
            due = datetime.fromtimestamp(self.world.system.time_ns() / 1e9 + action.within, UTC)
            more = f" deadline='{due:%Y-%m-%dT%H:%M:%S.%fZ}'"
        who.wants(wish)
        execute = partial(who.execute, label, action.skill, action.mode, more=more)
        async with anyio.create_task_group() as group:
            for _ in range(action.repeats):
                group.start_soon(execute)
            if action.cancel_after is not None:
                group.start_soon(self._cancel, who, label, action.cancel_after)
            await execute()

    async def finish(self) -> None:
        """Ask for each task whose end was reported to nobody."""
        for name, task in open_tasks(self.world.history):
            who = self.world.residents[name]
            await who.iq("get", f"<task xmlns='{TASK[1:-1]}' id='{task}'/>", f"look-{task}")

    async def _cancel(self, who: Resident, label: str, after: float) -> None:
        await anyio.sleep(after)
        who.wants(f"to cancel {label}")
        payload = f"<cancel xmlns='{TASK[1:-1]}' request='{label}'/>"
        await who.iq("set", payload, f"cancel-{label}")
