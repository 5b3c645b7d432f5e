"""Memory nodes are configured by `[memory]`, which also says how memories are kept in files."""

from typing import Any, Final

from component.settings.model import Settings
from component.settings.sections import Top

SECTIONS: Final[tuple[Top[Any], ...]] = ()


def is_used(settings: Settings) -> bool:
    """Return whether memories are kept on nodes."""
    return settings.memory.store != "files"


def check(_settings: Settings) -> None:
    """Accept the settings; `[memory]` checks its own keys."""
