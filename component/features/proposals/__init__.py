"""Skills that people and models propose, with `create_skill`. An admin decides about each."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether skills can be proposed."""
    return settings.proposals_path is not None
