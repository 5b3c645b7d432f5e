"""Several instances at one domain, among whose connections ejabberd balances the stanzas."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether the server balances stanzas among several connections."""
    return settings.server.component_number > 1
