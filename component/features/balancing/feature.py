"""Keeps all connections open among which ejabberd balances the stanzas, and passes answers on."""

from component.features.balancing.connections import Connections
from component.features.balancing.instances import new_instance
from component.features.balancing.passing import StanzaPassing
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel


class BalancingFeature(Feature):
    """Shares the connections of one domain among all instances."""

    def open(self, kernel: Kernel) -> Opened:
        """Decide when the first connection is opened, and look at each stanza first."""
        stream, server = kernel.stream, self.settings.server
        instances = new_instance()
        passing = StanzaPassing(kernel.storage, instances, server.address, stream.hand_over)
        connections = Connections(
            kernel.storage, instances, server.component_number, stream.receiving_connection
        )
        stream.tag = instances.tag
        stream.may_connect = connections.wait
        stream.screen = passing.screen
        stream.has_others = lambda: bool(instances.others)
        return Opened(
            loops=(passing.send, passing.receive, connections.run),
            gauges=connections.gauges,
            closing=connections.leave,
        )


FEATURE = BalancingFeature
