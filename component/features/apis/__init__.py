"""Skills that are HTTP requests of the settings, or operations of an API in OpenAPI."""
