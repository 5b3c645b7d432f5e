"""Discovery has no section: it shows what other sections say."""

from typing import Any, Final

from component.settings.model import Settings
from component.settings.sections import Top

SECTIONS: Final[tuple[Top[Any], ...]] = ()


def check(_settings: Settings) -> None:
    """Accept the settings; there is no section."""
