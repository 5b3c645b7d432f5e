"""The audit log, as admins read it."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there is an audit log."""
    return settings.audit.enabled
