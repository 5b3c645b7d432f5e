"""Executes a request: admission, then the skill runs, inline or as durable work.

A skill that never waits and may run twice runs at once, without a task or a record on disk.
Everything else goes to the durable work, which decides how much of it has to be stored.
"""

from collections.abc import Awaitable, Callable

from component.audit.protocol import NoRecord
from component.execution.admission import ANSWERS, Admission, ExecutionAnswer, Waiting
from component.execution.notes import NoNotes, Notes
from component.execution.request import SkillRequest, session_key
from component.skills import CapabilityMissing, InvalidParam, SkillFailed
from component.skills.calling import call_inline
from component.skills.context import Context
from component.skills.granting import CapabilityCheck
from component.system import perf_counter
from component.tasks.idempotency import copy_error
from component.tasks.outputs import error_of, result_of
from component.tasks.protocol import Call, CallerContext
from component.tasks.service import TaskService
from xep.fluux_agent.execute import Accepted, Result
from xep.jid import JID
from xep.stanza_error import StanzaError


class SkillExecutor:
    """Executes skills for principals that may use them.

    Args:
        admission: judges every request.
        tasks: the durable work.
        accepted: called with the id of each task whose request is answered with `<accepted/>`.
        agent_at: returns the name of the agent at an address of this service.
        notes: records the outcomes of requests, except those of models, which their caller records.
        capabilities: checks those of skills that run at once; the durable work checks the others.
    """

    def __init__(
        self,
        admission: Admission,
        tasks: TaskService,
        accepted: Callable[[str], None] = lambda _: None,
        agent_at: Callable[[JID], str] = lambda at: at.local or "assistant",
        notes: Notes = NoNotes(),  # noqa: B008 - it holds nothing
        capabilities: CapabilityCheck = CapabilityCheck(NoRecord()),  # noqa: B008 - likewise
    ) -> None:
        self._capabilities = capabilities
        self._judge = admission.judge
        self._tasks = tasks
        self._remember = tasks.remember
        self._accepted = accepted
        self._agent_at = agent_at
        self._notes = notes

    def execute(self, request: SkillRequest) -> ExecutionAnswer | Awaitable[ExecutionAnswer]:
        """Serve a request, at once if nothing about it waits.

        Raises the StanzaErrors of the specification's error table; the awaitable may raise them
        too.
        """
        known = self._judge(request)
        if known is None:
            return self._run(request)
        if isinstance(known, ANSWERS):
            return known
        return self._execute_later(request, known)

    async def _execute_later(self, request: SkillRequest, judging: Waiting) -> ExecutionAnswer:
        known = await judging(request)
        if known is not None:
            return known
        running = self._run(request)
        return running if isinstance(running, ANSWERS) else await running

    async def withdraw(self, requester: JID, target: JID, session: str) -> bool:
        """Cancel the work of a request of a session that has ended.

        Return False if it is not in progress. Raises StorageError.
        """
        return await self._tasks.withdraw(session_key(requester, target, session))

    def _run(self, request: SkillRequest) -> ExecutionAnswer | Awaitable[ExecutionAnswer]:
        """Run an admitted request."""
        asks = request.may_ask and (request.confirmation is not None or request.undecided)
        if request.skill.at_once and not asks and request.call.mode != "async":
            return self._run_inline(request)
        return self._run_durably(request)

    def _caller_context(self, request: SkillRequest) -> CallerContext:
        known = request.caller_context
        return known or CallerContext(self._agent_at(request.target))

    def _run_inline(self, request: SkillRequest) -> Result:
        skill = request.skill
        context = None
        if skill.wants_context:
            caller = self._caller_context(request)
            context = Context(
                principal=str(request.principal),
                sender=str(request.requester),
                skill=skill.name,
                agent=caller.agent,
                taints=caller.taints,
                limits=caller.limits,
                trace=caller.trace,
            )
        began = perf_counter()
        try:
            if skill.capabilities:
                agent = self._caller_context(request).agent
                self._capabilities.check(skill, str(request.principal), agent=agent)
            made = call_inline(skill, request.arguments, context)
        except (InvalidParam, SkillFailed, CapabilityMissing) as error:
            failure = error_of(skill, error)
            self._remember(request.key, failure)  # an error is an outcome, too (RPL-013)
            if request.asker == "caller":
                seconds = perf_counter() - began
                self._notes.ran(request.principal, skill.name, "failed", seconds)
            raise copy_error(failure) from error
        if request.on_result is not None and made.taints is not None:
            request.on_result(skill.taint_of(made))
        result = result_of(skill, made)
        self._remember(request.key, result)
        if request.asker == "caller":
            self._notes.ran(request.principal, skill.name, "done", made.duration)
        return result

    async def _run_durably(self, request: SkillRequest) -> ExecutionAnswer:
        call = Call(
            principal=request.principal,
            requester=request.requester,
            target=request.target,
            skill=request.skill,
            arguments=request.arguments,
            request=request.call,
            key=request.key,
            origin=request.origin,
            lang=request.lang,
            caller_context=self._caller_context(request),
            confirmation=request.confirmation,
            undecided=request.undecided,
            on_result=request.on_result,
        )
        running = self._tasks.execute(call)
        answer = await (self._noted(call, running) if request.asker == "caller" else running)
        if isinstance(answer, Accepted):
            self._accepted(answer.task)
        return answer

    async def _noted(self, call: Call, running: Awaitable[ExecutionAnswer]) -> ExecutionAnswer:
        """Wait for durable work, and record its outcome."""
        began = perf_counter()
        outcome, task, detail = "failed", "", ""
        try:
            answer = await running
            if isinstance(answer, Accepted):
                outcome, task = "accepted", answer.task
            elif not answer.is_error:
                outcome = "done"
        except StanzaError as error:
            detail = error.application[0].xml.local if error.application else error.condition
            raise
        finally:
            seconds = perf_counter() - began
            self._notes.went_on(call.principal, call.skill.name, outcome, seconds, task, detail)
        return answer
