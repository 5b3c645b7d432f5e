"""Objects: typed JSON items of people, rooms and scopes."""

from collections.abc import Collection, Iterable
from typing import ClassVar

from component.features.feature import Feature, Opened
from component.features.objects.commands import ObjectCommands
from component.features.objects.node import ObjectNodes
from component.features.objects.objects import Objects
from component.features.objects.places import Places
from component.features.objects.settings import ENTRIES, LIMITS
from component.features.objects.skills import object_skills
from component.features.objects.snapshots import ObjectReader
from component.kernel.kernel import Kernel
from component.skills import Skill
from xep.jid import JID


class ObjectsFeature(Feature):
    """Objects, and their nodes."""

    reloads: ClassVar = ("objects", "object_type")

    _objects: Objects
    """Made by `open`: skills are called only while the service runs."""

    def skills(self) -> Iterable[Skill]:
        """Return the skills that store and find objects."""
        return object_skills(lambda: self._objects)

    def open(self, kernel: Kernel) -> Opened:
        """Make the objects, and their nodes."""
        limits, catalog = self.settings[LIMITS], kernel.environment.catalog
        addresses, rooms = kernel.stream.addresses, kernel.rooms

        def accounts_in(agent: str, room: JID) -> Collection[str]:
            membership = rooms.get(addresses.address_of(agent), room)
            if membership is None or not membership.is_in:
                return ()
            return {each.jid for each in membership.view.occupants.values()}

        agents = self.settings.agent_names
        places = Places(kernel.environment.memories.sharing, accounts_in)
        reader = ObjectReader(kernel.storage, limits.cache_bytes)
        nodes = ObjectNodes(kernel.pubsub, reader, places, agents, addresses)
        schemas = {each.name: each.json_schema for each in self.settings[ENTRIES]}
        self._objects = Objects(kernel.storage, nodes, limits, schemas, catalog.is_peer)
        return Opened(
            node_families=(nodes,),
            commands=ObjectCommands(self._objects, agents).commands(),
            forget=self._objects.forget,
        )


FEATURE = ObjectsFeature
