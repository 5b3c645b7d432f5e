"""Work that is started without a request: the starter, and the results of what it has started.

It owns the starter, which schedules, watches and webhooks use, and tells people the results.
"""

from typing import TYPE_CHECKING

import structlog

from component.proactive.goals import goal_skill
from component.proactive.results import Results
from component.proactive.task_starter import TaskStarter
from component.service.environment import Environment
from component.service.notifications import NotificationSubsystem
from component.service.options import make_flows
from component.service.stream import StreamSubsystem
from component.service.tasks import TaskSubsystem
from component.skills import View
from xep.jid import JID

if TYPE_CHECKING:
    from component.service.agents import AgentSubsystem

_log = structlog.get_logger("component.service")


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
        notifications: notifies people of results.

    Attributes:
        starter: starts work.
        results: passes results to the notifier.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        tasks: TaskSubsystem,
        agents: "AgentSubsystem | None",
        notifications: NotificationSubsystem,
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
        self.results = Results(
            environment.storage,
            tasks.service,
            notifications.notifier,
            address_of,
            stream.messenger.ready,
            None if agents is None else agents.conversations,
        )
        self.starter.recorded = self.results.wake

    def task_ended(self, _task: str) -> None:
        """A task that a trigger started may have ended. Never waits."""
        self.results.wake()
