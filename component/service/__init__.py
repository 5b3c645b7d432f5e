"""The composition root: the only package that connects the others with each other.

`Service` reads the settings into a `Catalog` (what is offered, and to whom), opens an `Environment`
(database, audit log, memory), builds the `Subsystems` on it, and runs them. Each subsystem is an
object in its own module that creates the objects of one concern and passes them their dependencies;
it gets the subsystems that it uses as parameters, so each depends only on those created before it.
"""

from component.service.options import (
    SOFTWARE,
    connection_options,
    load_skills,
    make_policy,
)
from component.service.service import Service
from component.settings.model import DEFAULT_AGENT

__all__ = [
    "DEFAULT_AGENT",
    "SOFTWARE",
    "Service",
    "connection_options",
    "load_skills",
    "make_policy",
]
