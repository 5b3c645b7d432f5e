"""Whether skills can be proposed. The section is `[skills.proposals]`."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether skills can be proposed."""
    return settings.proposals_path is not None
