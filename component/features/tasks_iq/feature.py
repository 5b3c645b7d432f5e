"""Skills and tasks over IQs of urn:fluux:agent:0, and their PubSub nodes."""

from component.features.feature import Feature, Opened
from component.features.tasks_iq.handlers import ExecuteHandler, SkillsHandler, TasksHandler
from component.features.tasks_iq.node import SkillsNode, TasksNode
from component.kernel.kernel import Kernel


class TasksIQFeature(Feature):
    """Serves agents and programs that run skills and follow their tasks."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handlers and the nodes."""
        tasks, view = kernel.tasks, kernel.environment.catalog.view
        node = TasksNode(tasks.service, kernel.pubsub)
        return Opened(
            handlers=(
                SkillsHandler(view, room=tasks.limits.page_room),
                ExecuteHandler(tasks.service),
                TasksHandler(tasks.service),
            ),
            nodes=(SkillsNode(view), node),
            task_changed=node.changed,
            task_deleted=node.deleted,
        )


FEATURE = TasksIQFeature
