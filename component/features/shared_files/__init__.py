"""Files that the agents give people, served by the service itself."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether others can reach the HTTP listener, so that it can serve files."""
    return settings.http.port is not None and bool(settings.http.url)
