"""All checks, one module per section of the specification."""

from conformance.checks import (
    addresses,
    attacks,
    certainty,
    chat,
    commands,
    confirmation,
    delegation,
    discovery,
    elements,
    errors,
    events,
    execution,
    grants,
    inputs,
    lists,
    memory,
    modes,
    params,
    peers,
    plans,
    replay,
    skills,
    tasks,
    up_down,
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
        confirmation,
        certainty,
        peers,
        tasks,
        events,
        inputs,
        plans,
        delegation,
        up_down,
        grants,
        memory,
        errors,
        commands,
        chat,
        attacks,
    )
    return tuple([one for module in modules for one in module.CHECKS])
