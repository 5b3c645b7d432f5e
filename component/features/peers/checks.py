"""The checks of `xmpp-agent doctor` on peers: what each offers and gets, whether it can sign
grants, and whether its clock is right.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import anyio

from component import system
from component.config.peers import Peer
from component.grants.verification import TOLERANCE_S
from component.kernel.check import Check
from component.policy.globs import pattern
from component.skills import Registry
from component.skills.errors import printable
from xep import pubsub
from xep.binding import Payload
from xep.entity_time import Time, TimeQuery
from xep.fluux_agent.keys import NAMESPACE as KEYS
from xep.fluux_agent.skills import SkillsQuery
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

_AT_ONCE: Final = 16
_FIRST: Final = 100
_LONGEST_REASON: Final = 300
_UNREACHABLE: Final = frozenset(("remote-server-not-found", "remote-server-timeout"))
_OURS: Final = "component."
"""How the sources of the skills begin that the service itself has."""

Ask: TypeAlias = Callable[[JID, Payload, type[Any]], Awaitable[Any]]
"""Sends an IQ of type get, and returns an answer of a class. Raises StanzaError."""


def check_offers(peers: Sequence[Peer], registry: Registry) -> Iterator[Check]:
    """Warn of patterns in `offers` that include skills with which a peer changes this agent: its
    memories, schedules, watches. No service runs.
    """
    ours = [
        skill.name
        for name in registry.names()
        if (skill := registry.get(name)) is not None
        and skill.source.startswith(_OURS)
        and not skill.annotations.read_only
    ]
    for peer in peers:
        offered = pattern(peer.offers)
        names = [one for one in ours if offered.fullmatch(one) and one not in peer.offers]
        if names:
            text = (
                f"offers has patterns that let {peer.jid} change this agent, by"
                f" {', '.join(names)}: list the skills that the peer needs by their names"
            )
            yield Check(f"offers to {peer.name}", "warning", text)


async def check_peers(peers: Sequence[Peer], ask: Ask) -> Sequence[Check]:
    """Ask each peer whose skills are used here what it offers to this service, each one that needs
    grants for its keys, and both for their time.
    """
    found: dict[str, list[Check]] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def check(peer: Peer) -> None:
        async with limiter:
            found[peer.name] = [await _check(peer, ask)] if peer.skills else []
            if peer.offers and peer.requires == "grant":
                found[peer.name] += await _check_keys(peer, ask)
            found[peer.name] += await _check_clock(peer, ask)

    used = [peer for peer in peers if peer.skills or (peer.offers and peer.requires == "grant")]
    async with anyio.create_task_group() as group:
        for peer in used:
            group.start_soon(partial(check, peer))
    return [check for peer in used for check in found[peer.name]]


async def _check_keys(peer: Peer, ask: Ask) -> Sequence[Check]:
    try:
        answer = await ask(JID.parse(peer.jid), Pubsub(items=pubsub.Items(node=KEYS)), Pubsub)
        count = 0 if answer.items is None else len(answer.items.items)
    except StanzaError as error:
        if error.condition in _UNREACHABLE:
            return ()
        count = 0
    if count:
        return ()
    text = (
        f"{peer.jid} publishes no keys, so it cannot sign grants, and nothing of it is accepted"
        ' while requires is "grant"'
    )
    return (Check(f"keys of {peer.name}", "warning", text),)


async def _check_clock(peer: Peer, ask: Ask) -> Sequence[Check]:
    began = system.now()
    try:
        time = await ask(JID.parse(peer.jid), TimeQuery(), Time)
    except StanzaError:
        return ()  # it does not tell its time
    # The answer is from some instant between the question and now.
    early, late = (began - time.utc).total_seconds(), (time.utc - system.now()).total_seconds()
    off = max(early, late)
    if off <= TOLERANCE_S:
        return ()
    text = (
        f"the clock of {peer.jid} is {off:.0f} seconds {'slow' if early > late else 'fast'},"
        f" or this one is the other way: beyond {TOLERANCE_S} seconds, grants and deadlines are"
        " refused"
    )
    return (Check(f"clock of {peer.name}", "warning", text),)


async def _check(peer: Peer, ask: Ask) -> Check:
    name = f"peer {peer.name}"
    try:
        answer = await ask(
            JID.parse(peer.jid), SkillsQuery(page=ResultSet(max=_FIRST)), SkillsQuery
        )
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
