"""The built-in skills that the settings turn on."""

from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import ClassVar

from component.config import Settings
from component.features.builtins import TURNED_ON_BY
from component.features.builtins.settings import (
    EMAIL_SEND,
    GITHUB,
    HTTP_WEBHOOK,
    URL_FETCH,
    WEB_SEARCH,
)
from component.features.feature import Feature, Opened
from component.kernel.check import Check, check_server, check_url
from component.kernel.guarded_messages import GuardedMessages
from component.kernel.kernel import Kernel
from component.skills import Skill


class BuiltinFeature(Feature):
    """Offers the skills, each imported only where it is used."""

    reloads: ClassVar = TURNED_ON_BY

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        url_fetch = settings[URL_FETCH]
        self._url_fetch = url_fetch if url_fetch is not None and url_fetch.enabled else None
        self._messages: GuardedMessages | None = None

    def _opened(self) -> GuardedMessages:
        assert self._messages is not None, "skills are called while the service runs"
        return self._messages

    def skills(self) -> Iterator[Skill]:
        """Yield the skills."""
        settings = self.settings
        if self._url_fetch is not None:
            from component.features.builtins.url_fetch import url_fetch_skill  # noqa: PLC0415

            yield url_fetch_skill(self._url_fetch)
        if (web_search := settings[WEB_SEARCH]) is not None:
            from component.features.builtins.web_search import web_search_skill  # noqa: PLC0415

            yield web_search_skill(web_search)
        if webhooks := settings[HTTP_WEBHOOK]:
            from component.features.builtins.http_webhook import http_webhook_skill  # noqa: PLC0415

            yield http_webhook_skill(webhooks)
        if settings.xmpp_send is not None:
            from component.features.builtins.xmpp_send import xmpp_send_skill  # noqa: PLC0415

            yield xmpp_send_skill(settings.xmpp_send, self._opened)
        if (email_send := settings[EMAIL_SEND]) is not None:
            from component.features.builtins.email_send import email_send_skill  # noqa: PLC0415

            yield email_send_skill(email_send)
        if (github := settings[GITHUB]) is not None:
            from component.features.builtins.github import github_skills  # noqa: PLC0415

            yield from github_skills(github)

    def open(self, kernel: Kernel) -> Opened:
        """Make what sends messages on behalf of people, if a skill does."""
        if self.settings.xmpp_send is not None:
            self._messages = kernel.messages()
        return Opened()

    async def availability(self) -> AsyncIterator[Check]:
        """Yield whether what the skills need is installed, and their servers can be reached."""
        if self._url_fetch is not None:
            yield _documents()
        for name, url in self._urls():
            yield await check_url(name, url)
        if (email_send := self.settings[EMAIL_SEND]) is not None:
            host, port = email_send.address
            yield await check_server("email_send", host, port, f"{host} port {port}")

    def _urls(self) -> Iterator[tuple[str, str]]:
        if (web_search := self.settings[WEB_SEARCH]) is not None:
            yield "web_search", web_search.url
        if (github := self.settings[GITHUB]) is not None:
            yield "github", github.base_url
        for name, webhook in self.settings[HTTP_WEBHOOK].items():
            yield f"http_webhook {name}", webhook.url.get_secret_value()


def _documents() -> Check:
    missing = [name for name in ("selectolax", "pypdf") if find_spec(name) is None]
    if missing:
        text = (
            f"{' and '.join(missing)} must be installed to read pages and PDF documents:"
            " pip install 'xmpp-agent-component[documents]'"
        )
        return Check("url_fetch", "failed", text)
    return Check("url_fetch", "ok", "what reads pages and PDF documents is installed")


FEATURE = BuiltinFeature
