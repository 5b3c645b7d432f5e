"""The commands exist where a model is configured."""

from component.settings.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether a model is configured."""
    return settings.llm is not None
