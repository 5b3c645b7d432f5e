"""The memories of people on PubSub nodes, synchronised with the files."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from component import DEFAULT_AGENT
from component.features.feature import Feature, FeatureError, Opened
from component.features.memory_nodes.account_nodes import AccountMemories
from component.features.memory_nodes.agent_nodes import AgentNodes
from component.features.memory_nodes.commands import MemoryHomeCommands
from component.features.memory_nodes.items import Cipher, KeyRefusedError
from component.features.memory_nodes.store import MemoryNodes, PepStore
from component.kernel.kernel import Kernel
from component.memory.reconciler import SyncOptions
from component.memory.replica import Replica
from component.memory_directory.layout import SessionKey
from xep.fluux_agent.memory import NAMESPACE

_TIMEOUT_S: Final = 1.0
_OWN_TIMEOUT_S: Final = 10.0


class MemoryNodesFeature(Feature):
    """Synchronises the memories of people with their nodes."""

    def open(self, kernel: Kernel) -> Opened:
        """Create the nodes, and synchronise them with the files.

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
        accounts = AccountMemories(kernel.environment, kernel.stream)
        replica = self._replica(kernel, accounts.nodes, is_own=False)
        accounts.listen(replica.available)
        accounts.privileges.listen(replica.connected)
        return Opened(
            handlers=(accounts.privileges,),
            commands=MemoryHomeCommands(accounts, DEFAULT_AGENT).commands()
            if accounts.is_consent_possible
            else (),
            loops=(replica.run,),
            connected=replica.connected,
            disconnected=accounts.disconnected,
            pubsub_listener=accounts.nodes,
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
        return memories.knowledge.replicate(
            PepStore(nodes, kernel.stream.addresses.address_of, cipher),
            SyncOptions(
                notify=partial(_notify, kernel),
                edits_of_files=settings.store == "both",
                timeout_s=_OWN_TIMEOUT_S if is_own else _TIMEOUT_S,
                # What other instances publish is not announced here.
                fresh_s=0.0 if shares_database else math.inf,
                reconcile_s=settings.reconcile_s,
            ),
        )


def _features() -> Sequence[str]:
    return (NAMESPACE,)


def _notify(kernel: Kernel, whose: SessionKey, sentence: str) -> None:
    kernel.contacts.tell(kernel.contacts.address_of(whose.agent, whose.who), whose.who, sentence)


FEATURE = MemoryNodesFeature
