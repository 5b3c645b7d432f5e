"""The commands of people about their conversation with an agent."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there is a language model."""
    return settings.llm is not None
