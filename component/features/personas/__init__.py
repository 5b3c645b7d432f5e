"""The command by which people choose and define the persona of an agent."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there is a language model."""
    return settings.llm is not None
