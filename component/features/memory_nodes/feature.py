"""The memories of people on PubSub nodes, synchronised with the files."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from component.features.feature import Feature, FeatureError, Opened
from component.features.memory_nodes.account_home import AccountHome
from component.features.memory_nodes.agent_nodes import AgentNodes
from component.features.memory_nodes.commands import MemoryHomeCommands
from component.features.memory_nodes.encryption import Cipher, KeyRefusedError
from component.features.memory_nodes.handlers import PrivilegeHandler
from component.features.memory_nodes.nodes import MemoryNodes
from component.features.memory_nodes.store import PepStore
from component.kernel.kernel import Kernel
from component.memory.file_store import PrivateFiles
from component.memory.replica import Replica, ReplicaOptions
from component.memory.store import Whose
from component.memory.sync_state import SyncStates
from component.settings.model import DEFAULT_AGENT
from xep.fluux_agent.memory import NAMESPACE

_PATIENCE_S: Final = 1.0
_OWN_PATIENCE_S: Final = 10.0


class MemoryNodesFeature(Feature):
    """Synchronises the memories of people with their nodes."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the nodes, and what synchronises them with the files.

        Raises FeatureError: the keys of the encryption cannot be used.
        """
        settings = self.settings
        if settings.memory.home == "agent" and settings.server.mode == "component":
            nodes = AgentNodes(
                kernel.pubsub,
                kernel.stream.addresses,
                settings.agent_names,
                settings.memory,
            )
            replica = self._replica(kernel, nodes, is_own=True)
            return Opened(
                loops=(replica.run,), connected=replica.connected, disco_features=_features
            )
        home = AccountHome(kernel.environment, kernel.stream)
        replica = self._replica(kernel, home.nodes, is_own=False)
        home.available = replica.available
        home.privileges.changed = replica.connected
        kernel.pubsub_events.listen(home.nodes)
        return Opened(
            handlers=(PrivilegeHandler(home.privileges),),
            commands=MemoryHomeCommands(home, DEFAULT_AGENT).commands()
            if home.is_consent_possible
            else (),
            loops=(replica.run,),
            connected=replica.connected,
            disconnected=home.disconnected,
            disco_features=_features,
        )

    def _replica(self, kernel: Kernel, nodes: MemoryNodes, *, is_own: bool) -> Replica:
        settings, memories = self.settings.memory, kernel.environment.memories
        keys = tuple(key.get_secret_value() for key in settings.encryption_keys)
        shares_database = bool(self.settings.storage.postgres.get_secret_value())
        try:
            cipher = Cipher(keys) if keys else None
        except KeyRefusedError as error:
            raise FeatureError(str(error)) from None
        replica = Replica(
            PrivateFiles(memories.knowledge.files, memories.sharing),
            PepStore(nodes, kernel.stream.addresses.address_of, cipher),
            SyncStates(memories.layout),
            ReplicaOptions(
                edits_of_files=settings.store == "both",
                patience_s=_OWN_PATIENCE_S if is_own else _PATIENCE_S,
                # What other instances publish is not announced here.
                fresh_s=0.0 if shares_database else math.inf,
                reconcile_s=settings.reconcile_s,
            ),
            kernel.environment.monitoring.recorder,
            partial(_tell, kernel),
        )
        memories.knowledge.mirror = replica
        return replica


def _features() -> Sequence[str]:
    return (NAMESPACE,)


def _tell(kernel: Kernel, whose: Whose, sentence: str) -> None:
    """Send a sentence about the memories of a person to that person."""
    kernel.contacts.tell(kernel.stream.addresses.address_of(whose.agent), whose.who, sentence)


FEATURE = MemoryNodesFeature
