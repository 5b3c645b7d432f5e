"""The states of a task and the transitions between them, as data (specification, "States")."""

from typing import Final

from xep.fluux_agent.execute import State

TERMINAL: Final[frozenset[State]] = frozenset(("completed", "failed", "rejected", "cancelled"))
"""Final states: a task in one of these never changes again (TSK-002)."""

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
"""The allowed next states of each state (TSK-001); a state can follow itself with progress or a
part of an output.
"""


class LostError(Exception):
    """The execution no longer owns the task: its lease was taken over, or the task has ended.

    The execution that gets this error stops and sends nothing.
    """


class TransitionError(Exception):
    """The table of states does not allow a change: a bug in this program."""
