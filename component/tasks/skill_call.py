"""A request to run a skill, whatever it came as: a stanza, a form, a model's call, or a trigger."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from component.skills.params import TextParam
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Execute

Mode: TypeAlias = Literal["auto", "inline", "async"]
Priority: TypeAlias = Literal["low", "normal", "high"]


class SkillCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to run a skill.

    `params` are the parameters given as text, in order, and `json` is a JSON object of others.
    `mode` is `inline` for a result in the answer, `async` for a task, `auto` for either. `request`
    is the caller's own id, which identifies repetitions. The result is useless after `deadline`.
    `priority` orders the caller's waiting tasks. `context` groups tasks, `earlier` are the ids of
    some of them, `thread` is the thread of messages about the work. `delegation` is present when an
    agent asks on behalf of somebody else.
    """

    skill: str
    params: tuple[TextParam, ...] = ()
    json: msgspec.Raw | None = None
    mode: Mode = "auto"
    request: str | None = None
    deadline: datetime | None = None
    priority: Priority = "normal"
    context: str | None = None
    thread: str | None = None
    earlier: tuple[str, ...] = ()
    delegation: Delegation | None = None

    @property
    def size(self) -> int:
        """The approximate size of the parameters in bytes."""
        json = 0 if self.json is None else len(bytes(self.json))
        return json + sum([len(param.name) + len(param.text) for param in self.params])

    def texts(self) -> dict[str, list[str]]:
        """Return the texts given for each parameter name, in order."""
        texts: dict[str, list[str]] = {}
        for param in self.params:
            texts.setdefault(param.name, []).append(param.text)
        return texts

    def without_params(self) -> SkillCall:
        """Return the request without its parameters and its name, which a task has apart."""
        return msgspec.structs.replace(self, params=(), json=None, request=None)


def call_of(execute: Execute) -> SkillCall:
    """Convert an execute element, of a stanza or of a row of an earlier release."""
    given = execute.json_params
    return SkillCall(
        skill=execute.skill,
        params=tuple([TextParam(param.name, param.text) for param in execute.params]),
        json=None if given is None else given.json,
        mode=execute.mode,
        request=execute.request,
        deadline=execute.deadline,
        priority=execute.priority,
        context=execute.context,
        thread=execute.thread,
        earlier=tuple([earlier.task for earlier in execute.earlier]),
        delegation=execute.delegation,
    )
