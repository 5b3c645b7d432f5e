"""The agent service: an XEP-0114 component that serves urn:fluux:agent:0."""

from typing import Final

VERSION = "0.1.0"
"""The version of this release; pyproject.toml takes it from here."""

DEFAULT_AGENT: Final = "assistant"
"""The name of the agent that every service has. It answers for a component's domain, and is the
agent of a client's account.
"""
