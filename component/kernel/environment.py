"""The base of all subsystems: the catalog, and the open files and databases.

The catalog is made before anything is opened, so a mistake in the settings ends the process before
it connects.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import msgspec

from component import system
from component.config import Settings
from component.kernel.memory import Memories, open_memories
from component.kernel.monitoring import Monitoring, open_monitoring
from component.kernel.options import addresses, make_policy, make_registry
from component.kernel.profiles import Profiles, contact_profiles
from component.memory.knowledge import Knowledge
from component.models.protocol import MakeModel
from component.policy import Policy
from component.policy.entries import read_admins
from component.policy.policy import ConfirmationRule, ViewKey
from component.skills import Skill, View
from component.store import Storage
from component.store.contacts import StoppedContacts
from component.store.directory import home_of
from component.store.schema import Schema
from xep.jid import JID


class Rights(msgspec.Struct, frozen=True):
    """Who may use the service, and what clients show of each agent, as the settings say.

    Attributes:
        admins: the bare JIDs of the admins.
        profiles: the contact profile of each agent by localpart, and that of the domain by None.
    """

    settings: Settings
    policy: Policy
    admins: frozenset[JID]
    profiles: Profiles


def read_rights(settings: Settings) -> Rights:
    """Return what the settings say. Raises PolicyError, AvatarError."""
    policy, admins = make_policy(settings), read_admins(settings.agent.admins)
    return Rights(settings, policy, admins, contact_profiles(settings))


class Catalog:
    """The skills, who may use them, and what clients show of each agent.

    The settings may be replaced while the service runs, so everybody asks this object, or keeps
    its collections, which then have other members.

    Args:
        of_features: the skills that each feature offers, by its name.
        knowledge: gives the memories to the skills that use them; called only while these run.

    Attributes:
        rights: what the settings say that apply now.
        rooms: the rooms whose occupants have the rights of the room. They are admitted.
        admins: the bare JIDs of the admins.
        view: gives the skills that a principal sees and may execute.
        profiles: the contact profile of each agent by localpart, and that of the domain by None.

    Raises:
        PolicyError, SkillLoadError, DuplicateSkillError, AvatarError: the settings cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        of_features: Mapping[str, Iterable[Skill]],
        knowledge: Callable[[], Knowledge],
    ) -> None:
        self.rights = read_rights(settings)
        self.rooms: frozenset[JID] = frozenset()
        self.admins = set(self.rights.admins)
        self.profiles = dict(self.rights.profiles)
        self.registry = make_registry(settings, of_features, knowledge)
        self.view: Callable[[JID], View] = self.registry.viewer(
            self._view_key, _may_use, _sees_catalogues
        )

    def replace(self, rights: Rights) -> None:
        """Apply other settings from now on. Never waits."""
        self.rights = rights
        self.admins.clear()
        self.admins.update(rights.admins)
        self.profiles.clear()
        self.profiles.update(rights.profiles)
        self.registry.changed()

    @property
    def settings(self) -> Settings:
        """The settings that apply now."""
        return self.rights.settings

    def admits(self, principal: JID) -> bool:
        """Return whether the policy admits a bare JID, or it is a room in which agents answer."""
        return self.rights.policy.admits(principal) or principal in self.rooms

    def is_peer(self, principal: JID) -> bool:
        """Return whether a bare JID is an address of a peer."""
        return self.rights.policy.is_peer(principal)

    def asking(self, skill: str) -> ConfirmationRule:
        """Return when a person is asked before a skill runs; see `Policy.asking`."""
        return self.rights.policy.asking(skill)

    def may_use(self, principal: JID, skill: Skill) -> bool:
        """Return whether a principal is admitted and may execute a skill now: this one, or the
        version that its source offers meanwhile.
        """
        found = self.view(principal).get(skill.name) or self.delegated(principal, skill.name)
        return self.admits(principal) and found is not None

    def delegated(self, principal: JID, skill: str) -> Skill | None:
        """Return a skill that work for a principal may use although the principal does not see it;
        None if it must not.
        """
        may = self.rights.policy.may_delegate(principal, skill)
        return self.registry.get(skill) if may else None

    def _view_key(self, principal: JID) -> tuple[Policy, ViewKey]:
        # With the policy, so that no view of an earlier one is used for a later one.
        policy = self.rights.policy
        if principal in self.rooms:
            return policy, policy.admitted_view_key(principal)
        return policy, policy.view_key(principal)


def _sees_catalogues(key: tuple[Policy, ViewKey]) -> bool:
    """Return whether requesters see skills of peers: a peer never sees those of another one."""
    _, view = key
    return view >= 0


def _may_use(key: tuple[Policy, ViewKey], skill: str) -> bool:
    policy, view = key
    return policy.may_use(view, skill)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that are created before the first subsystem, and closed after the last one.

    Attributes:
        home: names this data directory among those that share a database.
        stopped: the contacts who want no unrequested messages.
        make_model: makes a model from its settings; None for the clients of their providers.
    """

    catalog: Catalog
    storage: Storage
    home: str
    stopped: StoppedContacts
    monitoring: Monitoring
    memories: Memories
    make_model: MakeModel | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the service."""
        return self.catalog.settings


@asynccontextmanager
async def open_environment(
    catalog: Catalog, schema: Schema, make_model: MakeModel | None = None
) -> AsyncIterator[Environment]:
    """Open the database, the audit log and the memory, and close them in reverse order.

    Raises StorageError: the data directory, or that of the memory, cannot be used; TracesError:
    the extra for traces is missing.
    """
    settings = catalog.settings
    where = settings.storage
    async with Storage.open(
        schema, where.path, postgres=where.postgres.get_secret_value(), upgrade=True
    ) as storage:
        stopped = StoppedContacts(storage, addresses(settings).agent_address)
        await stopped.load()
        async with (
            open_monitoring(settings, storage) as monitoring,
            open_memories(settings, monitoring.recorder, catalog.admins) as memories,
        ):
            yield Environment(
                catalog=catalog,
                storage=storage,
                home=await system.in_thread(home_of, storage.directory),
                stopped=stopped,
                monitoring=monitoring,
                memories=memories,
                make_model=make_model,
            )
