"""The built-in skills that the settings turn on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from component.settings import Settings
    from component.skills.skill import Skill


def configured_skills(settings: Settings) -> Iterator[Skill]:
    """Yield the skills. Each is imported only where it is used."""
    if settings.url_fetch is not None and settings.url_fetch.enabled:
        from component.builtins.url_fetch import url_fetch_skill  # noqa: PLC0415

        yield url_fetch_skill(settings.url_fetch)
    if settings.web_search is not None:
        from component.builtins.web_search import web_search_skill  # noqa: PLC0415

        yield web_search_skill(settings.web_search)
    if settings.http_webhook:
        from component.builtins.http_webhook import http_webhook_skill  # noqa: PLC0415

        yield http_webhook_skill(settings.http_webhook)
    if settings.files is not None and settings.files.enabled:
        from component.builtins.files import file_skills  # noqa: PLC0415

        yield from file_skills(settings.files, settings.storage.path / "files")
    if settings.email_send is not None:
        from component.builtins.email_send import email_send_skill  # noqa: PLC0415

        yield email_send_skill(settings.email_send)
    if settings.github is not None:
        from component.builtins.github import github_skills  # noqa: PLC0415

        yield from github_skills(settings.github)
