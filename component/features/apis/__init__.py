"""Skills that are HTTP requests of the settings, or operations of an API in OpenAPI."""

TURNED_ON_BY = ("rest", "openapi")
"""The sections that turn it on; without one of them, its settings are not imported."""
