"""Commands about tasks: one's own, and for admins everybody's."""

from collections.abc import Sequence

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.task_commands.commands import Readers, TaskCommands
from component.kernel.kernel import Kernel
from component.kernel.options import task_limits
from component.store import Storage
from component.tasks.admin import TaskAdmin


class TaskCommandsFeature(Feature):
    """Shows tasks to people and admins, and cancels, retries and releases them."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        tasks = kernel.tasks

        def title(name: str) -> str:
            skill = tasks.find_skill(name)
            return name if skill is None else skill.title

        readers = Readers(title, kernel.zones.of_caller)
        commands = TaskCommands(tasks.task_admin, tasks.service, tasks.limits.kept, readers)
        return Opened(commands=commands.commands())

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the commands about everybody's tasks."""
        admin = TaskAdmin(storage, task_limits(self.settings))
        return TaskCommands(admin).commands()


FEATURE = TaskCommandsFeature
