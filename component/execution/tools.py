"""Skills as a model's tools: each call goes the road of an execute request."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from component.agent.protocol import Caller, ToolResult, Waiting
from component.audit.protocol import Event, Recorder
from component.execution.road import Road
from component.models.protocol import Tool, ToolCall
from component.policy.flows import Flows, covers
from component.policy.globs import pattern
from component.policy.taint import Taint
from component.skills import AnySkill, View
from component.tasks.protocol import Asker, Hand, Tasks
from xep.binding.json_bounds import checked_json
from xep.fluux_agent.execute import Accepted, Execute, Output, Params, Result
from xep.fluux_agent.task import Cancel, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

_LONGEST: Final = 64
"""Characters in the name of a tool, as most providers take it."""
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OVER: Final = frozenset(("completed", "failed", "rejected", "cancelled"))


class ToolRoad:
    """Implements `component.agent.protocol.Tools`; see there for what its methods do.

    Args:
        road: the one road by which skills are run.
        tasks: the durable work, for what goes on as a task.
        view: the skills that a principal sees and may execute.
        flows: what data of strangers may reach.
        recorder: where calls and refusals are recorded.
        timeout_s: seconds that one call may run at most.
    """

    def __init__(
        self,
        road: Road,
        tasks: Tasks,
        view: Callable[[JID], View],
        flows: Flows,
        recorder: Recorder,
        timeout_s: float | None = None,
    ) -> None:
        self._road = road
        self._tasks = tasks
        self._view = view
        self._flows = flows
        self._recorder = recorder
        self._timeout_s = timeout_s
        self._described: dict[bytes, Tool] = {}

    def offered(self, caller: Caller) -> Sequence[Tool]:
        """The skills that the principal may use, and the agent too."""
        view = self._view(caller.incoming.principal)
        mine = pattern(caller.skills)
        found = [
            skill
            for name in view.names()
            if mine.fullmatch(name) and (skill := view.get(name)) is not None
        ]
        granted = caller.capabilities
        return [self._tool(each) for each in found if covers(granted, each.capabilities) is None]

    def together(self, caller: Caller, name: str) -> bool:
        """Whether the skill may run twice, so that its place among others means nothing."""
        skill = self._skill(caller, name)
        return skill is not None and skill.annotations.repeatable

    async def call(
        self, caller: Caller, call_id: str, name: str, arguments: str
    ) -> ToolResult | Waiting:
        """Run a skill as the person's agent."""
        skill = self._skill(caller, name)
        if skill is None:
            self.refused(caller, name)
            return _no(f"There is no tool called {name[:_LONGEST]!r}.")
        missing = covers(caller.capabilities, skill.capabilities)
        self._record(
            caller, "capability", "refused" if missing else "allowed", skill.name, missing or ""
        )
        if missing is not None:
            return _no(f"This agent must not use {skill.name}: it lacks the capability {missing}.")
        given = arguments.strip() or "{}"
        try:
            msgspec.json.decode(checked_json(given.encode()), type=dict[str, msgspec.Raw])
        except ValueError as error:
            self.refused(caller, name)
            return _no(f"The arguments of {name} are not a JSON object: {error}")
        asker: Asker = "model"
        notes = skill.annotations
        verdict = self._flows.verdict(
            caller.taints,
            skill.capabilities,
            read_only=notes.read_only,
            open_world=notes.open_world,
        )
        if verdict != "allow":
            self._record(caller, "taint", verdict, skill.name, ", ".join(sorted(caller.taints)))
        if verdict == "refuse":
            return _no(f"{skill.name} must not be used after reading what strangers wrote.")
        if verdict == "confirm":
            asker = "misled model"
        return await self._run(caller, call_id, skill, given, asker)

    def refused(self, caller: Caller, name: str) -> None:
        """Record that a call was not made, and whether it lacked a capability or the skill."""
        skill = self._of_view(caller, name)
        if skill is None:
            return self._record(caller, "tool-call", "refused", name[:_LONGEST], "no such tool")
        missing = covers(caller.capabilities, skill.capabilities)
        if missing is None and pattern(caller.skills).fullmatch(skill.name):
            why = "a call that cannot be read"
            return self._record(caller, "tool-call", "refused", skill.name, why)
        why = missing or "not among the skills of this agent"
        return self._record(caller, "capability", "refused", skill.name, why)

    async def _run(
        self, caller: Caller, call_id: str, skill: AnySkill, arguments: str, asker: Asker
    ) -> ToolResult | Waiting:
        said = caller.incoming
        taints = [skill.taint]
        try:
            answer = await self._road.execute_in_session(
                said.requester,
                said.principal,
                said.target.bare,
                Execute(
                    skill=skill.name,
                    json_params=Params(json=msgspec.Raw(arguments.encode())),
                    thread=said.thread,
                ),
                session=_session(caller, call_id),
                origin="tool",
                lang=said.lang,
                hand=Hand(
                    caller.agent,
                    asker,
                    tuple(sorted(caller.taints)),
                    self._timeout_s,
                    caller.turn,
                ),
                told=taints.append,
            )
        except StanzaError as error:
            self._record(caller, "tool-call", "failed", skill.name, error.condition)
            return _no(_refusal(error))
        if isinstance(answer, Result):
            self._record(caller, "tool-call", "refused" if answer.is_error else "done", skill.name)
            return _result(answer, taints[-1])
        return await self._waiting(caller, skill, answer)

    async def _waiting(
        self, caller: Caller, skill: AnySkill, accepted: Accepted
    ) -> ToolResult | Waiting:
        """A task, which may be an old one: this may be a repetition."""
        found = await self._outcome(caller, skill, accepted.task)
        if isinstance(found, Waiting):
            outcome = "asked" if found.question else "accepted"
            self._record(caller, "tool-call", outcome, skill.name, task=accepted.task)
        return found

    async def outcome(self, caller: Caller, call: ToolCall, task: str) -> ToolResult | Waiting:
        """What became of a task."""
        return await self._outcome(caller, self._skill(caller, call.name), task)

    async def _outcome(
        self, caller: Caller, skill: AnySkill | None, task: str
    ) -> ToolResult | Waiting:
        said = caller.incoming
        try:
            found = await self._tasks.get(said.principal, said.target.bare, task)
        except StanzaError as error:
            return _no(_refusal(error))
        if found.state not in _OVER:
            return Waiting(task, question=found.state == "input-required")
        # What the result said of itself is not kept with the task: it counts as declared.
        result = _ended(found, None if skill is None else skill.taint)
        if skill is not None:
            outcome = "done" if not result.is_error else str(found.state)
            self._record(caller, "tool-call", outcome, skill.name, task=task)
        return result

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        """Ask the task to end, or the run that has not become one."""
        said = caller.incoming
        with contextlib.suppress(StanzaError):  # it is over, or gone
            if task is not None:
                await self._tasks.cancel(said.principal, said.target.bare, Cancel(id=task))
                return
            session = _session(caller, call.id)
            if await self._road.withdraw(said.requester, said.target.bare, session):
                skill = self._skill(caller, call.name)
                name = call.name if skill is None else skill.name
                self._record(caller, "tool-call", "stopped", name)

    # Names.

    def _skill(self, caller: Caller, name: str) -> AnySkill | None:
        """The skill behind a tool's name, or a skill's own, if the agent is offered it."""
        skill = self._of_view(caller, name)
        mine = pattern(caller.skills)
        return skill if skill is not None and mine.fullmatch(skill.name) else None

    def _of_view(self, caller: Caller, name: str) -> AnySkill | None:
        """The same, if the principal may use it."""
        view = self._view(caller.incoming.principal)
        skill = view.get(name)
        if skill is None and "." not in name:
            named = (one for one in view.names() if tool_name(one) == name)
            skill = next((found for one in named if (found := view.get(one)) is not None), None)
        return skill

    def _tool(self, skill: AnySkill) -> Tool:
        known = self._described.get(skill.digest)
        if known is None:
            known = self._described[skill.digest] = Tool(
                name=tool_name(skill.name),
                description=skill.description,
                parameters=msgspec.Raw(msgspec.json.encode(skill.inputs.schema)),
            )
        return known

    def _record(
        self,
        caller: Caller,
        kind: str,
        outcome: str,
        skill: str,
        detail: str = "",
        task: str = "",
    ) -> None:
        self._recorder.record(
            Event(
                kind=kind,  # type: ignore[arg-type]  # one of three, written above
                outcome=outcome,
                principal=str(caller.incoming.principal),
                agent=caller.agent,
                trace=caller.turn,
                subject=skill,
                task=task,
                detail=detail,
            )
        )


