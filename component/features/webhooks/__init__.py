"""Webhooks: HTTP requests of other services that start work."""
