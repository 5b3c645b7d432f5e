"""Requests to run skills: their admission, their execution, and the tasks that they become.

It owns the task service, the executor, the messages about tasks and the switch that pauses new
work. Other subsystems run skills through `executor`, answer questions through `service`, and ask
`pause_gate` before they accept new work.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from component import system
from component.commands.pause_gate import PauseGate
from component.execution import Admission, SkillExecutor
from component.execution.derived import DerivedCalls
from component.execution.joint_confirmation import SEVERAL_CALLS
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.files import FileSubsystem
from component.kernel.options import make_flows, task_limits
from component.kernel.stream import StreamSubsystem
from component.skills import Context, Skill
from component.skills.granting import CapabilityCheck
from component.skills.threads import Threads
from component.storage.shared import PAUSED, Switches
from component.task_messages.events import TaskNews
from component.task_messages.questions import Questions
from component.tasks.admin import TaskAdmin
from component.tasks.approvers import Approvers
from component.tasks.protocol import Call, Confirmation, Notice, SkillAccess
from component.tasks.service import TaskService
from xep.jid import JID

_log = structlog.get_logger("component.app")

_PATIENCE_S: Final = 2.0
"""Seconds for which tasks of a previous run wait for the stream: the handshake is faster then."""


class TaskSubsystem:
    """Runs skills for those who may use them, as tasks where necessary.

    Args:
        environment: the skills, the database and the audit log.
        stream: sends messages about tasks.
        contacts: who may be asked to confirm, and who may be written to.
        provide: gives the contexts of calls the functions of the service.

    Attributes:
        limits: the limits of tasks.
        approvers: who has to confirm what.
        questions: puts the questions of tasks into words.
        news: sends messages about tasks.
        service: the tasks.
        task_admin: the tasks of all principals, for admins.
        pause_gate: whether new work is accepted.
        switches: what admins have switched on; in the database.
        executor: runs skills.
        internal: skills that only the service itself starts, and that nobody sees, by name.
        tool_ended: is called with the id of each task that has ended and was started by a call of
            a model or a trigger; the root connects it.
        task_changed: called with each revision of a task; the root connects it.
        late_sources: returns the names of sources of skills that are not ready; the root connects
            it.
        held_sources: returns the names of sources of which descriptions wait for an approval; the
            root connects it.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        provide: Callable[[Skill, Context], None],
    ) -> None:
        settings, catalog = environment.settings, environment.catalog
        monitoring = environment.monitoring
        self._catalog = catalog
        self.internal: dict[str, Skill] = {SEVERAL_CALLS.name: SEVERAL_CALLS}
        self._retry_after_s = settings.limits.retry_after_s
        self.limits = task_limits(settings)
        self.tool_ended: Callable[[str], None] = lambda _task: None
        self.task_changed: Callable[[Notice], None] = lambda _notice: None
        self.late_sources: Callable[[], Sequence[str]] = tuple
        self.held_sources: Callable[[], Sequence[str]] = tuple
        self.questions = Questions(self._find_skill, contacts.time_zones.of)
        self.news = TaskNews(
            stream.messenger,
            stream.is_connected,
            contacts.may_write,
            self.questions,
            since=system.now(),
            tool_ended=self._tool_ended,
            task_changed=self._task_changed,
        )
        self._capabilities = CapabilityCheck(monitoring.recorder)
        self.approvers = Approvers(
            catalog.policy.asking, contacts.persons, settings.policy.confirm_expires_s
        )
        self.service = TaskService(
            environment.storage,
            SkillAccess(
                find=self._find_skill,
                may_use=self._may_use,
                names=lambda: (*catalog.registry.names(), *self.internal),
                late=lambda: (*self.late_sources(), *self.held_sources()),
                approvers=self._find_approvers,
                check=self._check_capabilities,
                provide=provide,
                share=FileSubsystem(settings, stream).share,
                asker_of_child=DerivedCalls(make_flows(settings), monitoring.recorder).asker,
            ),
            Threads(settings.limits.threads_total, settings.limits.threads_per_principal),
            self.limits,
            self.news,
            patience_s=_PATIENCE_S,
            recorder=monitoring.recorder,
        )
        self.task_admin = TaskAdmin(
            environment.storage,
            self.limits.retention_ms,
            self.service.cancel,
            self._requeued,
            self.limits.queues,
        )
        self.switches = Switches(environment.storage)
        self.pause_gate = PauseGate(
            catalog.admins, self._retry_after_s, monitoring.full, monitoring.refused
        )
        self.executor = SkillExecutor(
            Admission(
                catalog.view,
                self.service,
                self.approvers,
                self.pause_gate.check,
                notes=monitoring.notes,
            ),
            self.service,
            self.news.released,
            agent_at=stream.addresses.agent_at,
            notes=monitoring.notes,
            capabilities=self._capabilities,
        )

    async def reload_switches(self, _names: Collection[str] | None) -> None:
        """Read the switches again, which another instance may have changed. Raises StorageError."""
        before, self.pause_gate.paused = self.pause_gate.paused, await self.switches.is_on(PAUSED)
        if self.pause_gate.paused and not before:
            _log.warning("the service is paused: `xmpp-agent resume` accepts new requests again")

    def _find_skill(self, name: str) -> Skill | None:
        return self.internal.get(name) or self._catalog.registry.get(name)

    def _may_use(self, principal: JID, skill: Skill) -> bool:
        if self.internal.get(skill.name) is skill:
            return self._catalog.policy.admits(principal)
        return self._catalog.may_use(principal, skill)

    def _check_capabilities(self, call: Call, task: str) -> None:
        context = call.caller_context
        self._capabilities.check(
            call.skill, str(call.principal), agent=context.agent, trace=context.trace, task=task
        )

    def _tool_ended(self, task: str) -> None:
        self.tool_ended(task)  # looked up at each call, because it is set after the agents are made

    def _task_changed(self, notice: Notice) -> None:
        self.task_changed(notice)  # looked up at each call, because the root sets it

    async def _find_approvers(self, call: Call) -> Confirmation | None:
        return await self.approvers.find(
            call.principal, call.requester, call.target, call.skill, call.caller_context.asker
        )

    def _requeued(self, task: str) -> None:
        self.news.released(task)  # no request of its own waits for an answer
        self.service.requeued()
