"""Skills that are HTTP requests of the settings, or operations of an API in OpenAPI."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import ClassVar

from component.features.apis import TURNED_ON_BY
from component.features.apis.settings import OPENAPI, REST
from component.features.apis.sources import OpenApiSource, RestSource
from component.features.feature import Feature, Opened
from component.kernel.check import Check, check_url
from component.kernel.kernel import Kernel
from component.skills.sources import SkillSource


class ApisFeature(Feature):
    """The APIs of the settings."""

    reloads: ClassVar = TURNED_ON_BY

    def sources(self) -> Iterator[SkillSource]:
        """Yield those of the requests, and of the documents on this machine."""
        if requests := self.settings[REST]:
            yield RestSource(requests)
        for name, api in self.settings[OPENAPI].items():
            if not api.url:
                yield OpenApiSource(name, api)

    def remote_sources(self) -> Iterable[SkillSource]:
        """Return those of documents that have a URL."""
        apis = self.settings[OPENAPI].items()
        return [OpenApiSource(name, api) for name, api in apis if api.url]

    def open(self, kernel: Kernel) -> Opened:
        """Contribute nothing else."""
        return Opened()

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
