"""Service discovery, vCards, and the version and time of the service."""
