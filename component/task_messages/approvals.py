"""Who can decide a question and how many have to approve, in words."""

from collections.abc import Sequence

from component.policy.policy import occupants_of
from component.task_messages.value_rendering import listed, printable_name
from xep.fluux_agent.confirm import Approvals, ApproverRoom


def occupants(room: ApproverRoom) -> str:
    """Return which occupants of a room can decide."""
    return printable_name(occupants_of(room))


def needed(approvals: Approvals) -> str:
    """Return how many have to approve, as a sentence; empty if one person has to."""
    own = "" if approvals.requester else ", not counting the one who has requested it"
    if approvals.need == 1:
        return f"One person has to approve{own}." if own else ""
    return f"{approvals.need} persons have to approve{own}."


def state(approvals: Approvals, approved_by: Sequence[str]) -> str:
    """Return how many have approved, and who; empty as long as there is nothing to say."""
    if not approved_by:
        return f"0 of {approvals.need} approvals." if approvals.need > 1 else ""
    return f"{len(approved_by)} of {approvals.need}: approved by {listed(approved_by)}."


def more(missing: int) -> str:
    """Return how many approvals are still needed, as a sentence; empty if none is."""
    if not missing:
        return ""
    return "One more approval is needed." if missing == 1 else f"{missing} more are needed."
