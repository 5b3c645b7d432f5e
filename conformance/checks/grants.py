"""Grants: chains of signed grants, their keys, questions about them, and receipts.

The kit plays two agents: the peer, and the default agent of its domain, which grants to the peer.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from conformance.checks.delegation import DELEGATION, bare, origin_of
from conformance.checks.follow import outcome
from conformance.checks.up_down import Peer
from conformance.holding import BlockedError
from conformance.model import Ability, check
from conformance.signing import (
    ALGORITHM,
    GRANT,
    KEYS,
    RECEIPT,
    digest,
    is_signed,
    part,
    thumbprint,
)
from conformance.stanzas import Received
from conformance.talk import Talk
from conformance.vectors import Cast, read_all
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.grant import NAMESPACE as GRANTS
from xep.fluux_agent.grant import GrantStatus

_GRANT: Final = f"{AGENT}#grant"
_NEEDS: Final = (Ability.PEER, Ability.STRANGER)
_NOT_ON_THE_WIRE: Final = frozenset({"expired-within-tolerance"})
"""Its deadline is over, so no agent begins the work."""
_UNAVAILABLE: Final = (
    "<error type='wait'><remote-server-timeout"
    " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
)


class _Issuers:
    """The kit's agents: the default one of its domain, and the peer."""

    def __init__(self, t: Talk, status: Callable[[str], str] | None = None) -> None:
        self.t = t
        self.peer = bare(t.peer)
        self.users = self.peer.rpartition("@")[2]
        self.default = f"assistant@{self.users}"
        self.status = status
        self.asked_about: list[str] = []
        t.play(self._part, also=(self.users, self.default))

    def _part(self, asked: Received) -> str | None:
        if asked.head.sole_child == GrantStatus.xml.tag:
            query = asked.payload(GrantStatus)
            assert query is not None
            self.asked_about.append(query.digest)
            return self._about(query.digest)
        return None

    def _about(self, asked: str) -> str:
        if self.status is not None:
            return self.status(asked)
        return f"<status xmlns='{GRANTS}' digest='{asked}' state='active'/>"

    def cast(self, vector: Mapping[str, Any], skill: str) -> Cast:
        """Return who plays whom in a vector; ``skill`` is what the grants are about."""
        t, other = self.t, self.t.skill("add").name
        addresses = {
            "alice@example.com": origin_of(t),
            "bob@example.com": bare(t.who.caller),
            "assistant@agent.example.com": self.default,
            "research@agent.example.net": f"research@{self.users}",
            vector["sender"]: self.peer,
            vector["receiver"]: bare(t.target.address),
        }
        skills = {
            "report": skill,
            "sources.search": skill,
            "sources.list": other,
            "sources.*": f"{skill[:-1]}*",
        }
        return Cast(addresses, self.users, skills, int(time.time()))

    async def ask(
        self,
        vector: Mapping[str, Any],
        role: str = "echo",
        members: Mapping[str, Any] | None = None,
        **attributes: str,
    ) -> Received:
        """Send the request of a vector as the peer; ``members`` are added to the last grant."""
        cast = self.cast(vector, self.t.skill(role).name)
        if vector["skill"] == "sources.list":
            role = "add"
        params = {
            "echo": {"text": "x"},
            "add": {"a": "1", "b": "2"},
            "erase": {"target": f"shelf {self.t.new_id()}"},
            "hidden": {},
        }[role]
        if vector.get("deadline") is not None:
            at = datetime.fromtimestamp(cast.seconds(vector, vector["deadline"]), UTC)
            attributes["deadline"] = at.isoformat().replace("+00:00", "Z")
        extra = cast.delegation(vector, **(members or {}))
        return await self.t.execute(
            role, params, extra=extra, sender=self.t.peer, having=attributes
        )


def _vector(name: str) -> dict[str, Any]:
    return next(one for one in read_all() if one["name"] == name)


@check("delegation.vectors", "DLG-003", "DLG-004", "DLG-005", "DLG-023", "COM-013",
       features=[DELEGATION], roles=("echo",), needs=_NEEDS, alone=True)  # fmt: skip
async def path_vectors(t: Talk) -> None:
    """The vectors of paths are accepted and refused as they say."""
    issuers = _Issuers(t)
    for vector in read_all("paths"):
        if vector["name"] == "loop-by-domain" and not t.target.is_component:
            continue  # whether it is the default agent of its domain is not known
        addresses = {
            "alice@example.com": origin_of(t),
            vector["sender"]: issuers.peer,
            "agent.example.net": issuers.users,
            vector["addresses"][0]: t.target.domain,
            f"other@{vector['addresses'][0]}": f"another-agent@{t.target.domain}",
            vector["receiver"]: bare(t.target.address),
        }
        xml = Cast(addresses, issuers.users, {}, 0).path(vector)
        answer = await t.execute("echo", {"text": "x"}, extra=xml, sender=t.peer)
        id_, why = vector["requirement"], f"{vector['name']}: {vector['description']}"
        if vector["valid"]:
            t.hold(id_, not answer.is_error, f"a result: {why}", answer)
        else:
            t.holds_error(id_, answer, vector["error"], vector["condition"], why=why)


