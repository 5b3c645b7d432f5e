"""The audit log is configured by `[audit]`, whose keys the kernel reads."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there is an audit log."""
    return settings.audit.enabled
