"""What the service offers, and to whom, as the settings say.

It is made before anything is opened, so a mistake in the settings ends the process before it
connects.
"""

from collections.abc import Callable, Sequence

from component.memory.knowledge import Knowledge
from component.policy.admins import read_admins
from component.proactive.schedules import Schedules, Wish
from component.proactive.watch_skills import WatchSkillPorts
from component.service.configured_work import schedule_wishes, skill_schedules
from component.service.options import load_skills, make_policy
from component.service.profiles import contact_profiles
from component.settings import Settings
from component.skills import Skill, View
from xep.jid import JID


class Catalog:
    """The skills, who may use them, and what clients show of each agent.

    Args:
        settings: the settings.
        knowledge: gives the memories to the skills that use them; called only while these run.
        schedules: gives the schedules in the same way.
        watches: gives what the skills about watches use.

    Attributes:
        admins: the bare JIDs of the admins.
        policy: who may do what.
        registry: the skills.
        view: gives the skills that a principal sees and may execute.
        profiles: the contact profile of each agent by localpart, and that of the domain by None.
        schedules: the schedules of the settings.
        skill_schedules: the schedules of skills that the settings enable.

    Raises:
        PolicyError, SkillLoadError, DuplicateSkillError, AvatarError, ScheduleError: the settings
            cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        knowledge: Callable[[], Knowledge],
        schedules: Callable[[], Schedules],
        watches: Callable[[], WatchSkillPorts],
    ) -> None:
        self.settings = settings
        self.policy = make_policy(settings)
        self.admins = read_admins(settings.agent.admins)
        self.registry = load_skills(settings, knowledge, schedules, watches)
        self.view: Callable[[JID], View] = self.registry.viewer(
            self.policy.view_key, self.policy.may_use
        )
        self.profiles = contact_profiles(settings)
        self.schedules: Sequence[Wish] = schedule_wishes(settings)
        self.skill_schedules: Sequence[Wish] = skill_schedules(settings, self.registry)

    def may_use(self, principal: JID, skill: Skill) -> bool:
        """Return whether a principal is admitted and may execute a skill now: this one, or the
        version that its source offers meanwhile.
        """
        found = self.view(principal).get(skill.name)
        return self.policy.admits(principal) and found is not None
