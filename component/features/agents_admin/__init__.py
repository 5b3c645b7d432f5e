"""The commands of admins about agents: states, spending, and instructions to them."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there is a language model."""
    return settings.llm is not None
