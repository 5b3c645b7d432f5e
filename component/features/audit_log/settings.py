"""The audit log is configured by `[audit]`, whose keys the kernel reads."""

from typing import Any, Final

from component.settings.model import Settings
from component.settings.sections import Top

SECTIONS: Final[tuple[Top[Any], ...]] = ()


def is_used(settings: Settings) -> bool:
    """Return whether there is an audit log."""
    return settings.audit.enabled


def check(_settings: Settings) -> None:
    """Accept the settings; `[audit]` checks its own keys."""
