"""The checks of `xmpp-agent doctor` about skills that reach outside: what they need is installed,
and their servers can be reached.
"""

from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec

from component.kernel.check import Check
from component.kernel.server_check import check_server, check_url
from component.settings import Settings


async def check_builtins(settings: Settings) -> AsyncIterator[Check]:
    """Check each skill that the settings turn on."""
    if settings.url_fetch is not None and settings.url_fetch.enabled:
        yield _url_fetch()
    for name, url in _servers(settings):
        yield await check_url(name, url)
    if settings.email_send is not None:
        host, port = settings.email_send.address
        yield await check_server("email_send", host, port, f"{host} port {port}")


def _servers(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.web_search is not None:
        yield "web_search", settings.web_search.url
    if settings.github is not None:
        yield "github", settings.github.base_url
    for name, webhook in settings.http_webhook.items():
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
