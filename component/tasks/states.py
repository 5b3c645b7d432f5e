"""The states of a task and the ways between them, as data (specification, "States")."""

from typing import Final

from xep.fluux_agent.execute import State

TERMINAL: Final[frozenset[State]] = frozenset(("completed", "failed", "rejected", "cancelled"))
"""For good: a task in one of these never changes again (TSK-002)."""

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    "accepted": frozenset(("running", "input-required", "cancelled", "failed", "rejected")),
    "running": frozenset(("running", "input-required", "cancelling", "completed", "failed")),
    "input-required": frozenset(
        ("input-required", "accepted", "running", "cancelled", "failed", "rejected")
    ),
    "cancelling": frozenset(("cancelling", "cancelled", "completed", "failed")),
    "completed": frozenset(),
    "failed": frozenset(),
    "rejected": frozenset(),
    "cancelled": frozenset(),
}
"""From each state to where it may go (TSK-001); to itself with progress or a part of an output."""
