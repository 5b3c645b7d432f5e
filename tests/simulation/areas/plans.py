"""People, programs and models that start plans, and change them while they run."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any, ClassVar, Final, Literal
from xml.etree import ElementTree as ET

import anyio
import anyio.lowlevel
import msgspec

from component.models.protocol import ModelRequest
from component.skills import Context, Skill, SkillError, skill
from tests.kit.model import Said, call
from tests.simulation.area import Area
from tests.simulation.areas import plan_rules
from tests.simulation.areas.plan_documents import (
    CHOICES,
    Document,
    Planned,
    document_of,
    draw_steps,
    more,
    revised_by_model,
)
from tests.simulation.history import Wish
from tests.simulation.life import CALLERS, PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.people import Choice, Resident, label_in
from tests.simulation.rules import TASK
from tests.simulation.skills import Outside
from tests.simulation.talker import asked_in

_ANSWER_S: Final = 300.0
_PAUSED: Final = r"- (\w+) Plan (p\d+): paused \(You have paused it\)"
_STARTS: Final = re.compile(r"start (p\d+) as a plan")
_NOTES: Final = re.compile(r"Please note (p\d+\.\w+)\.")
_STEP: Final = re.compile(r"\bp\d+\.\w+")
_UNKNOWN: Final = ("it is done", "do it again", "skip it", "stop the plan")

How = Literal["pause", "resume", "revise", "words", "destroy", "cancel"]
"""What is done with a plan that runs: `revise` adds a harmless step, `words` lets the model add
one, and `destroy` adds one that needs a confirmation.
"""


class Change(msgspec.Struct, frozen=True):
    """What is done with a plan so long after the change before."""

    after: float
    how: How


class StartPlan(Action, frozen=True, kw_only=True):
    """Somebody starts a plan.

    Attributes:
        by: `model` if the person asks the model for it; `program` if a program starts it.
        policy: that of its group.
        unknown: what they answer about a step with an unknown outcome.
    """

    who: str
    by: Literal["person", "model", "program"]
    steps: tuple[Planned, ...]
    policy: Literal["all", "best-effort", "first"]
    reaction: Reaction
    reason: str
    unknown: str
    changes: tuple[Change, ...]


def _plan(chance: Random, at: float, number: int) -> StartPlan:
    by: Literal["person", "model", "program"]
    by = chance.choice(("person", "person", "model", "program"))
    hows: list[tuple[How, ...]] = [(), (), (), ("pause", "resume"), ("revise",), ("words",)]
    hows += [("cancel",), ("destroy",), ("pause", "revise", "resume"), ("revise", "cancel")]
    times = (0.1, 5.0, 60.0, 2000.0)
    changes = tuple(
        Change(chance.choice(times) * chance.random(), how) for how in chance.choice(hows)
    )
    policy: Literal["all", "best-effort", "first"]
    policy = chance.choice(("all", "best-effort", "first"))
    return StartPlan(
        at=at,
        number=number,
        by=by,
        who=chance.choice(CALLERS if by == "program" else PEOPLE),
        steps=draw_steps(chance),
        policy=policy,
        reaction=chance.choice(REACTIONS),
        reason=chance.choice(("", "because I do not pay")),
        unknown=chance.choice(_UNKNOWN),
        changes=changes,
    )


def _skills(outside: Outside) -> list[Skill]:
    looked = set[str]()

    @skill(read_only=True)
    async def look(label: str, context: Context) -> str:
        """Look something up, which fails once."""
        await outside.do(label, "looked", context.key)
        if label not in looked:
            looked.add(label)
            raise SkillError(f"{label} cannot be seen yet")
        return f"looked {label}"

    @skill(destructive=False, open_world=False)
    async def errand(label: str, context: Context) -> str:
        """Do something once, in one go."""
        await outside.do(label, "errand", context.key)
        return f"errand {label}"

    return [look, errand]


class Plans(Area):
    """Plans."""

    draws: ClassVar = {_plan: 3}
    actions = (StartPlan,)
    rules = (plan_rules.Effects, plan_rules.Ends)

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        world.decides["p"] = self._decide
        world.answers["p"] = self._answer
        world.talker.hooks.append(self._model)
        self._started: dict[str, StartPlan] = {}
        self._documents: dict[str, Document] = {}
        self._questions: Counter[str] = Counter()

    def skills(self) -> Sequence[Skill]:
        """Return skills that only plans use."""
        return _skills(self.world.outside)

    async def perform(self, action: Any) -> None:
        """Start a plan, and change it."""
        assert isinstance(action, StartPlan)
        label, who = f"p{action.number}", self.world.residents[action.who]
        document = document_of(label, action.steps, action.policy)
        self._started[label], self._documents[label] = action, document
        self.world.reactions[label] = action.reaction
        who.wants(f"plan {label} {json.dumps(document)}")
        match action.by:
            case "program":
                await self._program(action, label, who)
                return
            case "model":
                await who.say(f"Please start {label} as a plan.", f"{action.who}-{label}")
            case "person":
                await who.say(f"/plan start {json.dumps(document)}", f"{action.who}-{label}")
        for number, change in enumerate(action.changes):
            await anyio.sleep(change.after)
            await self._change(who, label, change.how, f"{label}-{number}")

    # What people do with a plan.

    async def _change(self, who: Resident, label: str, how: How, id_: str) -> None:
        listed = rf"- (\w+) Plan {label}: "
        found = await who.ask("/plan list", f"{id_}-list", listed, _ANSWER_S)
        if found is None:
            return
        plan = found[1]
        match how:
            case "words":
                await who.say(f"/plan revise {plan} add a note", f"{id_}-words")
            case "revise" | "destroy":
                document = self._revised(label, how, id_)
                who.wants(f"revise {label} {json.dumps(document)}")
                await who.say(f"/plan revise {plan} {json.dumps(document)}", f"{id_}-{how}")
            case _:
                who.wants(f"{how} {label}")
                await who.say(f"/plan {how} {plan}", f"{id_}-{how}")

    def heal(self) -> None:
        """Let people resume what they have paused, since they may have tried that in vain."""
        for name in PEOPLE:
            self.world.group.start_soon(self._resume, self.world.residents[name])

    async def _resume(self, who: Resident) -> None:
        await anyio.sleep(_ANSWER_S)
        for number in count():
            id_ = f"{who.jid.local}-resume-{number}"
            found = await who.ask("/plan list", f"{id_}-list", _PAUSED, _ANSWER_S)
            if found is None:
                return
            who.wants(f"resume {found[2]}")
            await who.say(f"/plan resume {found[1]}", id_)

    def _revised(self, label: str, how: How, id_: str) -> Document:
        document = self._documents[label]
        name = f"{'d' if how == 'destroy' else 'v'}{id_.rpartition('-')[2]}"
        self._documents[label] = more(document, name, "pay" if how == "destroy" else "note")
        return self._documents[label]

    # What programs do with a plan.

    async def _program(self, action: StartPlan, label: str, who: Resident) -> None:
        values = {"plan": self._documents[label]}
        answer = await who.execute(label, "plan_start", "auto", values)
        match = re.search(r'"plan":\s*"(\w+)"', "".join(answer.itertext()) if answer else "")
        if match is None:
            return
        who.wants(f"task {label} {match[1]}")
        for number, change in enumerate(action.changes):
            await anyio.sleep(change.after)
            await self._request(who, label, match[1], change.how, f"{label}-{number}")

    async def _request(self, who: Resident, label: str, task: str, how: How, id_: str) -> None:
        match how:
            case "pause" | "resume":
                who.wants(f"{how} {label}")
                values: dict[str, Any] = {"plan": task, "resume": how == "resume"}
                await who.execute(id_, "plan_pause", "auto", values)
            case "cancel":
                who.wants(f"{how} {label}")
                await who.iq("set", f"<cancel xmlns='{TASK[1:-1]}' id='{task}'/>", id_)
            case _:
                answer = await who.iq("get", f"<task xmlns='{TASK[1:-1]}' id='{task}'/>", id_)
                plan = None if answer is None else answer.find(".//{urn:fluux:agent:0#plan}plan")
                if plan is None:
                    return
                document = self._revised(label, how, id_)
                who.wants(f"revise {label} {json.dumps(document)}")
                revision = int(plan.get("revision", "0"))
                values = {"plan": task, "revision": revision, "document": document}
                await who.execute(id_, "plan_revise", "auto", values)

    # How they react to questions.

    def _decide(self, label: str, _confirm: ET.Element) -> Choice:
        plan = label.partition(".")[0]
        self._questions[plan] += 1
        action = self._started[plan]
        if action.reaction == "deny" and self._questions[plan] > 1:
            return Choice("approve")
        return Choice(action.reaction, action.reason)

    def _answer(self, label: str, text: str) -> str:
        plan = label.partition(".")[0]
        action, chance = self._started[plan], self.world.chance
        word = chance.choice(CHOICES)
        if "I was interrupted during a step" in text:
            word = action.unknown
        step = _STEP.search(text)
        self._wishes(action.who, f"answer {label if step is None else step[0]} {word}")
        return word

    def _wishes(self, who: str, text: str) -> None:
        history = self.world.history
        history.add(Wish(history.now(), who, text))

    # What the model does.

    def _model(self, request: ModelRequest) -> Said | None:
        last = request.messages[-1]
        if request.schema is not None:
            asked = next((one for one in request.messages if one.role == "user"), last)
            revised = revised_by_model(asked.text)
            if revised is None:
                return None
            label = label_in(revised["title"])
            self._documents[label] = revised
            self._wishes("model", f"revise {label} {json.dumps(revised)}")
            return json.dumps(revised)
        mine = next((one for one in reversed(request.messages) if one.role == "user"), last)
        plans, notes = _STARTS.findall(mine.text), _NOTES.findall(mine.text)
        if not plans and not notes:
            return None
        label = (plans or notes)[-1]
        called = any(label in one.arguments for each in request.messages for one in each.tool_calls)
        if last.role == "tool" or called:
            labels = ", ".join([*(one for one, _ in asked_in(request)), label])
            return f"re {labels}: {last.text[:80]}"
        if plans:
            return call("plan_start", plan=self._documents[label])
        return call("note", label=label)
