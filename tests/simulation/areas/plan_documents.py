"""The plans of a simulated life: what people write, and how a model revises it."""

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, Literal

import msgspec

Document = dict[str, Any]
What = Literal["note", "work", "nap", "look", "errand", "fail", "pay", "payback", "ask", "agent"]
_WHAT: Final[Sequence[What]] = (
    *("note", "note", "work", "nap", "look", "errand", "errand", "fail", "pay", "payback"),
    *("ask", "agent"),
)
CHOICES: Final = ("red", "blue")
_GROUP: Final = "group"


class Planned(msgspec.Struct, frozen=True):
    """A step: what it does, and what it has to wait for.

    Attributes:
        help: what happens if it fails.
    """

    id: str
    what: What
    after: tuple[str, ...] = ()
    is_in_group: bool = False
    help: Literal["", "optional", "otherwise"] = ""


def draw_steps(chance: Random) -> tuple[Planned, ...]:
    """Draw steps: some of them in a chain, some side by side, and some in a group."""
    made: list[Planned] = []
    grouped = chance.choice((0, 0, 2, 3))
    for number in range(grouped + chance.randint(1, 4)):
        is_in_group = number < grouped
        known = [one.id for one in made if not one.is_in_group]
        after = [] if is_in_group else chance.sample(known, min(len(known), chance.randint(0, 2)))
        if grouped and not is_in_group and chance.random() < 0.6:
            after.append(_GROUP)
        what = chance.choice(_WHAT)
        if what == "payback" and not any(one in known for one in after):
            what = "pay"  # nothing is known to fill it with
        help_ = chance.choice(("", "", "optional", "otherwise")) if what == "fail" else ""
        made.append(Planned("abcdefghi"[number], what, tuple(after), is_in_group, help_))
    return tuple(made)


def document_of(label: str, steps: Sequence[Planned], policy: str) -> Document:
    """Return the document of a plan whose name is the label."""
    made: list[Document] = []
    for one in steps:
        step = _step(label, one.id, one.what, [id_ for id_ in one.after if id_ != _GROUP])
        step["after"] = list(one.after)
        if one.is_in_group:
            step["group"] = _GROUP
        if one.help == "optional":
            step["optional"] = True
        elif one.help == "otherwise":
            step["otherwise"] = f"{one.id}z"
            made.append(_step(label, f"{one.id}z", "note", []))
        made.append(step)
    document = {
        "title": f"Plan {label}",
        "goal": f"Do {label}",
        "steps": made,
        "result": f"Report {label}: it is over.",
    }
    return document | (
        {"groups": {_GROUP: policy}} if any(one.is_in_group for one in steps) else {}
    )


def _step(label: str, id_: str, what: What, after: Sequence[str]) -> Document:
    name = f"{label}.{id_}"
    step: Document = {"id": id_, "title": f"Step {name}"}
    if what == "ask":
        question = f"Which word for {name}?"
        return step | {"kind": "ask", "question": question, "choices": list(CHOICES)}
    if what == "agent":
        words = f"Please note {name}."
        return step | {"kind": "agent", "role": "helper", "skills": ["note"], "instructions": words}
    value, skill = name, "pay" if what == "payback" else what
    if what == "payback":
        value = f"{name} for {{{after[0]}.text}}"
    step |= {"kind": "call", "skill": skill, "params": {"label": value}}
    return step | ({"retries": 2} if what == "look" else {})


def more(document: Document, id_: str, what: What = "note") -> Document:
    """Return a document with another step, after all others."""
    label = document["title"].removeprefix("Plan ")
    fallbacks = {one.get("otherwise") for one in document["steps"]}
    step = _step(label, id_, what, [])
    step["after"] = [one["id"] for one in document["steps"] if _may_be_before(one, fallbacks)]
    return document | {"steps": [*document["steps"], step]}


def _may_be_before(step: Document, fallbacks: set[Any]) -> bool:
    return step["id"] not in fallbacks


def without(document: Document, ids: Sequence[str]) -> Document:
    """Return a document with notes in place of some steps, under new ids."""
    label = document["title"].removeprefix("Plan ")
    gone = {one.get("otherwise") for one in document["steps"] if one["id"] in ids}
    steps: list[Document] = []
    for one in document["steps"]:
        if one["id"] in ids:
            new = _step(label, f"{one['id']}r", "note", [])
            kept = {key: one[key] for key in ("after", "group") if key in one}
            steps.append(new | kept)
        elif one["id"] not in gone:
            steps.append(one)
    text = json.dumps(document | {"steps": steps})
    for id_ in ids:
        text = text.replace(f"{{{id_}.text}}", f"{{{id_}r.text}}")
    made: Document = json.loads(text)
    renamed = {id_: f"{id_}r" for id_ in ids}
    for step in made["steps"]:
        step["after"] = [renamed.get(name, name) for name in step.get("after", ())]
        if step.get("otherwise") in renamed:
            step["otherwise"] = renamed[step["otherwise"]]
    return made


_PLAN: Final = re.compile(r"The plan as it is:\n(.*)\n\nHow its steps", re.DOTALL)


def revised_by_model(prompt: str) -> Document | None:
    """Return what a model makes of a plan; None if that is not what it is asked for."""
    match = _PLAN.search(prompt)
    if match is None:
        return None
    document: Document = json.loads(match[1])
    known: Mapping[str, Document] = {one["id"]: one for one in document["steps"]}
    failed = [
        said["step"]
        for said in map(json.loads, re.findall(r'^\{"step":.*\}$', prompt, re.MULTILINE))
        if said["is"] in ("failed", "lost") and said["step"] in known
    ]
    if failed:
        return without(document, failed)
    if "has declined the plan" in prompt:
        return without(document, [id_ for id_, one in known.items() if one.get("skill") == "pay"])
    return more(document, f"n{len(known)}")
