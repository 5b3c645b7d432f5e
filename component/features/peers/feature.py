"""Agents elsewhere: their skills here, and calls of them."""

from collections.abc import Sequence
from typing import ClassVar, Self

from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.calls import PeerCalls
from component.features.peers.commands import GrantCommands
from component.features.peers.grants import PeerGrants, agents_of
from component.features.peers.handlers import GrantHandler
from component.features.peers.node import KeysNode
from component.features.peers.offers import PeerSkills
from component.features.peers.receipts import Receipts
from component.features.peers.verification import GrantVerifier
from component.kernel.kernel import Kernel
from component.store import Storage
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION


class PeersFeature(Feature):
    """The peers of the settings."""

    reloads: ClassVar = ("peer",)

    _skills: PeerSkills | None = None

    def reopen(self, kernel: Kernel, before: Self) -> Opened:
        """Do the same as `open`; what is known of peers that have not changed is used again."""
        return self._open(kernel, before._skills)

    def open(self, kernel: Kernel) -> Opened:
        """Make what sends and follows calls, and the source of their skills."""
        return self._open(kernel)

    def _open(self, kernel: Kernel, before: PeerSkills | None = None) -> Opened:
        keys, agents = AgentKeys(kernel), agents_of(self.settings)
        grants = PeerGrants(kernel, keys, self.settings.peer)
        receipts = Receipts(kernel, keys, agents)
        kernel.tasks.gate.check_grants = GrantVerifier(kernel, keys, self.settings.peer).check
        kernel.tasks.service.sign_receipts(receipts.make)
        calls = PeerCalls(kernel, grants, receipts)
        skills = self._skills = PeerSkills(kernel, self.settings.peer, calls, before)

        def connected() -> None:
            calls.connected()
            skills.connected()

        def disconnected() -> None:
            calls.disconnected()
            skills.disconnected()

        return Opened(
            handlers=(calls, GrantHandler(grants)),
            nodes=(KeysNode(kernel.storage, agents),),
            commands=GrantCommands(kernel.storage, agents).commands(),
            sources=(skills,),
            loops=(calls.run, receipts.run),
            spent=calls.spent,
            warnings=lambda: (*calls.reach.warnings(), *skills.warnings()),
            disco_features=lambda: (DELEGATION,),
            connected=connected,
            disconnected=disconnected,
            pubsub_listener=skills,
            task_changed=lambda notice: calls.task_ended() if notice.final else None,
        )

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the command about grants."""
        return GrantCommands(storage, agents_of(self.settings)).commands()


FEATURE = PeersFeature
