"""Memory nodes are configured by `[memory]`, which also says how memories are kept in files."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether memories are kept on nodes."""
    return settings.memory.store != "files"
