"""Lets instances find each other dead sooner than those of people do.

It is loaded as a module of skills, so it has one.
"""

from component.skills import skill
from component.tasks import leases

leases.HEARTBEAT_S, leases.DEAD_S, leases.GAP_S = 1.0, 6.0, 3.0  # type: ignore[misc]


@skill(name="crash.dead-after", read_only=True)
def dead_after() -> float:
    """Say after how many seconds an instance counts as dead."""
    return leases.DEAD_S