def tool_name(skill: str) -> str:
    """The name that providers take for a tool, of letters, digits, `_` and `-`; one for each skill.

    A name that they take is left as it is, unless it could be made of another one.
    """
    if _TOOL.fullmatch(skill) and "__" not in skill:
        return skill
    plain = skill.replace(".", "__")
    if "__" not in skill and len(plain) <= _LONGEST:
        return plain
    mark = hashlib.sha256(skill.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST - 10]}__{mark}"


def _session(caller: Caller, call_id: str) -> str:
    """By what a repetition of a call is known."""
    return f"{caller.turn} {caller.agent} {call_id}"


def _no(sentence: str) -> ToolResult:
    return ToolResult(sentence, is_error=True)


def _refusal(error: StanzaError) -> str:
    return error.text or f"It was refused: {error.condition}."


def _result(result: Result, taint: Taint | None) -> ToolResult:
    """The artifacts as one text; several are told apart by their names."""
    shown = [_text(output) for output in result.outputs]
    if len(shown) > 1:
        named = zip(result.outputs, shown, strict=True)
        shown = [f"{output.name} ({output.type}):\n{text}" for output, text in named]
    return ToolResult(
        "\n\n".join(shown) or "It gave nothing back.", is_error=result.is_error, taint=taint
    )


def _text(output: Output) -> str:
    if output.file is None:
        return output.text
    return f"[a file of type {output.type}, too large to show]"


def _ended(task: Task, taint: Taint | None) -> ToolResult:
    if task.result is not None:
        return _result(task.result, taint)
    if task.state == "cancelled":
        return _no("It was cancelled.")
    texts = task.failure.texts if task.failure is not None else ()
    why = texts[0].text if texts else ""
    return _no(f"It did not happen: {why}" if why else "It failed.")
