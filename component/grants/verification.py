"""Verifies a chain of grants: a pure function of the chain, the request, the keys and the time."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from component.agent_addresses import canonical_address
from component.grants.grant import (
    Budget,
    Grant,
    GrantError,
    check_signature,
    covers,
    digest,
    key_named_by,
    read_grant,
)
from component.grants.keys import PublicKey
from xep.fluux_agent.delegation import Delegation
from xep.jid import JID

TOLERANCE_S: Final = 30
"""Seconds by which the clocks of two servers may differ."""


class Presented(msgspec.Struct, frozen=True, kw_only=True):
    """The request for which a chain of grants was presented.

    `sender` is as the servers stamped it, `receiver` the address that was asked. `deadline` and
    `now` are in seconds since 1970; None means that there is none.
    """

    delegation: Delegation
    skill: str
    sender: JID
    receiver: JID
    deadline: float | None
    now: float


def verify(chain: Sequence[str], keys: Mapping[str, PublicKey], presented: Presented) -> Grant:
    """Return what the last grant of a chain permits, if each one follows from the one before.

    `chain` has the grants in their compact forms, that of the first agent first; `keys` are the
    public keys of this agent by their names. Addresses are compared as agents: a domain and its
    default agent are one.

    Raises GrantError: the chain does not permit the request, with the first reason that was found.
    """
    if not chain:
        raise GrantError("malformed", "There is no grant.")
    grants = [read_grant(each) for each in chain]
    root = keys.get(key_named_by(chain[0]))
    if root is None:
        raise GrantError(
            "wrong-key", f"{grants[0].iss} has not published the key of the first grant."
        )
    check_signature(chain[0], root)
    if grants[0].par is not None:
        raise GrantError("wrong-parent", "The first grant must not be derived from another.")
    for parent, grant, before, written in zip(grants, grants[1:], chain, chain[1:], strict=False):
        _check_child(parent, grant, before)
        assert parent.cnf is not None, "_check_child demands it"
        check_signature(written, parent.cnf.jwk)
    for grant in grants:
        _check_time(grant, presented.now)
    _check_request(grants, presented)
    return grants[-1]


def _check_child(parent: Grant, grant: Grant, parent_as_written: str) -> None:
    """Check that a grant gives away nothing that its parent does not give. Raises GrantError."""
    if grant.par != digest(parent_as_written):
        raise GrantError("wrong-parent", f"The grant of {grant.iss} belongs to another parent.")
    if parent.cnf is None or parent.depth == 0 or grant.depth >= parent.depth:
        raise GrantError("too-deep", f"{grant.iss} must not pass the work on so far.")
    if not _same(grant.iss, parent.aud):
        raise GrantError("wrong-path", f"{parent.aud} got the grant that {grant.iss} passes on.")
    if grant.sub != parent.sub:
        raise GrantError("wrong-origin", f"{grant.iss} names {grant.sub}, not {parent.sub}.")
    wider = [each for each in grant.skills if not covers(parent.skills, each)]
    if wider:
        raise GrantError("wider-skills", f"{grant.iss} must not grant {', '.join(wider)}.")
    if grant.exp > parent.exp:
        raise GrantError("later-expiry", f"The grant of {grant.iss} ends after its parent.")
    if not parent.budget.covers(grant.budget):
        raise GrantError("larger-budget", f"{grant.iss} grants a larger budget than it has.")


def _check_time(grant: Grant, now: float) -> None:
    if grant.exp + TOLERANCE_S < now:
        raise GrantError("expired", f"The grant of {grant.iss} has expired.")
    if grant.iat - TOLERANCE_S > now:
        raise GrantError("not-yet-valid", f"The grant of {grant.iss} was made in the future.")


def _check_request(grants: Sequence[Grant], presented: Presented) -> None:
    """Check that a chain is about this request. Raises GrantError."""
    delegation, last = presented.delegation, grants[-1]
    path = [each.iss for each in grants]
    if len(path) != len(delegation.via) or not all(map(_same, path, map(str, delegation.via))):
        raise GrantError("wrong-path", "The path is not that of the grants.")
    if not _same(last.iss, str(presented.sender.bare)):
        raise GrantError("wrong-path", f"The last grant must be that of {presented.sender.bare}.")
    if last.sub != str(delegation.origin):
        raise GrantError("wrong-origin", f"The grants are for {last.sub}.")
    if not _same(last.aud, str(presented.receiver.bare)):
        raise GrantError("wrong-audience", f"The last grant is for {last.aud}.")
    if not covers(last.skills, presented.skill):
        raise GrantError("skill-not-granted", f"{presented.skill} is not granted.")
    if presented.deadline is None or presented.deadline > last.exp:
        raise GrantError("later-expiry", "The request must have a deadline before its grant ends.")
    asked = Budget(usd=delegation.budget_usd, tokens=delegation.budget_tokens)
    if not last.budget.covers(asked):
        raise GrantError("larger-budget", "The delegation has a larger budget than its grant.")


def _same(one: str, other: str) -> bool:
    """Return whether two bare addresses are those of one agent."""
    return canonical_address(JID.parse(one)) == canonical_address(JID.parse(other))
