"""The checks of `xmpp-agent doctor` about built-in skills that use other servers: whether their
packages are installed and their servers can be reached.
"""

from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec

from component.config import Settings
from component.features.builtins.settings import (
    EMAIL_SEND,
    GITHUB,
    HTTP_WEBHOOK,
    URL_FETCH,
    WEB_SEARCH,
)
from component.kernel.check import Check, check_server, check_url


async def check_servers(settings: Settings) -> AsyncIterator[Check]:
    """Check each skill that the settings turn on."""
    url_fetch, email_send = settings[URL_FETCH], settings[EMAIL_SEND]
    if url_fetch is not None and url_fetch.enabled:
        yield _url_fetch()
    for name, url in _urls(settings):
        yield await check_url(name, url)
    if email_send is not None:
        host, port = email_send.address
        yield await check_server("email_send", host, port, f"{host} port {port}")


def _urls(settings: Settings) -> Iterator[tuple[str, str]]:
    if (web_search := settings[WEB_SEARCH]) is not None:
        yield "web_search", web_search.url
    if (github := settings[GITHUB]) is not None:
        yield "github", github.base_url
    for name, webhook in settings[HTTP_WEBHOOK].items():
        yield f"http_webhook {name}", webhook.url.get_secret_value()


def _url_fetch() -> Check:
    missing = [name for name in ("selectolax", "pypdf") if find_spec(name) is None]
    if missing:
        text = (
            f"{' and '.join(missing)} must be installed to read pages and PDF documents:"
            " pip install 'xmpp-agent-component[documents]'"
        )
        return Check("url_fetch", "failed", text)
    return Check("url_fetch", "ok", "what reads pages and PDF documents is installed")
