"""Agents elsewhere: their skills here, and calls of them."""

from typing import ClassVar

from component.features.feature import Feature, Opened
from component.features.peers.calls import PeerCalls
from component.features.peers.catalogue import PeerSkills
from component.kernel.kernel import Kernel
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION


class PeersFeature(Feature):
    """The peers of the settings."""

    reloads: ClassVar = ("peer",)

    def open(self, kernel: Kernel) -> Opened:
        """Make what sends and follows calls, and a source of skills for each peer."""
        calls = PeerCalls(kernel)
        sources = tuple(
            PeerSkills(peer, kernel, calls) for peer in self.settings.peer if peer.skills
        )
        return Opened(
            handlers=(calls,),
            sources=sources,
            loops=(calls.run,),
            spent=calls.spent,
            disco_features=lambda: (DELEGATION,),
            connected=calls.connected,
            disconnected=calls.disconnected,
            task_changed=lambda notice: calls.task_ended() if notice.final else None,
        )


FEATURE = PeersFeature
