"""What the XML Schemas allow, where it is less than the payload classes take."""

from decimal import Decimal
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from tests.xep.strategies import LANGUAGES, Fit, payloads, xml_characters
from xep.binding import Payload
from xep.binding.declaration import Field
from xep.data_forms import Form
from xep.fluux_agent import NAMESPACE, errors
from xep.fluux_agent.task import InputAnswer, Task

digests = st.from_regex(r"[A-Za-z0-9_-]{43}", fullmatch=True)
jws = st.from_regex(r"[A-Za-z0-9_-]{1,9}(\.[A-Za-z0-9_-]{1,9}){2}", fullmatch=True)
step_names = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True)
identifiers = st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True)
skill_names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,9}(\.[A-Za-z0-9_-]{1,9})?", fullmatch=True)
texts = st.text(xml_characters, min_size=1, max_size=20)
counts = st.integers(0, 10**19 - 1)
# libxml2 reads decimals of at most 24 digits.
amounts = st.decimals(0, 10**9, allow_nan=False, places=9)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {int: counts, Decimal: amounts}
_IDENTIFIERS = {
    "Accepted.task",
    "Cancel.id",
    "Cancel.request",
    "Confirm.id",
    "Confirm.task",
    "Decision.id",
    "Earlier.task",
    "Events.id",
    "Execute.context",
    "Execute.request",
    "Input.id",
    "InputAnswer.input",
    "InputAnswer.task",
    "Memory.task",
    "PlanStep.task",
    "Task.context",
    "Task.id",
    "Task.request",
    "Tasks.context",
}


class _Fitting(Fit):
    def field(
        self, cls: type[Payload], field: Field, anything: st.SearchStrategy[Any]
    ) -> st.SearchStrategy[Any]:
        if not cls.xml.namespace.startswith(NAMESPACE):
            return anything
        name = f"{cls.__name__}.{field.name}"
        match name:
            case "SkillDescription.name":
                return skill_names
            case "SkillDescription.schemas":
                return _few(field, 0, 2)
            case "Approvals.need" | "Standing.uses" | "PlanSteps.revision":
                return st.integers(1, 10**9)
            case "PlanStep.id" | "PlanStep.group" | "PlanStep.otherwise":
                return step_names
            case "PlanStep.after":
                return st.lists(step_names, min_size=1, max_size=3).map(" ".join)
            case "PlanSteps.digest":
                return st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
            case "SignedGrant.jws" | "SignedReceipt.jws":
                return jws
            case "GrantStatus.digest" | "Key.x":
                return digests
            case "GrantStatus.child":
                return st.none() | digests
            case "Failure.conditions":
                return _few(field, 1, 2)
            case "Progress.fraction":
                return st.none() | st.decimals(0, 1, places=12)
        chosen = identifiers if name in _IDENTIFIERS else _scalar(cls, field)
        if chosen is None:
            return anything
        return st.none() | chosen if field.optional else chosen

    def whole(self, payload: Any) -> Any:
        if isinstance(payload, InputAnswer):
            return _only_one(payload, ("params", "form"), at_least=True)
        if isinstance(payload, Task):
            return _only_one(payload, ("input", "confirm", "result", "failure"))
        return payload


FITTING = _Fitting()


def _scalar(cls: type[Payload], field: Field) -> st.SearchStrategy[Any] | None:
    if field.local == "xml:lang":
        return LANGUAGES
    declared = next(one.type for one in msgspec.structs.fields(cls) if one.name == field.name)
    inner = get_args(declared)[0]
    if field.optional:
        inner = next(one for one in get_args(inner) if one is not type(None))
    # What stands in an element has the namespace in its name.
    if inner is str and "{" not in field.tag and cls is not errors.InvalidParam:
        return texts
    return _BY_TYPE.get(inner) if isinstance(inner, type) else None


def _few(field: Field, least: int, most: int) -> st.SearchStrategy[Any]:
    one = st.deferred(lambda: st.one_of([payloads(p, 0, FITTING) for p in field.payloads]))
    return st.lists(one, min_size=least, max_size=most).map(tuple)


def _only_one(payload: Any, names: tuple[str, ...], *, at_least: bool = False) -> Any:
    """The payload with the first of the fields that is there, and none of the others."""
    there = [name for name in names if getattr(payload, name) is not None]
    if at_least and not there:
        return msgspec.structs.replace(payload, form=Form(type="cancel"))
    return msgspec.structs.replace(payload, **dict.fromkeys(there[1:]))
