"""The contact profiles of the hosted agents, as the settings describe them."""

from pathlib import Path
from typing import Final

from component.handlers.avatars import (
    MOST_BYTES,
    Avatar,
    AvatarError,
    generated_avatar,
    read_avatar,
)
from component.handlers.contact_profiles import ContactProfile
from component.kernel.options import addresses, agent_entries, agent_titles, operator
from component.settings import Settings
from component.settings.model import DEFAULT_AGENT

_ENVELOPE_BYTES: Final = 4_096
"""Room in a stanza with a vCard beside the image."""


def contact_profiles(settings: Settings) -> dict[str | None, ContactProfile]:
    """Return the profile of each agent by localpart, and that of the domain by None.

    The domain has the name of the service, and the avatar of the default agent, which answers
    for it.

    Raises:
        AvatarError: an avatar file cannot be used. The message begins with the name of the setting.
    """
    ours, titles = addresses(settings), agent_titles(settings)
    found: dict[str | None, ContactProfile] = {}
    for entry in agent_entries(settings):
        if settings.server.mode == "client" and entry.name != DEFAULT_AGENT:
            continue  # one agent speaks on an account
        address = ours.address_of(entry.name)
        key, path = f"agents.{entry.name}.avatar", entry.avatar
        if path is None and entry.name == DEFAULT_AGENT:
            key, path = "agent.avatar", settings.agent.avatar
        found[address.local] = ContactProfile(
            address=address,
            name=titles[entry.name],
            description=entry.description,
            operator=operator(settings),
            contact=settings.agent.contact,
            avatar=generated_avatar(str(address)) if path is None else _read(settings, key, path),
        )
    found[None] = ContactProfile(
        address=ours.default,
        name=settings.agent.name,
        operator=operator(settings),
        contact=settings.agent.contact,
        avatar=found[ours.address_of(DEFAULT_AGENT).local].avatar,
    )
    return found


def _read(settings: Settings, key: str, path: Path) -> Avatar:
    most = (settings.server.max_stanza_bytes - _ENVELOPE_BYTES) * 3 // 4  # base64 takes 4 for 3
    try:
        return read_avatar(path, min(MOST_BYTES, most))
    except AvatarError as error:
        raise AvatarError(f"{key}: {error}") from None
