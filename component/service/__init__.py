"""The composition root: the only place where rooms are wired together."""

from component.service.options import (
    DEFAULT_AGENT,
    SOFTWARE,
    connection_options,
    load_skills,
    make_policy,
)
from component.service.service import Service

__all__ = [
    "DEFAULT_AGENT",
    "SOFTWARE",
    "Service",
    "connection_options",
    "load_skills",
    "make_policy",
]
