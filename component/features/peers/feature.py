"""Agents elsewhere: their skills here, and calls of them."""

from collections.abc import Sequence
from typing import ClassVar

from anyio.lowlevel import checkpoint

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.calls import PeerCalls
from component.features.peers.catalogue import PeerSkills
from component.features.peers.checks import check_offers
from component.features.peers.commands import GrantCommands
from component.features.peers.grants import PeerGrants, agents_of
from component.features.peers.handlers import GrantHandler
from component.features.peers.node import KeysNode
from component.features.peers.peer_list import PeerCommands
from component.features.peers.receipts import Receipts
from component.features.peers.shares import Shares
from component.features.peers.verification import GrantVerifier
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.skills import Registry
from component.store import Storage
from component.tasks.protocol import Notice
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION


class PeersFeature(Feature):
    """The peers of the settings."""

    reloads: ClassVar = ("peer",)

    def open(self, kernel: Kernel) -> Opened:
        """Make what sends and follows calls, and a source of skills for each peer."""
        keys, agents = AgentKeys(kernel), agents_of(self.settings)
        grants = PeerGrants(kernel, keys, self.settings.peer)
        shares = Shares(kernel)
        receipts = Receipts(kernel, keys, agents, shares)
        verifier = GrantVerifier(kernel, keys, shares, self.settings.peer)
        kernel.tasks.gate.check_grants = verifier.check
        kernel.tasks.service.sign_receipts(receipts.make)
        calls = PeerCalls(kernel, grants, receipts)
        sources = tuple(
            PeerSkills(peer, kernel, calls) for peer in self.settings.peer if peer.skills
        )

        peers, names = self.settings.peer, kernel.environment.catalog.registry.names

        def task_changed(notice: Notice) -> None:
            if notice.final:
                calls.task_ended()
                shares.wake()

        return Opened(
            handlers=(calls, GrantHandler(grants)),
            nodes=(KeysNode(kernel.storage, agents),),
            commands=(
                *GrantCommands(kernel.storage, agents, calls.task_ended).commands(),
                *PeerCommands(kernel.storage, peers, calls.reach, names).commands(),
            ),
            shared_changes={"peer grants": calls.grants_changed},
            sources=sources,
            loops=(calls.run, receipts.run, shares.run),
            spent=calls.spent,
            warnings=calls.reach.warnings,
            disco_features=lambda: (DELEGATION,),
            connected=calls.connected,
            disconnected=calls.disconnected,
            task_changed=task_changed,
        )

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Return the check of what peers are offered."""
        await checkpoint()
        return tuple(check_offers(self.settings.peer, registry))

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the commands about grants and peers."""
        return (
            *GrantCommands(storage, agents_of(self.settings)).commands(),
            *PeerCommands(storage, self.settings.peer).commands(),
        )


FEATURE = PeersFeature
