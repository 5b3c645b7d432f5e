"""What the service offers, and to whom, as the settings say.

It is made before anything is opened, so a mistake in the settings ends the process before it
connects.
"""

from collections.abc import Callable, Iterable

from component.config import Settings
from component.kernel.options import make_policy, make_registry
from component.kernel.profiles import contact_profiles
from component.memory.knowledge import Knowledge
from component.policy.entries import read_admins
from component.skills import Skill, View
from xep.jid import JID


class Catalog:
    """The skills, who may use them, and what clients show of each agent.

    Args:
        knowledge: gives the memories to the skills that use them; called only while these run.

    Attributes:
        admins: the bare JIDs of the admins.
        view: gives the skills that a principal sees and may execute.
        profiles: the contact profile of each agent by localpart, and that of the domain by None.

    Raises:
        PolicyError, SkillLoadError, DuplicateSkillError, AvatarError: the settings cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        of_features: Iterable[Skill],
        knowledge: Callable[[], Knowledge],
    ) -> None:
        self.settings = settings
        self.policy = make_policy(settings)
        self.admins = read_admins(settings.agent.admins)
        self.registry = make_registry(settings, of_features, knowledge)
        self.view: Callable[[JID], View] = self.registry.viewer(
            self.policy.view_key, self.policy.may_use
        )
        self.profiles = contact_profiles(settings)

    def may_use(self, principal: JID, skill: Skill) -> bool:
        """Return whether a principal is admitted and may execute a skill now: this one, or the
        version that its source offers meanwhile.
        """
        found = self.view(principal).get(skill.name)
        return self.policy.admits(principal) and found is not None
