"""What `xmpp-agent doctor` finds out about the rooms that decide."""

from collections.abc import Awaitable, Callable

from component.kernel.check import Check, Verdict
from component.policy import Policy
from xep import muc
from xep.disco import InfoQuery
from xep.fluux_agent.confirm import ApproverRoom
from xep.hats import NAMESPACE as HATS
from xep.jid import JID
from xep.stanza_error import StanzaError

Ask = Callable[[JID], Awaitable[InfoQuery]]


async def check_rooms(policy: Policy, ask: Ask) -> list[Check]:
    """Check the room of each rule that names one. `ask` returns what a room says about itself;
    raises StanzaError.
    """
    found = []
    for key, rule in policy.rules_with_rooms.items():
        assert rule.room is not None
        verdict, text = await _look(rule.room, ask)
        found.append(Check("approvers", verdict, f"{key}: {rule.description} decide; {text}"))
    return found


async def _look(room: ApproverRoom, ask: Ask) -> tuple[Verdict, str]:
    try:
        features = {each.var for each in (await ask(room.jid)).features}
    except StanzaError as error:
        if error.condition in ("item-not-found", "gone"):
            return "warning", "there is no such room. Create it, or correct its address."
        return "warning", f"the room cannot be asked ({error})"
    if muc.NAMESPACE not in features:
        return "warning", "the address is not that of a room. Correct it."
    if room.hat is not None and HATS not in features:
        return "warning", "the room gives no hats. Demand an affiliation in place of the hat."
    if "muc_nonanonymous" in features:
        return "ok", "the room shows the accounts of its occupants"
    return "warning", (
        "the room shows accounts to moderators only. Make it non-anonymous, or the agent a"
        " moderator; otherwise only accounts that approvers names are asked."
    )
