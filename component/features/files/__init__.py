"""The files of people: those that they send to agents, and those that agents keep for them."""

from component.config.model import Settings
from component.features.files.settings import FILES


def is_used(settings: Settings) -> bool:
    """Return whether there are agents that people can send files to, or that keep files."""
    return settings.llm is not None or settings[FILES] is not None
