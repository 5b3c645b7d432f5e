"""Presence has no section. `pubsub.ask_presence` is about it."""

from typing import Any, Final

from component.settings.model import Settings
from component.settings.sections import Top

SECTIONS: Final[tuple[Top[Any], ...]] = ()


def check(_settings: Settings) -> None:
    """Accept the settings; there is no section."""
