"""Work that is started without a request: the starter, and the results of what it has started.

It owns the starter, which schedules, watches and webhooks use, and tells people the results.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from component.kernel.environment import Environment
from component.kernel.options import make_flows
from component.kernel.stream import StreamSubsystem
from component.kernel.tasks import TaskSubsystem
from component.memory.lines import SessionKey
from component.policy.taint import Taint
from component.proactive.goals import goal_skill
from component.proactive.results import Results
from component.proactive.task_starter import TaskStarter
from component.proactive.work import Trigger, Work
from component.skills import View
from component.storage.notifications import Notification
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem

_log = structlog.get_logger("component.app")


class _Rights:
    """Who may do what, as `component.proactive.task_starter.Rights`."""

    def __init__(self, environment: Environment, tasks: TaskSubsystem) -> None:
        self._policy = environment.catalog.policy
        self._view = environment.catalog.view
        self._gate = tasks.pause_gate

    def admits(self, principal: JID) -> bool:
        """Return whether a principal is admitted."""
        return self._policy.admits(principal)

    def let_in(self, principal: JID) -> None:
        """Raise StanzaError if new work is rejected now."""
        self._gate.check(principal)

    def view(self, principal: JID) -> View:
        """Return the skills that a principal may use."""
        return self._view(principal)


class WorkSubsystem:
    """Starts work for triggers.

    Args:
        environment: the database, and who may do what.
        stream: waits until results can be sent, and knows our addresses.
        tasks: runs the work.
        agents: run goals; None if no model is configured.

    Attributes:
        starter: starts work.
        results: passes results to those who notify people.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        tasks: TaskSubsystem,
        agents: "AgentSubsystem | None",
    ) -> None:
        address_of = stream.addresses.address_of
        goal = None
        if agents is not None:
            conversations = agents.conversations
            goal = goal_skill(lambda: conversations, address_of)
            tasks.internal[goal.name] = goal
        self.starter = TaskStarter(
            environment.storage,
            _Rights(environment, tasks),
            tasks.executor,
            tasks.service,
            goal,
            make_flows(environment.settings),
            address_of,
        )
        self.starter.late_sources = tasks.late_sources
        self.results = Results(
            environment.storage,
            tasks.service,
            address_of,
            stream.messenger.ready,
            None if agents is None else agents.conversations,
        )
        self.starter.recorded = self.results.wake
        self._has_agents = agents is not None
        self._sessions = environment.memories.sessions
        self._agent_at = stream.addresses.agent_at
        self._find = environment.catalog.registry.get
        if agents is not None:
            tasks.service.noticed = self._noticed

    async def told(self, notification: Notification, work: Work, trigger: Trigger) -> None:
        """Add the result of a skill that a person is notified of to the conversation. That of a
        goal is there: it is the answer of a turn. Raises StorageError.
        """
        if work.skill is None or not self._has_agents:
            return
        skill = self._find(work.skill)
        author: Taint | None = "web" if skill is None else skill.taint
        found = {author, trigger.taint if work.filled else None, *work.taints}
        about = f"A {trigger.source} has run the skill {work.skill}."
        await self._add_told(notification, about, [one for one in found if one is not None])

    async def _noticed(self, notice: Notification) -> None:
        """Add what a person was told about a task that was set aside."""
        await self._add_told(notice, "A task was set aside because the service crashed.", ())

    async def _add_told(
        self, notification: Notification, about: str, taints: Sequence[Taint]
    ) -> None:
        from component.agent.told import add_told  # noqa: PLC0415 - only where there is a model

        await add_told(
            self._sessions,
            SessionKey(self._agent_at(notification.agent), notification.person),
            notification.id,
            about=about,
            text=notification.text,
            taints=taints,
        )

    def task_ended(self, _task: str) -> None:
        """A task that a trigger started may have ended. Never waits."""
        self.results.wake()
