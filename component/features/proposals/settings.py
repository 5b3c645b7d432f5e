"""Whether skills can be proposed. The section is `[skills.proposals]`."""

from component.settings.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether skills can be proposed."""
    return settings.proposals_path is not None
