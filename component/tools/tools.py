"""Skills as a model's tools: each call is a request to execute a skill.

If there are many skills of other agents, one tool searches them, and those that it has found are
tools.
"""

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from component import system
from component.agent.history import in_order
from component.agent.protocol import Caller, Profile, ToolResult, Waiting
from component.agent.requests import MessageStarter
from component.agent.sub_agents import SPAWN
from component.audit.protocol import AuditEvent, Recorder
from component.budget.protocol import TurnBudget
from component.caches import LRUCache
from component.models.messages import FilePart, ImagePart, ToolCall
from component.models.protocol import Tool
from component.policy.flows import TRUSTED, AgentLimits, covers
from component.policy.globs import pattern
from component.policy.policy import ASKS_PEERS
from component.policy.provenance import texts_in
from component.policy.taint import Taint, worst
from component.skills import File, Skill, View
from component.skills.errors import printable
from component.skills.spec import OPTIONAL
from component.tasks.admission import ANSWERS
from component.tasks.gate import Gate, NotPermitted, Unconfirmed
from component.tasks.outputs import files_of, part_of, sent_file, text_of
from component.tasks.queries import Found
from component.tasks.refusals import with_help
from component.tasks.request import CallerContext, Request
from component.tasks.service import TaskService
from component.tasks.several_calls import SEVERAL_CALLS, groups
from component.tools.joint_confirmation import (
    CallToConfirm,
    JointConfirmations,
    approves,
)
from component.tools.skill_search import (
    MOST_FOUND,
    MOST_TOOLS,
    NAME,
    found_nothing,
    found_skills,
    search_tool,
    words_of,
)
from component.tools.spawning import SpawnError, Spawning
from component.tools.tainted_calls import chosen_and_reserved, with_descriptions
from xep.binding.json_bounds import checked_json
from xep.fluux_agent.errors import RemoteFailure
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import Cancel, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

_SENT: Final = "The person gets this file with your answer; do not write its address."
_NOT_SENT: Final = ". The person does not get this file"
_LONGEST_ABOUT: Final = 100
_LONGEST: Final = 64
"""The maximum length of a tool's name that most providers accept."""
_MOST_DESCRIBED: Final = 4096
_MOST_OFFERED: Final = 64
"""Lists of tools that are kept, each with the view that it is of."""
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = re.compile(r"__[0-9a-f]{8}")
_OVER: Final = frozenset(("completed", "failed", "rejected", "cancelled"))


class _Offered(msgspec.Struct, frozen=True):
    """What agents with equal rights are offered.

    Attributes:
        tools: the tools, without those that a search has found.
        others: the skills of these that the operator has not described, by digest.
        searched: the names of the skills that are searched; empty if all skills are tools.
        agents: the numbers of these skills, by their agents.
    """

    tools: tuple[Tool, ...]
    others: dict[bytes, Skill]
    searched: frozenset[str] = frozenset()
    agents: Mapping[str, int] = {}


