"""Requests to run skills: their admission, their execution, and the tasks that they become.

It owns the task service, the executor, the messages about tasks and the switch that pauses new
work. Other subsystems run skills through `service`, answer questions through `service`, and ask
`pause_gate` before they accept new work.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import structlog

from component import system
from component.audit.protocol import AuditEvent
from component.budget.protocol import Amount
from component.config import Settings
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import make_flows, task_limits
from component.kernel.pause_gate import PauseGate
from component.kernel.stream import StreamSubsystem
from component.link.router.calls import NoAnswerError
from component.policy.flows import covers
from component.policy.taint import Taint
from component.skills import Context, Skill
from component.skills.calling import Threads
from component.skills.errors import CapabilityMissing
from component.skills.operations import ModelQuestion
from component.skills.outputs import File, Link
from component.store.shared import PAUSED, Switches
from component.task_messages.confirmation_wording import standing_wording
from component.task_messages.events import TaskNews
from component.task_messages.questions import Questions
from component.tasks.admin import TaskAdmin
from component.tasks.gate import Approvers, Gate, SkillAccess, no_model
from component.tasks.protocol import CannotShare, Share
from component.tasks.request import Request
from component.tasks.service import Clocks, TaskService
from component.tasks.several_calls import SEVERAL_CALLS
from component.tasks.standing import StandingApprovals
from xep.binding import Payload
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem
    from component.uploads import Uploads

T = TypeVar("T")
P = TypeVar("P", bound=Payload)

_log = structlog.get_logger("component.app")

_TRIES: Final = 3
_NO_STREAM_S: Final = 60.0
"""Seconds for which a file that is to be uploaded waits for the stream."""
_STREAM_TIMEOUT_S: Final = 2.0
"""Seconds for which tasks of a previous run wait for the stream: the handshake is faster then."""


class TaskSubsystem:
    """Runs skills for those who may use them, as tasks where necessary.

    Args:
        provide: gives the contexts of calls the functions of the service.
        agents: returns the agents, where there is a model; they are made later.

    Attributes:
        approvers: who has to confirm what.
        standing: the standing approvals of people.
        questions: puts the questions of tasks into words.
        news: sends messages about tasks.
        gate: decides who may use which skill.
        service: runs skills, and has the tasks.
        task_admin: the tasks of all principals, for admins.
        pause_gate: whether new work is accepted.
        switches: what admins have switched on; in the database.
        internal: skills that only the service itself starts, and that nobody sees, by name.
        late: return the names of sources of skills that are not ready.
        held: return the names of sources whose descriptions wait for an approval.
        spent: return what the work of a task has cost so far, each of one kind.
        places: keep files that the server's upload service does not take; features add theirs.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        provide: Callable[[Skill, Context], None],
        agents: "Callable[[], AgentSubsystem | None]",
    ) -> None:
        settings, catalog = environment.settings, environment.catalog
        monitoring = environment.monitoring
        self._catalog = catalog
        self._stream = stream
        self._uploads: Uploads | None = None
        self.places: list[Share] = []
        self._agents = agents
        self.internal: dict[str, Skill] = {SEVERAL_CALLS.name: SEVERAL_CALLS}
        self._retry_after_s = settings.limits.retry_after_s
        self.limits = task_limits(settings)
        self.late: list[Callable[[], Sequence[str]]] = []
        self.held: list[Callable[[], Sequence[str]]] = []
        self.spent: list[Callable[[str], Awaitable[Amount]]] = []
        self.questions = Questions(self.find_skill, contacts.time_zones.of)
        self.news = TaskNews(
            stream.messenger,
            stream.is_connected,
            contacts.may_write,
            self.questions,
            since=system.now(),
            taint_of=None if settings.llm is None else self.taint_of,
        )
        self._recorder = monitoring.recorder
        policy = settings.policy
        self.approvers = Approvers(catalog.asking, contacts.persons, policy.confirm_expires_s)
        self.standing = StandingApprovals(
            self.find_skill,
            catalog.asking,
            standing_wording,
            policy.standing_days,
            policy.standing_uses,
        )
        self.gate = Gate(
            catalog.view,
            make_flows(settings),
            monitoring.recorder,
            lambda: catalog.rights.policy,
            catalog.delegated,
        )
        self.pause_gate = PauseGate(
            catalog.admins, self._retry_after_s, monitoring.full, monitoring.refused
        )
        limits = settings.limits
        self.service = TaskService(
            environment.storage,
            SkillAccess(
                find=self.find_skill,
                internal=self.internal.get,
                gate=self.gate,
                may_use=self._may_use,
                approvers=self.approvers,
                threads=Threads(limits.threads_total, limits.threads_per_principal),
                names=lambda: (*catalog.registry.names(), *self.internal),
                late=self.unready_sources,
                let_in=self.pause_gate.check,
                agent_at=stream.addresses.agent_at,
                check=self._check_capabilities,
                provide=provide,
                share=self.share,
                ask_model=self._ask_model,
                spent=self.spent_by,
                most_running=self._most_running,
                most_open=self._most_open,
            ),
            self.limits,
            self.news,
            records=monitoring.tasks,
            clocks=Clocks(boot_s=system.current().since_boot, stream_timeout_s=_STREAM_TIMEOUT_S),
            standing=self.standing,
        )
        self.task_admin = TaskAdmin(
            environment.storage, self.limits, self.service.cancel, self._requeued
        )
        self.switches = Switches(environment.storage)

    def replace(self, settings: Settings) -> None:
        """Apply these settings from now on. Questions that are open stay as they are."""
        self.gate.flows = make_flows(settings)
        self.approvers.replace(settings.policy.confirm_expires_s)
        self.standing.replace(settings.policy.standing_days, settings.policy.standing_uses)
        self.service.policy_changed()
        self._uploads = None

    def late_sources(self) -> Sequence[str]:
        """Return the names of sources of skills that are not ready."""
        return [name for names in self.late for name in names()]

    async def reload_switches(self, _names: Collection[str] | None) -> None:
        """Read the switches again, which another instance may have changed. Raises StorageError."""
        before = self.pause_gate.paused
        async with self.switches.one_at_a_time:
            self.pause_gate.paused = await self.switches.is_on(PAUSED)
        if self.pause_gate.paused and not before:
            _log.warning("the service is paused: `xmpp-agent resume` accepts new requests again")

    def find_skill(self, name: str) -> Skill | None:
        """Return a skill by its name: an internal one, or one that is offered to anybody."""
        return self.internal.get(name) or self._catalog.registry.get(name)

    def taint_of(self, name: str) -> Taint | None:
        """Return who may have written the results of a skill; anybody, if it is not known."""
        skill = self.find_skill(name)
        return "web" if skill is None else skill.taint

    def _may_use(self, principal: JID, skill: Skill) -> bool:
        if self.internal.get(skill.name) is skill:
            return self._catalog.admits(principal)
        return self._catalog.may_use(principal, skill)

    def _check_capabilities(self, request: Request, skill: Skill, task: str) -> None:
        """Check and record, before each call of a skill by any caller, that the access that it
        declares is approved. Raises CapabilityMissing.

        A skill that declares nothing accesses nothing, and one that nobody has to approve, such as
        those of the modules in the settings, has what it declares: neither is checked.
        """
        if not skill.capabilities or skill.granted is None:
            return
        missing = covers(skill.granted(), skill.capabilities)
        context = request.caller_context
        self._recorder.record(
            AuditEvent(
                kind="capability",
                outcome="allowed" if missing is None else "refused",
                principal=str(request.principal),
                agent=context.agent,
                trace=context.trace,
                task=task,
                subject=skill.name,
                detail=missing or ", ".join(skill.capabilities),
            )
        )
        if missing is not None:
            raise CapabilityMissing(skill.name, missing)

    async def _ask_model(self, request: Request, task: str, question: ModelQuestion) -> str:
        agents = self._agents()
        if agents is None:
            return await no_model(request, task, question)
        return await agents.ask_model(request, task, question)

    def _most_running(self, principal: str) -> int:
        found = self._catalog.rights.policy.concurrency(JID.parse(principal))
        return self.limits.running_per_principal if found is None else found

    def _most_open(self, principal: str) -> int:
        found = self._catalog.rights.policy.open_tasks(JID.parse(principal))
        return self.limits.tasks_per_principal if found is None else found

    async def spent_by(self, task: str) -> Amount:
        """Return what the work of a task has cost so far. Raises StorageError."""
        total = Amount()
        for spent in self.spent:
            total = total.plus(await spent(task))
        return total

    async def share(self, file: File, request: Request) -> Link:
        """Put a file for a request where others get it: on the server, or else here. Raises
        CannotShare.
        """
        try:
            return await self.uploads().share(file, request.share)
        except CannotShare as error:
            problem = str(error)
        for place in self.places:
            try:
                return await place(file, request)
            except CannotShare as error:
                problem = f"{error}; {problem}"
        raise CannotShare(problem)

    def uploads(self) -> "Uploads":
        """Return what uploads files to the server."""
        if self._uploads is None:
            # Imported with the first file: the service starts faster without.
            from component.uploads import uploads_of  # noqa: PLC0415

            self._uploads = uploads_of(self._catalog.settings, self._get)
        return self._uploads

    async def _get(self, to: JID, query: Payload, expected: type[P]) -> P:
        """Send an IQ as soon as there is a stream, and again if the stream was lost: a result that
        is ready just then must not fail for that. Raises StanzaError.
        """
        for _ in range(_TRIES):
            with anyio.move_on_after(_NO_STREAM_S):
                await self._stream.messenger.ready()
            try:
                return await self._stream.get(to, query, expected)
            except NoAnswerError:
                if self._stream.is_connected():
                    raise
        raise NoAnswerError("there is no connection to the server")

    def upload_problems(self) -> Sequence[str]:
        """Return why files cannot be uploaded, as far as it was tried, in sentences."""
        if self._uploads is None or self.places:
            return ()
        return self._uploads.problems

    def unready_sources(self) -> Sequence[str]:
        """Return the sources that are not ready, or whose descriptions wait for an approval."""
        return [*self.late_sources(), *(name for names in self.held for name in names())]

    def _requeued(self, task: str) -> None:
        self.news.released(task)  # no request of its own waits for an answer
        self.service.requeued()
