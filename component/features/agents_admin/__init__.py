"""Which agents there are and what they can do; for admins states, spending and instructions."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there is a language model."""
    return settings.llm is not None
