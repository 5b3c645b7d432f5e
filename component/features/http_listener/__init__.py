"""The HTTP listener: receives requests for the features that serve some, such as webhooks."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether the service listens for HTTP requests."""
    return settings.http.port is not None