class ToolExecutor:
    """Implements `component.agent.protocol.Tools`, which documents its methods.

    Args:
        tasks: runs the skills, and has the tasks that calls become.
        view: the skills that a principal sees and may execute.
        gate: decides about calls.
        recorder: records calls and refusals.
        confirmations: asks people about several calls at once.
        timeout_s: the maximum number of seconds for one call.

    Attributes:
        spawning: makes sub-agents; None where there are none.
    """

    def __init__(
        self,
        tasks: TaskService,
        view: Callable[[JID], View],
        gate: Gate,
        recorder: Recorder,
        confirmations: JointConfirmations,
        timeout_s: float | None = None,
    ) -> None:
        self._tasks = tasks
        self._view = view
        self._gate = gate
        self._recorder = recorder
        self._confirmations = confirmations
        self._timeout_s = timeout_s
        self.spawning: Spawning | None = None
        self._described: LRUCache[bytes, Tool] = LRUCache(_MOST_DESCRIBED)
        self._offered: LRUCache[tuple[View, AgentLimits], _Offered] = LRUCache(_MOST_OFFERED)
        self._others: dict[str, dict[bytes, Skill]] = {}
        """What each agent and its sub-agents were offered since the start and the operator has not
        described, by digest. What is withdrawn stays: the model may have said what it should do.
        """

    def offered(self, caller: Caller) -> Sequence[Tool]:
        """Return the skills that both the principal and the agent may use."""
        offered, view = self._offered_to(caller), self._view(caller.request.principal)
        found = [name for name in caller.found if name in offered.searched]
        skills = [
            skill
            for name in found
            if (skill := view.get(name)) is not None and _may_use(caller.profile, skill)
        ]
        family = self._others.setdefault(_family(caller), {})
        family.update(offered.others)
        family.update({one.digest: one for one in skills if not _is_described_here(one)})
        tools = (*offered.tools, *map(self._tool, skills[-MOST_TOOLS:]))
        if self.spawning is None or not self.spawning.is_offered(caller):
            return tools
        return (self.spawning.tool, *(one for one in tools if one.name != SPAWN))

    def _offered_to(self, caller: Caller) -> _Offered:
        view, profile = self._view(caller.request.principal), caller.profile
        key = view, profile.limits
        if key not in self._offered:  # a view is another one after each change of the skills
            self._offered[key] = self._offer(view, profile)
        return self._offered[key]

    def _offer(self, view: View, profile: Profile) -> _Offered:
        wanted, is_of_peer = pattern(profile.skills), self._gate.is_of_peer
        names = [name for name in view.names() if wanted.fullmatch(name)]
        agents = Counter(name.partition(".")[0] for name in names if is_of_peer(name))
        # By its capability, because thousands of skills are made only when they are found.
        may_ask = [one for one in agents if covers(profile.capabilities, (f"peer:{one}",)) is None]
        agents = Counter({name: agents[name] for name in may_ask})
        searched = frozenset[str]()
        if agents.total() > MOST_TOOLS:
            searched = frozenset(
                name for name in names if is_of_peer(name) and name.partition(".")[0] in agents
            )
        found = [
            skill
            for name in names
            if name not in searched and (skill := view.get(name)) is not None
        ]
        mine = [
            one
            for one in found
            if covers(profile.capabilities, one.capabilities) is None and _may_use(profile, one)
        ]
        tools = [self._tool(one) for one in mine]
        if searched:
            tools = [search_tool(agents), *(one for one in tools if one.name != NAME)]
        others = {one.digest: one for one in mine if not _is_described_here(one)}
        return _Offered(tuple(tools), others, searched, agents)

    def together(self, caller: Caller, name: str) -> bool:
        """Whether the place of a call among others means nothing: the skill only reads, or the call
        makes a sub-agent.
        """
        return self._is_spawn(caller, name) or self.only_reads(caller, name)

    def only_reads(self, caller: Caller, name: str) -> bool:
        """Whether the skill only reads."""
        if self._is_spawn(caller, name):
            return False
        if self._is_search(caller, name):
            return True
        skill = self._skill(caller, name)
        return skill is not None and skill.annotations.read_only

    async def call(
        self, caller: Caller, call_id: str, name: str, arguments: str
    ) -> ToolResult | Waiting:
        """Run a skill as the person's agent."""
        if self._is_search(caller, name):
            return await self._search(caller, arguments)
        if self._is_spawn(caller, name):
            return await self._spawn(caller, call_id, arguments)
        skill = self._skill(caller, name)
        if skill is None:
            self.refused(caller, name)
            return _no(f"There is no tool called {name[:_LONGEST]!r}.")
        given = arguments.strip()
        try:
            msgspec.json.decode(checked_json(given.encode()), type=dict[str, msgspec.Raw])
        except ValueError as error:
            self.refused(caller, name)
            return _no(f"The arguments of {name} are not a JSON object: {error}")
        return await self._run(caller, skill, self._request(caller, call_id, skill, given.encode()))

    async def _search(self, caller: Caller, arguments: str) -> ToolResult:
        """Find skills of other agents, which are tools from then on."""
        offered, view = self._offered_to(caller), self._view(caller.request.principal)
        try:
            words = words_of(arguments)
        except ValueError as error:
            self.refused(caller, NAME)
            return _no(f"Nothing was searched: {error}", not_made=True)
        view.names()  # makes the list that is searched
        names, whole = await system.in_thread(view.ranked, words, offered.searched)
        best = [(name, view.get(name)) for name in names[: min(whole, MOST_FOUND) or MOST_FOUND]]
        found = [
            (tool_name(name), skill)
            for name, skill in best
            if skill is not None and _may_use(caller.profile, skill)
        ]
        self._record(caller, "tool-call", "done", NAME, f"{whole or len(names)} found")
        if not found:
            return found_nothing(offered.agents)
        return found_skills(found, whole, len(names))

    async def _spawn(self, caller: Caller, call_id: str, arguments: str) -> ToolResult | Waiting:
        """Let a sub-agent work, and wait for it for as long as for any other call."""
        spawning = self.spawning
        assert spawning is not None, "its tool is offered"
        try:
            work = spawning.work(caller, call_id, arguments)
        except SpawnError as error:
            return _no(str(error), not_made=True)
        request = self._request_for(
            caller,
            call_id,
            skill=spawning.skill.name,
            json=msgspec.Raw(msgspec.json.encode({"work": work})),
            mode="async",
            group=f"{caller.turn} {caller.agent}",
            about=printable(f"{work.role}: {work.text}", _LONGEST_ABOUT),
        )
        spawning.record(caller, work.agent, "spawned", work.role)
        try:
            running = self._tasks.execute(request, internal=spawning.skill)
            answer = running if isinstance(running, ANSWERS) else await running
        except StanzaError as error:
            spawning.record(caller, work.agent, "refused", error.condition)
            return _no(_refusal(error))
        assert isinstance(answer, Accepted), "it was asked for as a task"
        said = caller.request
        try:
            found = await self._tasks.at_rest(said.principal, said.target.bare, answer.task)
        except StanzaError as error:
            return _no(_refusal(error))
        return self._outcome(caller, None, found)

    def _is_spawn(self, caller: Caller, name: str) -> bool:
        return name == SPAWN and self.spawning is not None and self.spawning.is_offered(caller)

    def _is_search(self, caller: Caller, name: str) -> bool:
        return name == NAME and bool(self._offered_to(caller).searched)

    def refused(self, caller: Caller, name: str) -> None:
        """Record that a call was not made, and whether it lacked a capability or the skill."""
        if self._is_search(caller, name):
            why = "a call that cannot be decoded"
            return self._record(caller, "tool-call", "refused", NAME, why)
        if self.spawning is not None and self._is_spawn(caller, name):
            return self.spawning.refused(caller)
        skill = self._of_view(caller, name)
        if skill is None:
            return self._record(caller, "tool-call", "refused", name[:_LONGEST], "no such tool")
        missing = covers(caller.profile.capabilities, skill.capabilities)
        if not _may_use(caller.profile, skill):
            missing = "more than reading"
        if missing is None and pattern(caller.profile.skills).fullmatch(skill.name):
            why = "a call that cannot be decoded"
            return self._record(caller, "tool-call", "refused", skill.name, why)
        why = missing or "not among the skills of this agent"
        return self._record(caller, "capability", "refused", skill.name, why)

    async def confirm_together(
        self, caller: Caller, calls: Sequence[ToolCall], *, again: bool
    ) -> Mapping[str, ToolResult | Waiting]:
        """Ask the person once about those of these calls that need a confirmation."""
        found: dict[str, ToolResult | Waiting] = {}
        to_confirm = [await self._to_confirm(caller, call) for call in calls]
        for group in groups([one for one in to_confirm if one is not None]):
            session = f"{_session(caller, group[0].call.id)} and more"
            asked = await self._confirmations.ask(caller, group, session=session, again=again)
            for one in group if asked is not None else ():
                call, decision = one.call, one.decision
                if isinstance(asked, Waiting):
                    if decision.reason and not again:
                        self._record(
                            caller, "taint", decision.verdict, one.skill.name, decision.reason
                        )
                    self._record(
                        caller, "tool-call", "asked", one.skill.name, "with others", asked.task
                    )
                    found[call.id] = asked
                elif isinstance(asked, Result):
                    found[call.id] = await self._approved(caller, call, asked)
        return found

    async def _to_confirm(self, caller: Caller, call: ToolCall) -> CallToConfirm | None:
        """Return a call if the person must confirm it, and the call is otherwise allowed."""
        is_own = self._is_search(caller, call.name) or self._is_spawn(caller, call.name)
        skill = None if is_own else self._skill(caller, call.name)
        if skill is None or covers(caller.profile.capabilities, skill.capabilities) is not None:
            return None
        arguments = call.arguments.strip().encode()
        try:
            checked_json(arguments)
        except ValueError:
            return None
        request = self._request(caller, call.id, skill, arguments)
        decision = self._gate.decide(request, skill)
        if decision.verdict == "refuse":
            return None
        return await self._confirmations.to_confirm(caller, call, skill, request, decision)

    async def _approved(
        self, caller: Caller, call: ToolCall, approval: Result, task: str = ""
    ) -> ToolResult | Waiting:
        """Make a call that was approved with others; one that has changed since is asked about."""
        skill = self._skill(caller, call.name)
        arguments = call.arguments.strip()
        if skill is None:
            return await self.call(caller, call.id, call.name, arguments)
        request = self._request(caller, call.id, skill, arguments.encode())
        if not await approves(approval, request, skill):
            return await self.call(caller, call.id, call.name, arguments)
        self._record(caller, "tool-call", "approved", skill.name, task=task)
        context = msgspec.structs.replace(
            request.caller_context, asker="approved", chosen=(), reserved=()
        )
        return await self._run(
            caller, skill, msgspec.structs.replace(request, caller_context=context)
        )

    def _request(self, caller: Caller, call_id: str, skill: Skill, arguments: bytes) -> Request:
        """Return the request that a call makes, with the taints of the descriptions that it may
        follow.
        """
        raw = msgspec.Raw(arguments)
        described = self._others.get(_family(caller), {})
        view = self._view(caller.request.principal)
        if skill.name == ASKS_PEERS:  # the names of the skills are not addresses that it goes to
            named = [one for one in texts_in(msgspec.json.decode(raw)) if view.get(one) is not None]
            caller = msgspec.structs.replace(caller, written=(*caller.written, *named))
        caller = with_descriptions(caller, skill, raw, described.values(), view)
        chosen, own = chosen_and_reserved(
            caller, skill, raw, lambda tool: self._skill(caller, tool)
        )
        return self._request_for(
            *(caller, call_id), skill=skill.name, json=raw, chosen=chosen, reserved=own
        )

    def _request_for(
        self,
        caller: Caller,
        call_id: str,
        *,
        chosen: tuple[str, ...] = (),
        reserved: tuple[str, ...] = (),
        **what: Any,
    ) -> Request:
        """Return the request of a call. `what` are fields of it."""
        said, room = caller.request, caller.request.room
        return Request(
            requester=said.requester,
            principal=said.principal,
            target=said.target.bare,
            # What is asked about it goes to the person, and not to the room.
            thread=said.conversation.thread if said.room is None else None,
            session=_session(caller, call_id),
            origin="tool",
            lang=said.language,
            parent=caller.task,
            **what,
            caller_context=CallerContext(
                caller.agent,
                "model",
                tuple(sorted(caller.taints)),
                self._timeout_s,
                caller.turn,
                caller.operator,
                caller.budget or TurnBudget(caller.turn, said.effective_payer, said.budget_usd),
                chosen,
                caller.profile.limits,
                unrequested=not isinstance(said.starter, MessageStarter),
                reserved=reserved,
                room=None if said.room is None else said.owner,
                occupant="" if room is None or room.account is None else str(room.account),
            ),
        )

    async def _run(self, caller: Caller, skill: Skill, request: Request) -> ToolResult | Waiting:
        authors: list[tuple[Taint, ...]] = [() if skill.taint is None else (skill.taint,)]
        try:
            running = self._tasks.execute(request, authors.append)
            answer = running if isinstance(running, ANSWERS) else await running
        except NotPermitted as error:
            if isinstance(error, Unconfirmed):  # the gate records the others
                self._record(caller, "tool-call", "refused", skill.name, "nobody can confirm it")
            return _no(error.text, not_made=True)
        except StanzaError as error:
            self._record(caller, "tool-call", "failed", skill.name, error.condition)
            return _no(_refusal(error), _taint(error.application, skill.taint))
        if isinstance(answer, Result):
            self._record(caller, "tool-call", "refused" if answer.is_error else "done", skill.name)
            return _result(answer, authors[-1])
        return await self._waiting(caller, skill, answer)

    async def _waiting(
        self, caller: Caller, skill: Skill, accepted: Accepted
    ) -> ToolResult | Waiting:
        """Return the state of a task, which may be an old one: the call may be a repetition."""
        found = self._outcome(caller, skill, await self._task(caller, accepted.task))
        if isinstance(found, Waiting):
            outcome = "asked" if found.question else "accepted"
            self._record(caller, "tool-call", outcome, skill.name, task=accepted.task)
        return found

    async def outcome(self, caller: Caller, call: ToolCall, task: str) -> ToolResult | Waiting:
        """Return the outcome of a task, or that it still runs."""
        found = await self._task(caller, task)
        ended = found.task if isinstance(found, Found) else None
        if ended is not None and ended.skill == SEVERAL_CALLS.name and ended.result:
            return await self._approved(caller, call, ended.result, task)
        return self._outcome(caller, self._skill(caller, call.name), found)

    async def _task(self, caller: Caller, task: str) -> Found | ToolResult:
        said = caller.request
        try:
            return await self._tasks.look_up(said.principal, said.target.bare, task)
        except StanzaError as error:
            return _no(_refusal(error))

    def _outcome(
        self, caller: Caller, skill: Skill | None, found: Found | ToolResult
    ) -> ToolResult | Waiting:
        if isinstance(found, ToolResult):
            return found
        task = found.task
        if task.state not in _OVER:
            return Waiting(task.id, found.asks, found.room)
        result = _ended(task, found.authors)
        if skill is not None:
            outcome = "done" if not result.is_error else str(task.state)
            self._record(caller, "tool-call", outcome, skill.name, task=task.id)
        return result

    async def retract(self, caller: Caller, tasks: Sequence[str]) -> bool:
        """Cancel tasks if none of them has done anything."""
        said = caller.request
        return await self._tasks.retract(said.principal, said.target.bare, tasks)

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        """Cancel the task, or the execution that has not become one."""
        said = caller.request
        with contextlib.suppress(StanzaError):  # it has ended, or does not exist any more
            if task is not None:
                await self._tasks.cancel(said.principal, said.target.bare, Cancel(id=task))
                return
            session = _session(caller, call.id)
            if await self._tasks.withdraw(said.requester, said.target.bare, session):
                skill = self._skill(caller, call.name)
                name = call.name if skill is None else skill.name
                self._record(caller, "tool-call", "stopped", name)

    # Names.

    def _skill(self, caller: Caller, name: str) -> Skill | None:
        """Return the skill for a tool's name, or for a skill's own name, if the agent is offered
        it.
        """
        skill = self._of_view(caller, name)
        mine = pattern(caller.profile.skills)
        if skill is None or not mine.fullmatch(skill.name):
            return None
        return skill if _may_use(caller.profile, skill) else None

    def _of_view(self, caller: Caller, name: str) -> Skill | None:
        view = self._view(caller.request.principal)
        skill = view.get(name)
        if skill is not None or "." in name:
            return skill
        plain = name.replace("__", ".")
        if tool_name(plain) == name:
            return view.get(plain)
        named = (one for one in view.names() if tool_name(one) == name)
        return next((view.get(one) for one in named), None) if _MARK.search(name) else None

    def _tool(self, skill: Skill) -> Tool:
        known: Tool | None = self._described.get(skill.digest)
        if known is None:
            known = self._described[skill.digest] = Tool(
                name=tool_name(skill.name),
                description=skill.description,
                parameters=msgspec.Raw(msgspec.json.encode(skill.input_schema)),
                optional=OPTIONAL in skill.tags,
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
            AuditEvent(
                kind=kind,  # type: ignore[arg-type]  # one of three, written above
                outcome=outcome,
                principal=str(caller.request.principal),
                agent=caller.agent,
                trace=caller.turn,
                subject=skill,
                task=task,
                detail=detail,
            )
        )


