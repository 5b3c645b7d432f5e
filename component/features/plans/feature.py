"""Plans."""

from collections.abc import Iterable

from component.features.feature import Feature, Opened
from component.features.plans.commands import PlanCommands
from component.features.plans.service import Plans
from component.features.plans.skills import internal_skills, plan_skills
from component.kernel.kernel import Kernel
from component.plans.run import PlanPorts
from component.skills import Skill
from xep.fluux_agent.plan import NAMESPACE


class PlansFeature(Feature):
    """Plans of people and agents."""

    _plans: Plans
    """Made by `open`: skills are called only while the service runs."""

    def skills(self) -> Iterable[Skill]:
        """Return the skills that start and change plans."""
        return plan_skills(lambda: self._plans)

    def open(self, kernel: Kernel) -> Opened:
        """Make what runs plans."""
        self._plans = Plans(kernel)

        def notified() -> None:
            for call in kernel.on_notification:
                call()

        for skill in internal_skills(PlanPorts(kernel.storage, notified)):
            kernel.tasks.internal[skill.name] = skill
        commands = PlanCommands(self._plans, has_model=self.settings.llm is not None)
        return Opened(commands=commands.commands(), disco_features=lambda: (NAMESPACE,))


FEATURE = PlansFeature
