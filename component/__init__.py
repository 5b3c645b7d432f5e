"""The agent service: an XEP-0114 component that serves urn:fluux:agent:0."""

VERSION = "0.1.0"
"""The version of this release; pyproject.toml takes it from here."""