def tool_name(skill: str) -> str:
    """Return a tool name that providers accept, of letters, digits, `_` and `-`; unique for each
    skill.

    A name that they accept is not changed, unless another name could be converted to it.
    """
    if _TOOL.fullmatch(skill) and "__" not in skill:
        return skill
    plain = skill.replace(".", "__")
    if "__" not in skill and len(plain) <= _LONGEST:
        return plain
    mark = hashlib.sha256(skill.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST - 10]}__{mark}"


def _is_described_here(skill: Skill) -> bool:
    """Whether the operator, or a person whom the model may trust, has written the description."""
    return skill.described_by in (None, *TRUSTED)


def _may_use(profile: Profile, skill: Skill) -> bool:
    """Whether an agent that may only read may use a skill."""
    return not profile.read_only or skill.annotations.read_only


def _session(caller: Caller, call_id: str) -> str:
    return f"{caller.turn} {caller.agent} {call_id}"


def _no(sentence: str, taint: Taint | None = None, *, not_made: bool = False) -> ToolResult:
    return ToolResult(sentence, is_error=True, taint=taint, not_made=not_made)


def _labels(authors: tuple[Taint, ...]) -> dict[str, Any]:
    """Return the fields of a result that say which of several people may have written it."""
    several = frozenset(authors) - TRUSTED
    return {"taint": worst(authors), "taints": in_order(several) if len(several) > 1 else ()}


