"""What a `[[peer]]` section permits, in sentences and rows, in both directions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from component.config.peers import Peer
    from component.policy import Policy

_ASKS_BACK: Final = {
    "never": "It is never asked whether a grant still holds.",
    "costly": "The agent that has made the first grant is asked whether it still holds, before"
    " skills that cost something or are destructive.",
    "always": "The agent that has made the first grant is asked whether it still holds, before all"
    " skills.",
}
_WHEN: Final = {
    "always": "before each call",
    "never": "never",
    "destructive": "before each call of a skill that read_only does not name",
}


def sentences(policy: "Policy", peer: "Peer") -> Iterator[str]:
    """Yield what a section says about both directions."""
    yield f"{peer.jid} is the agent of [[peer]] {peer.name}: what the lists say is not for it."
    yield ""
    yield from _of_the_peer(peer)
    yield ""
    yield from _of_this_service(policy, peer)


def _of_the_peer(peer: "Peer") -> Iterator[str]:
    yield f"What {peer.name} may do here"
    yield f"  It sees and may execute: {listed(peer.offers)}."
    yield f"  What works for it may also use: {listed(peer.delegates)}."
    yield f"  It may ask in the names of people of: {listed(peer.believed_domains)}."
    if peer.requires == "grant":
        yield "  It needs a signed grant of each agent in the path."
    else:
        yield "  It needs no signed grants. Those that it sends are verified."
    yield f"  {_ASKS_BACK[peer.asks_back]}"
    yield "  The peer asks the person it works for to confirm, if policy.rules name no approvers."
    yield f"  At most {peer.concurrency} of its tasks run at the same time."


def _of_this_service(policy: "Policy", peer: "Peer") -> Iterator[str]:
    yield f"What is used of {peer.name} here"
    if not peer.skills:
        yield "  Nothing: skills is empty."
        return
    names = ", ".join(f"{peer.name}.{name}" for name in peer.skills)
    yield f"  Its skills that are offered here: {names}."
    when = policy.asking(f"{peer.name}.x").when
    yield f"  A person is asked {_WHEN[when]}; read_only: {listed(peer.read_only)}."
    yield f"  {_data(peer)}"
    if peer.onward:
        yield f"  For work of this service it may use at other agents: {listed(peer.onward)}."
    else:
        yield "  It must not pass work of this service on to other agents."
    yield f"  One call may cost: {_budget(peer.call_usd, peer.call_tokens)}."
    yield f"  All calls of a day may cost: {_budget(peer.day_usd, peer.day_tokens)}."
    yield f"  A call may take {peer.timeout_s:g} seconds."


def _data(peer: "Peer") -> str:
    if peer.data is None:
        return "policy.flows says which data of others a model may pass on to it."
    if not peer.data:
        return "A model that has read data of other agents, the web or files must not call it."
    return f"A model may call it after it has read only data of: {listed(peer.data)}."


def _budget(usd: float | None, tokens: int | None) -> str:
    limits = [] if usd is None else [f"{usd:g} USD"]
    limits += [] if tokens is None else [f"{tokens} tokens"]
    return " and ".join(limits) or "what is left of the budget of the work that it is for"


def listed(names: Sequence[str]) -> str:
    """Return names in one text."""
    return ", ".join(names) or "nothing"


def rows_of_skills(policy: "Policy", peer: "Peer", names: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each skill of a peer whether people and models here may use it, if the policy
    shows it to them, and who is asked.
    """
    from component.policy.globs import pattern  # noqa: PLC0415 - only for peers

    used, harmless = pattern(peer.skills), pattern(peer.read_only)
    rows = []
    for name in names or peer.skills:
        here = name if name.startswith(f"{peer.name}.") else f"{peer.name}.{name}"
        there = here.removeprefix(f"{peer.name}.")
        is_used = name in peer.skills or used.fullmatch(there) is not None
        rule = policy.asking(here)
        asks = rule.when == "always" or (
            rule.when == "destructive" and harmless.fullmatch(there) is None
        )
        asked = rule.description if rule.has_approvers else "the person"
        rows.append(
            {
                "skill": here,
                "use": "yes" if is_used else f"no: peer.{peer.name}.skills",
                "may_use": is_used,
                "confirmation": (asked if asks else "nobody") if is_used else "",
            }
        )
    return rows
