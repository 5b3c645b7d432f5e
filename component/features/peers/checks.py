"""The checks of `xmpp-agent doctor` on peers: whether each answers, and what it offers."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio

from component.config.peers import Peer
from component.kernel.check import Check
from component.policy.globs import pattern
from component.skills.errors import printable
from xep.fluux_agent.skills import SkillsQuery
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

_AT_ONCE: Final = 16
_FIRST: Final = 100
_LONGEST_REASON: Final = 300
_UNREACHABLE: Final = frozenset(("remote-server-not-found", "remote-server-timeout"))

Ask: TypeAlias = Callable[[JID, SkillsQuery], Awaitable[SkillsQuery]]
"""Asks an agent which skills it offers. Raises StanzaError."""


async def check_peers(peers: Sequence[Peer], ask: Ask) -> Sequence[Check]:
    """Ask each peer whose skills are used here what it offers to this service."""
    found: dict[str, Check] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def check(peer: Peer) -> None:
        async with limiter:
            found[peer.name] = await _check(peer, ask)

    used = [peer for peer in peers if peer.skills]
    async with anyio.create_task_group() as group:
        for peer in used:
            group.start_soon(partial(check, peer))
    return [found[peer.name] for peer in used]


async def _check(peer: Peer, ask: Ask) -> Check:
    name = f"peer {peer.name}"
    try:
        answer = await ask(JID.parse(peer.jid), SkillsQuery(page=ResultSet(max=_FIRST)))
    except StanzaError as error:
        return Check(name, "warning", f"{peer.jid} {_problem(error)}")
    names = [skill.name for skill in answer.skills]
    count = len(names) if answer.page is None else answer.page.count or len(names)
    if not names:
        text = f"{peer.jid} offers nothing to this service: its admin has to name skills in offers"
        return Check(name, "warning", text)
    missing = [
        wanted for wanted in peer.skills if not any(map(pattern((wanted,)).fullmatch, names))
    ]
    if missing and count == len(names):
        text = f"{peer.jid} does not offer {', '.join(missing)}, which skills names"
        return Check(name, "warning", text)
    return Check(name, "ok", f"{peer.jid} answers; skills that it offers to this service: {count}")


def _problem(error: StanzaError) -> str:
    reason = printable(str(error), _LONGEST_REASON)
    if error.condition in _UNREACHABLE:
        return (
            f"cannot be reached ({reason}): check jid, and that your server and that of the peer"
            " federate"
        )
    return (
        f"does not say what it offers ({reason}): its admin has to name the address of this service"
        " in a [[peer]]"
    )
