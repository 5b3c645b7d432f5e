"""Announcements have no section: a component has their nodes at its addresses, an account none."""

from component.settings.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether the nodes are ours; those of an account are its server's."""
    return settings.server.mode == "component"