def _taint(conditions: Iterable[object], taint: Taint | None) -> Taint | None:
    """Return the taint of an error, of a skill whose results have a taint: the other errors are
    sentences of this service.
    """
    return taint if any(isinstance(one, RemoteFailure) for one in conditions) else None


def _family(caller: Caller) -> str:
    return caller.agent.partition("/")[0]


def _refusal(error: StanzaError) -> str:
    text = error.text or f"It was refused: {error.condition}."
    return with_help(text, error.application)


def _result(result: Result, authors: tuple[Taint, ...]) -> ToolResult:
    """Return the artifacts as one text; several are labelled with their names."""
    shown = [_text(output) for output in result.outputs]
    if len(shown) > 1:
        named = zip(result.outputs, shown, strict=True)
        shown = [f"{output.name} ({output.type}):\n{text}" for output, text in named]
    files = [part_of(output.file) for output in result.outputs if output.file is not None]
    return ToolResult(
        "\n\n".join(shown) or "It returned nothing.",
        is_error=result.is_error,
        **(_labels(authors) if len(authors) > 1 else {"taint": authors[0] if authors else None}),
        parts=tuple([_model_part(each) for each in files if isinstance(each, File)]),
        files=files_of(result.outputs),
    )


def _model_part(file: File) -> ImagePart | FilePart:
    if file.media_type.startswith("image/"):
        return ImagePart(file.media_type, file.data)
    return FilePart(file.name or "file", file.media_type, file.data)


def _text(output: Output) -> str:
    if output.file is None:
        return output.text
    if sent_file(output) is None:
        is_here = isinstance(part_of(output.file), File)
        return f"[{text_of(output)}{_NOT_SENT if is_here else ''}]"
    about = output.file.file
    size = "" if about.size is None else f", {about.size:,} bytes"
    return f"[{about.name or output.name}: {output.type}{size}. {_SENT}]"


def _ended(task: Task, authors: tuple[Taint, ...]) -> ToolResult:
    if task.result is not None:
        return _result(task.result, authors)
    if task.state == "cancelled":
        return _no("It was cancelled.")
    failure, not_made = task.failure, task.state == "rejected"
    if failure is None or not failure.texts:
        return _no("It failed.", not_made=not_made)
    why = with_help(failure.texts[0].text, failure.conditions)
    return _no(f"It did not happen: {why}", worst(authors), not_made=not_made)
