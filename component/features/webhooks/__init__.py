"""Webhooks: HTTP requests of other services that start work."""

TURNED_ON_BY = ("webhooks", "webhook")
"""The sections that turn it on; without one of them, its settings are not imported."""
