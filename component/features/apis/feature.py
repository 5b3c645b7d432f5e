"""Skills that are HTTP requests of the settings, or operations of an API in OpenAPI."""

from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

from component.features.apis.settings import OPENAPI, REST
from component.features.apis.sources import OpenApiSource, RestSource
from component.features.feature import Feature, Opened
from component.kernel.check import Check, check_url
from component.kernel.kernel import Kernel


class ApisFeature(Feature):
    """The APIs of the settings."""

    reloads: ClassVar = ("rest", "openapi")

    def open(self, kernel: Kernel) -> Opened:
        """Make the sources of the skills."""
        requests, apis = self.settings[REST], self.settings[OPENAPI].items()
        return Opened(
            sources=(
                *((RestSource(requests),) if requests else ()),
                *(OpenApiSource(name, one) for name, one in apis if not one.url),
            ),
            remote_sources=[OpenApiSource(name, one) for name, one in apis if one.url],
        )

    async def availability(self) -> AsyncIterator[Check]:
        """Check whether the servers can be reached."""
        for name, url in self._servers():
            yield await check_url(name, url)

    def _servers(self) -> Iterator[tuple[str, str]]:
        for name, entry in self.settings[REST].items():
            yield f"rest {name}", entry.url.partition("{")[0]
        for name, api in self.settings[OPENAPI].items():
            for url in dict.fromkeys(filter(None, (api.url, api.server))):
                yield f"openapi {name}", url


FEATURE = ApisFeature
