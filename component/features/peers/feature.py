"""Agents elsewhere: their skills here, and calls of them."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.calls import PeerCalls
from component.features.peers.catalogue import PeerSkills
from component.features.peers.commands import GrantCommands
from component.features.peers.grants import PeerGrants, agents_of
from component.features.peers.handlers import GrantHandler
from component.features.peers.node import KeysNode
from component.features.peers.receipts import Receipts
from component.features.peers.verification import GrantVerifier
from component.kernel.environment import Catalog
from component.kernel.kernel import Kernel
from component.skills import Skill
from component.store import Storage
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION


class PeersFeature(Feature):
    """The peers of the settings."""

    reloads: ClassVar = ("peer",)

    _catalog: Catalog | None = None

    def _opened(self) -> Catalog:
        assert self._catalog is not None, "skills are called while the service runs"
        return self._catalog

    def skills(self) -> Iterator[Skill]:
        """Yield the skill that calls several peers, if any can be called."""
        if any(peer.skills for peer in self.settings.peer):
            from component.features.peers.skills import peers_ask_skill  # noqa: PLC0415

            yield peers_ask_skill(self._opened)

    def open(self, kernel: Kernel) -> Opened:
        """Make what sends and follows calls, and a source of skills for each peer."""
        self._catalog = kernel.environment.catalog
        keys, agents = AgentKeys(kernel), agents_of(self.settings)
        grants = PeerGrants(kernel, keys, self.settings.peer)
        receipts = Receipts(kernel, keys, agents)
        kernel.tasks.gate.check_grants = GrantVerifier(kernel, keys, self.settings.peer).check
        kernel.tasks.service.sign_receipts(receipts.make)
        calls = PeerCalls(kernel, grants, receipts)
        sources = tuple(
            PeerSkills(peer, kernel, calls) for peer in self.settings.peer if peer.skills
        )
        return Opened(
            handlers=(calls, GrantHandler(grants)),
            nodes=(KeysNode(kernel.storage, agents),),
            commands=GrantCommands(kernel.storage, agents).commands(),
            sources=sources,
            loops=(calls.run, receipts.run),
            spent=calls.spent,
            warnings=calls.reach.warnings,
            disco_features=lambda: (DELEGATION,),
            connected=calls.connected,
            disconnected=calls.disconnected,
            task_changed=lambda notice: calls.task_ended() if notice.final else None,
        )

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about grants."""
        return GrantCommands(storage, agents_of(self.settings)).commands()


FEATURE = PeersFeature
