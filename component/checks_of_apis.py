"""The checks of `xmpp-agent doctor` about HTTP APIs: their servers can be reached."""

from collections.abc import AsyncIterator

from component.kernel.check import Check
from component.kernel.server_check import check_url
from component.settings import Settings


async def check_apis(settings: Settings) -> AsyncIterator[Check]:
    """Check the server of each API in the settings."""
    for name, entry in settings.rest.items():
        yield await check_url(f"rest {name}", entry.url.partition("{")[0])
    for name, api in settings.openapi.items():
        for url in dict.fromkeys(filter(None, (api.url, api.server))):
            yield await check_url(f"openapi {name}", url)
