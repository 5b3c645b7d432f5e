"""All checks, one module per section of the specification."""

from conformance.checks import (
    addresses,
    attacks,
    chat,
    discovery,
    elements,
    errors,
    execution,
    lists,
    modes,
    params,
    replay,
    skills,
)
from conformance.model import Check


def all_checks() -> tuple[Check, ...]:
    """Return every check, in the order of the specification."""
    modules = (
        addresses,
        elements,
        lists,
        discovery,
        skills,
        execution,
        params,
        modes,
        replay,
        errors,
        chat,
        attacks,
    )
    return tuple([one for module in modules for one in module.CHECKS])
