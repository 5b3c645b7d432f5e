"""Announcements: what an agent publishes to everybody who follows it."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether our addresses can have nodes. An account has only those of its server."""
    return settings.server.mode == "component"
