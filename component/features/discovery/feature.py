"""Service discovery, profiles, and what every entity answers."""

from component import VERSION
from component.features.discovery import handlers
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel
from component.kernel.options import SOFTWARE, page_bytes


class DiscoveryFeature(Feature):
    """Answers service discovery, and requests for profiles."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handlers and the nodes."""
        catalog = kernel.environment.catalog
        return Opened(
            handlers=(
                handlers.CommonQueries(SOFTWARE, VERSION),
                handlers.Discovery(
                    kernel.disco,
                    catalog.view,
                    kernel.pubsub if kernel.disco.has_pubsub else None,
                    page_bytes(self.settings),
                ),
                handlers.ContactProfiles(catalog.profiles),
            ),
            nodes=handlers.profile_nodes(catalog.profiles),
        )


FEATURE = DiscoveryFeature