@check("grants.vectors", "GRA-001", "GRA-002", "GRA-005", "GRA-006", "GRA-008", "GRA-009",
       "GRA-010", "GRA-011", "GRA-012", "GRA-013", "GRA-014", "GRA-015", "GRA-016", "GRA-017",
       "GRA-018", "GRA-019", "GRA-020", "GRA-021", "GRA-022", "GRA-023", "GRA-029",
       features=[_GRANT], roles=("echo", "add"), needs=_NEEDS, alone=True)  # fmt: skip
async def grant_vectors(t: Talk) -> None:
    """The vectors of grants are accepted and refused as they say."""
    issuers = _Issuers(t)
    for vector in read_all():
        if vector["name"] in _NOT_ON_THE_WIRE:
            continue
        answer = await issuers.ask(vector)
        id_, why = vector["requirement"], f"{vector['name']}: {vector['description']}"
        if vector["valid"]:
            t.hold(id_, not answer.is_error, f"a result: {why}", answer)
            continue
        refused = answer.agent_conditions == ["invalid-grant"]
        if vector["name"] in ("replayed-by-another", "expired", "no-deadline"):
            # The path, or the deadline, is wrong as well, which may be found first.
            refused = answer.is_error
        t.hold(id_, refused, f"<invalid-grant/>: {why}", answer)
        if answer.agent_conditions == ["invalid-grant"]:
            t.holds_error("GRA-002", answer, "forbidden", "invalid-grant", why=why)
        if vector["name"] == "wrong-key-of-first":
            t.hold("GRA-029", refused, "keys of the first agent alone, not of the sender", answer)


@check("grants.members", "GRA-007", features=[_GRANT], roles=("echo",), needs=_NEEDS,
       alone=True)  # fmt: skip
async def members(t: Talk) -> None:
    """Members of a grant that are not known are ignored."""
    unknown = {"x-note": {"of": ["nobody"]}, "nbf": 0}
    answer = await _Issuers(t).ask(_vector("two-hops"), members=unknown)
    t.hold("GRA-007", not answer.is_error, "a result, as without these members", answer)


@check("grants.rights", "GRA-004", features=[_GRANT], roles=("hidden",), needs=_NEEDS,
       alone=True)  # fmt: skip
async def rights(t: Talk) -> None:
    """Grants give no right."""
    answer = await _Issuers(t).ask(_vector("two-hops"), "hidden")
    t.holds_error("GRA-004", answer, "item-not-found", "unknown-skill", why="nobody may use it")


@check("grants.repeated", "GRA-026", features=[_GRANT], roles=("echo",), needs=_NEEDS,
       alone=True)  # fmt: skip
async def repeated(t: Talk) -> None:
    """A request whose grants have changed is another request."""
    issuers, request = _Issuers(t), t.new_id()
    first = await issuers.ask(_vector("two-hops"), request=request)
    t.need(not first.is_error, "A request with a valid chain was refused.")
    other = {"jti": t.new_id()}
    again = await issuers.ask(_vector("two-hops"), members=other, request=request)
    t.holds_error("GRA-026", again, "conflict", "conflict", why="the grants are others")


@check("grants.ask-back", "GRA-035", "GRA-036", features=[_GRANT], roles=("erase",), needs=_NEEDS,
       alone=True)  # fmt: skip
async def ask_back(t: Talk) -> None:
    """An agent that has asked about a grant refuses what it does not permit."""
    for state, id_, expected in (
        ("revoked", "GRA-035", ("forbidden", "invalid-grant")),
        ("ended", "GRA-035", ("forbidden", "invalid-grant")),
        (None, "GRA-036", ("resource-constraint", "retry")),
    ):

        def status(asked: str, state: str | None = state) -> str:
            if state is None:
                return _UNAVAILABLE
            return f"<status xmlns='{GRANTS}' digest='{asked}' state='{state}'/>"

        issuers = _Issuers(t, status)
        answer = await issuers.ask(_vector("two-hops"), "erase", mode="async")
        if issuers.asked_about:
            t.holds_error(id_, answer, *expected, why=f"the state is {state or 'not known'}")
        else:
            t.hold(id_, True, "its policy does not say to ask before this skill")


