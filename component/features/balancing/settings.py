"""The number of connections is in the section about the server."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether the server balances stanzas among several connections."""
    return settings.server.component_number > 1
