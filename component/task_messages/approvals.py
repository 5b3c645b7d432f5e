"""Who can decide a question and how many have to approve, in words."""

from collections.abc import Sequence
from typing import Final

from component.task_messages.value_rendering import printable_name
from xep.fluux_agent.confirm import Approvals, ApproverRoom, Rank
from xep.jid import JID

RANKS: Final[tuple[Rank, ...]] = ("none", "member", "admin", "owner")
"""From the lowest to the highest."""
_OCCUPANTS: Final[dict[Rank, str]] = {
    "owner": "owners",
    "admin": "admins and owners",
    "member": "members, admins and owners",
    "none": "occupants",
}


def approvers_of(accounts: Sequence[JID], room: ApproverRoom | None) -> str:
    """Return who can decide: accounts, and occupants of a room."""
    named = [printable_name(str(one)) for one in accounts]
    if room is not None:
        named.append(f"the {occupants(room)} of {printable_name(str(room.jid))}")
    return ", ".join(named)


def occupants(room: ApproverRoom) -> str:
    """Return which occupants of a room can decide."""
    hat = "" if room.hat is None else f" with the hat {printable_name(room.hat)}"
    return f"{_OCCUPANTS[room.affiliation]}{hat}"


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


def listed(names: Sequence[str]) -> str:
    """Return names as an enumeration."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
