"""Whether skills can be proposed. The section is `[skills.proposals]`."""

from typing import Any, Final

from component.settings.model import Settings
from component.settings.sections import Top

SECTIONS: Final[tuple[Top[Any], ...]] = ()


def is_used(settings: Settings) -> bool:
    """Return whether skills can be proposed."""
    return settings.proposals_path is not None