@check("grants.receipts", "GRA-037", "GRA-038", features=[_GRANT], roles=("echo",), needs=_NEEDS,
       alone=True)  # fmt: skip
async def receipts(t: Talk) -> None:
    """The result of delegated work has a signed statement of what was done."""
    request = t.new_id()
    issuers, vector = _Issuers(t), _vector("two-hops")
    ended = await outcome(t, await issuers.ask(vector, request=request))
    assert ended.result is not None
    receipt = ended.result.receipt
    if not t.hold("GRA-037", receipt is not None, "a <receipt/> in the result", ended.message):
        return
    assert receipt is not None
    header, claims = _read(receipt.jws)
    wanted = {
        "aud": issuers.peer,
        "sub": origin_of(t),
        "skill": t.skill("echo").name,
        "state": "completed",
        "request": request,
    }
    ok = all(claims.get(name) == value for name, value in wanted.items())
    t.hold("GRA-037", ok, f"a receipt that says {wanted}", str(claims))
    ok = header.keys() == {"alg", "typ", "kid"} and header.get("typ") == RECEIPT
    t.hold("GRA-038", ok, f"a header of the type {RECEIPT}", str(header))
    published = await _published(t, t.who.caller)
    x = published.get(header.get("kid", ""))
    ok = x is not None and is_signed(receipt.jws, x)
    t.hold("GRA-038", ok, "the signature of a key that it publishes", receipt.jws)


@check("grants.made", "GRA-005", "GRA-022", "GRA-027", "GRA-028", "GRA-032", "GRA-033",
       features=[_GRANT, DELEGATION], roles=("delegate",), needs=_NEEDS, alone=True)  # fmt: skip
async def made(t: Talk) -> None:
    """A grant that it makes is signed with a published key, and it answers questions about it."""
    nothing = await _status(t, digest("nothing"), t.stranger)
    expected = "item-not-found: it has made no such grant"
    ok = nothing.stanza_conditions == ["item-not-found"]
    t.hold("GRA-033", ok, expected, nothing)
    peer = Peer(t)
    await peer.begin()
    request = peer.request
    assert request is not None
    grants = request.delegation.grants if request.delegation is not None else ()
    if not grants:
        for id_ in ("GRA-005", "GRA-022", "GRA-027", "GRA-028", "GRA-032"):
            t.hold(id_, True, "it makes no grants")
        await peer.done()
        return
    compact = grants[-1].jws
    header, claims = _read(compact)
    ok = header.keys() == {"alg", "typ", "kid"}
    ok = ok and (header.get("alg"), header.get("typ")) == (ALGORITHM, GRANT)
    t.hold("GRA-005", ok, f"the members alg {ALGORITHM}, typ {GRANT} and kid", str(header))
    end = None if request.deadline is None else request.deadline.timestamp()
    ok = end is not None and end <= claims.get("exp", 0)
    t.hold("GRA-022", ok, "a deadline that is not after the end of the grant", str(claims))
    for who in (t.stranger, t.who.refused or t.stranger):
        published = await _published(t, who)
        x = published.get(header.get("kid", ""))
        ok = x is not None and is_signed(compact, x)
        t.hold("GRA-027", ok, f"the key of the grant, published to {bare(who)}", str(published))
        told = await _status(t, digest(compact), who)
        status = None if told.is_error else told.payload(GrantStatus)
        ok = status is not None and status.state == "active"
        t.hold("GRA-032", ok, "the state active, for everybody who knows the digest", told)
    await peer.done()


def _read(compact: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        return part(compact, 0), part(compact, 1)
    except ValueError as error:
        raise BlockedError(f"What it has signed cannot be read: {error}") from None


async def _status(t: Talk, wanted: str, sender: str) -> Received:
    return await t.iq("get", f"<status xmlns='{GRANTS}' digest='{wanted}'/>", sender=sender)


async def _published(t: Talk, sender: str) -> dict[str, str]:
    """Return the public keys of the target, by the ids of their items."""
    query = f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{KEYS}'/></pubsub>"
    answer = await t.iq("get", query, sender=sender)
    found = {}
    for item in answer.tree.iter("{http://jabber.org/protocol/pubsub}item"):
        x = (item.findtext(f"{{{KEYS}}}key") or "").strip()
        found[item.get("id", "")] = x
        if "GRA-028" in t.check.observes:
            ok = item.get("id") == thumbprint(x)
            t.hold("GRA-028", ok, f"the id {thumbprint(x)}", answer)
    return found


CHECKS = (path_vectors, grant_vectors, members, rights, repeated, ask_back, receipts, made)
