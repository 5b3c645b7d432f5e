"""The built-in skills that the settings turn on."""

from collections.abc import AsyncIterator, Iterator

from component.config import Settings
from component.features.builtins.checks import check_servers
from component.features.builtins.settings import (
    EMAIL_SEND,
    FILES,
    GITHUB,
    HTTP_WEBHOOK,
    URL_FETCH,
    WEB_SEARCH,
)
from component.features.feature import Feature, Opened
from component.kernel.check import Check
from component.kernel.guarded_messages import GuardedMessages
from component.kernel.kernel import Kernel
from component.skills import Skill


class BuiltinFeature(Feature):
    """Offers the skills."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._messages: GuardedMessages | None = None

    def _opened(self) -> GuardedMessages:
        assert self._messages is not None, "skills are called while the service runs"
        return self._messages

    def skills(self) -> Iterator[Skill]:
        """Yield the skills. Each is imported only where it is used."""
        settings = self.settings
        url_fetch, files = settings[URL_FETCH], settings[FILES]
        if url_fetch is not None and url_fetch.enabled:
            from component.features.builtins.url_fetch import url_fetch_skill  # noqa: PLC0415

            yield url_fetch_skill(url_fetch)
        if (web_search := settings[WEB_SEARCH]) is not None:
            from component.features.builtins.web_search import web_search_skill  # noqa: PLC0415

            yield web_search_skill(web_search)
        if webhooks := settings[HTTP_WEBHOOK]:
            from component.features.builtins.http_webhook import http_webhook_skill  # noqa: PLC0415

            yield http_webhook_skill(webhooks)
        if files is not None and files.enabled:
            from component.features.builtins.files import file_skills  # noqa: PLC0415

            yield from file_skills(files, settings.storage.path / "files")
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

    def availability(self) -> AsyncIterator[Check]:
        """Yield whether what the skills need is installed, and their servers can be reached."""
        return check_servers(self.settings)


FEATURE = BuiltinFeature
