"""The policy: which principals the agent answers, and which skills each of them may use."""

import functools
from collections.abc import Sequence
from typing import Literal, NewType

import msgspec

from component.agent_addresses import canonical_address
from component.policy.entries import EntryReader
from component.policy.globs import pattern
from xep.fluux_agent.confirm import Approvals, ApproverRoom, Rank
from xep.jid import JID

# Cached results per principal and per skill name. Names are untrusted: long ones are not cached.
_CACHE_ENTRIES = 4096
_MAX_CACHED_CHARACTERS = 256

ViewKey = NewType("ViewKey", int)
"""The rules that a principal passes. Principals with equal views may use the same skills, so values
computed for one view (a list of skills, its version hash) hold for all of them. Bit 0 is set
if the principal is admitted, bit 1 if it is an account, bit n + 2 if it passes rule n. The view of
peer n is -1 - n."""

ASKS_PEERS = "peers_ask"
"""The skill that calls skills of several peers. Peers never see it: by it they could call those
that only the work for them may use (`PeerRule.delegates`).
"""

_OCCUPANTS: dict[Rank, str] = {
    "owner": "owners",
    "admin": "admins and owners",
    "member": "members, admins and owners",
    "none": "occupants",
}

_ADMITTED = 1
_ACCOUNT = 2

When = Literal["destructive", "always", "never"]
"""Skills that need confirmation: destructive ones, all, or none that people execute directly."""


class Rule(msgspec.Struct, frozen=True):
    """Restricts who may use the skills that match. A list that is None restricts nothing.

    In `skills`, `*` matches any characters and `?` any single one. `confirm` says when a
    person is asked before such a skill runs, `approvers` who is asked; None leaves this to the next
    matching rule. `need` of them have to approve; with `not_requester`, the approval of the
    requester does not count. Of the room among the approvers, those occupants can decide that have
    at least this `affiliation` and the `hat`.
    """

    skills: tuple[str, ...]
    allowed_jids: tuple[str, ...] | None = None
    allowed_domains: tuple[str, ...] | None = None
    confirm: When | None = None
    approvers: tuple[str, ...] | None = None
    affiliation: Rank = "none"
    hat: str | None = None
    need: int = 1
    not_requester: bool = False


class ConfirmationRule(msgspec.Struct, frozen=True):
    """When a person is asked before a skill runs, and who (CNF-001 to CNF-004).

    `approvers` are the bare JIDs that are asked. `approvals` says how many have to approve, and
    whether the occupants of a room can; None if any one answer decides. Without either, the
    requesting principal is asked.
    """

    when: When
    approvers: tuple[JID, ...] = ()
    approvals: Approvals | None = None

    @property
    def room(self) -> ApproverRoom | None:
        """The room whose occupants can decide."""
        return None if self.approvals is None else self.approvals.room

    @property
    def description(self) -> str:
        """Who has to approve: `2 of alice@example.com and the admins of ops@rooms.example.com`."""
        named = [*map(str, self.approvers)]
        if self.room is not None:
            named.append(occupants_of(self.room))
        said = ", ".join(named)
        if self.approvals is None:
            return said
        own = "" if self.approvals.requester else ", not the requester"
        return f"{self.approvals.need} of {said}{own}"

    @property
    def has_approvers(self) -> bool:
        """Whether it names who is asked."""
        return bool(self.approvers) or self.room is not None


class PeerRule(msgspec.Struct, frozen=True):
    """An agent elsewhere that may use the skills whose names match `offers`, in the names of people
    of the domains `origins`. What works for it may also use those that match `delegates`. At a time
    `open_tasks` of its tasks are open, and `concurrency` of them run. `name` begins the names of
    its own skills. `requires_grant` demands a chain of grants of it. `confirm` says when a person
    is asked before one of its own skills runs, unless a rule says it; None leaves this to the
    default.
    """

    name: str
    jid: str
    offers: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    delegates: tuple[str, ...] = ()
    concurrency: int = 16
    open_tasks: int = 500
    requires_grant: bool = False
    confirm: When | None = None


def occupants_of(room: ApproverRoom) -> str:
    """Return which occupants of a room can decide: `the owners of ops@rooms.example.com`."""
    hat = "" if room.hat is None else f" with the hat {room.hat}"
    return f"the {_OCCUPANTS[room.affiliation]}{hat} of {room.jid}"


def _with_room(
    rule: Rule, accounts: tuple[JID, ...], jid: JID | None
) -> tuple[tuple[JID, ...], Approvals | None]:
    """Return who is asked by a rule, and how many have to approve."""
    if jid is None and rule.need == 1 and not rule.not_requester:
        return accounts, None
    room = (
        None if jid is None else ApproverRoom(jid=jid, affiliation=rule.affiliation, hat=rule.hat)
    )
    return accounts, Approvals(need=rule.need, requester=not rule.not_requester, room=room)


class _Gate:
    """Two lists, both of which a principal must pass."""

    def __init__(self, jids: frozenset[JID] | None, domains: frozenset[str] | None) -> None:
        self._jids = jids
        self._domains = domains

    def knows(self, domain: str) -> bool:
        """Whether the lists say who of a domain passes."""
        return self._domains is None or domain in self._domains

    def passes(self, principal: JID) -> bool:
        return (self._domains is None or principal.domain in self._domains) and (
            self._jids is None or principal in self._jids
        )

    def refusing(self, principal: JID) -> list[str]:
        """Return the names of the lists that a bare JID does not pass."""
        found = []
        if self._domains is not None and principal.domain not in self._domains:
            found.append("allowed_domains")
        if self._jids is not None and principal not in self._jids:
            found.append("allowed_jids")
        return found


class Policy:
    """Decides which principals are admitted, and which skills each of them may use.

    A principal is admitted when its domain and its JID are both allowed. It may use a skill when
    it is admitted and passes every rule that matches the skill's name; a skill that no rule
    matches is available to every admitted principal.

    In each list, `["*"]` means all, and an empty list means nobody. An entry of
    `allowed_jids` is a bare JID; a domain alone means that address itself, not its users.
    An entry of `allowed_domains` does not cover subdomains.

    A peer is an agent, not a person: it is admitted whatever the lists say, and may use only what
    it is offered, never a skill of another peer. A service that is not a peer, which has no
    localpart, may use nothing.

    Raises PolicyError with all invalid entries: those that are not addresses, those with
    a resource, and those that servers interpret differently from RFC 7622, because access would
    then be given to a different account. An approver that is not an
    account, or is not admitted, could never answer and is invalid, too.
    """

    def __init__(
        self,
        *,
        allowed_domains: Sequence[str],
        allowed_jids: Sequence[str] | None = None,
        rules: Sequence[Rule] = (),
        confirm: When = "destructive",
        peers: Sequence[PeerRule] = (),
    ) -> None:
        """Read the lists; None for `allowed_jids` allows all."""
        read = EntryReader()
        self._peers = {
            canonical_address(jid): number
            for number, peer in enumerate(peers)
            for jid in read.jids(f"peer.{peer.name}.jid", (peer.jid,)) or ()
        }
        self._names = [peer.name for peer in peers]
        self._concurrency = [peer.concurrency for peer in peers]
        self._open_tasks = [peer.open_tasks for peer in peers]
        self._needs_grant = [peer.requires_grant for peer in peers]
        self._offers = [pattern(peer.offers) for peer in peers]
        self._delegates = [pattern(peer.delegates) for peer in peers]
        self._origins = [read.domains(f"peer.{peer.name}.origins", peer.origins) for peer in peers]
        self._confirms_of = {peer.name: peer.confirm for peer in peers}
        lists = {"agent": (allowed_jids, allowed_domains)} | {
            f"policy.rules[{index}]": (rule.allowed_jids, rule.allowed_domains)
            for index, rule in enumerate(rules)
        }
        self._sections = tuple(lists)
        self._gates = [
            _Gate(
                read.jids(f"{section}.allowed_jids", jids),
                read.domains(f"{section}.allowed_domains", domains),
            )
            for section, (jids, domains) in lists.items()
        ]
        passes = self._gates[0].passes
        self._approvers = [
            None
            if rule.approvers is None
            else _with_room(
                rule,
                *read.approvers(f"policy.rules[{index}].approvers", rule.approvers, passes),
            )
            for index, rule in enumerate(rules)
        ]
        read.finish()
        self._confirm = confirm
        self._confirms = [rule.confirm for rule in rules]
        self._patterns = [pattern(rule.skills) for rule in rules]
        self._restricting = [
            (bit, pattern(rule.skills))
            for bit, rule in enumerate(rules, start=2)
            if rule.allowed_jids is not None or rule.allowed_domains is not None
        ]
        self._view = functools.lru_cache(_CACHE_ENTRIES)(self._find_view)
        self._demand = functools.lru_cache(_CACHE_ENTRIES)(self._find_demand)

    def admits(self, principal: JID) -> bool:
        """Whether the agent answers this bare JID."""
        view = self._view(principal)
        return view < 0 or bool(view & _ADMITTED)

    def view_key(self, principal: JID) -> ViewKey:
        """Return the view of this bare JID, which all principals with the same rights share."""
        return self._view(principal)

    def admitted_view_key(self, principal: JID) -> ViewKey:
        """Return the view that a bare JID would have if it was admitted. The rules apply to it."""
        view = self._view(principal)
        return view if view < 0 else ViewKey(view | _ADMITTED)

    def may_use(self, view: ViewKey, skill: str, *, hidden: bool = False) -> bool:
        """Whether a principal with this view may use the skill; nobody may use a hidden one."""
        if hidden:
            return False
        if view < 0:
            offered = self._offers[-1 - view].fullmatch(skill)
            return offered is not None and not self.is_of_peer(skill) and skill != ASKS_PEERS
        kept = len(skill) <= _MAX_CACHED_CHARACTERS
        demand = self._demand(skill) if kept else self._find_demand(skill)
        return view & demand == demand

    @property
    def has_peers(self) -> bool:
        """Whether there is any agent elsewhere that may delegate work."""
        return bool(self._peers)

    def is_of_peer(self, skill: str) -> bool:
        """Whether this is the name of a skill of a peer."""
        return self._peer_of(skill) is not None

    def is_peer(self, principal: JID) -> bool:
        """Whether this bare JID is an address of a peer."""
        return self._view(principal) < 0

    def concurrency(self, principal: JID) -> int | None:
        """Return how many tasks of a peer run at a time; None if it is not a peer."""
        view = self._view(principal)
        return self._concurrency[-1 - view] if view < 0 else None

    def open_tasks(self, principal: JID) -> int | None:
        """Return how many tasks of a peer are open at a time; None if it is not a peer."""
        view = self._view(principal)
        return self._open_tasks[-1 - view] if view < 0 else None

    def may_delegate(self, principal: JID, skill: str) -> bool:
        """Whether work for a principal may use a skill that the principal itself does not see: one
        of a peer, for another peer.
        """
        view = self._view(principal)
        return view < 0 and self._delegates[-1 - view].fullmatch(skill) is not None

    def needs_grant(self, principal: JID) -> bool:
        """Whether work for a principal needs a chain of grants."""
        view = self._view(principal)
        return view < 0 and self._needs_grant[-1 - view]

    def believes(self, principal: JID, origin: JID) -> bool:
        """Whether a principal may ask in the name of a bare JID (DLG-011): a peer for the people of
        its domains, an account for those of its own domain.
        """
        view = self._view(principal)
        domains = self._origins[-1 - view] if view < 0 else {principal.domain}
        return domains is None or origin.domain in domains

    def may_profit(self, origin: JID, skill: str) -> bool:
        """Whether work may be done for an origin as far as the policy knows it (DLG-010): people
        of other domains than those of `allowed_domains` are subject to the sender's rights alone.
        """
        known = self._gates[0].knows(origin.domain)
        return not known or self.may_use(self._view(origin), skill)

    def refusals(self, principal: JID, skill: str = "") -> list[str]:
        """Return the settings that refuse a bare JID, or a skill to it, such as
        `agent.allowed_domains`; for people who ask why.
        """
        bare, view = principal.bare, self._view(principal)
        if view < 0:
            if not skill or self.may_use(view, skill):
                return []
            return [f"peer.{self._names[-1 - view]}.offers"]
        found = self._gates[0].refusing(bare)
        keys = [f"{self._sections[0]}.{key}" for key in found]
        if not keys and skill and bare.local is None:
            keys.append("peer, which does not name this service")
        for index, each in enumerate(self._patterns, start=1):
            if skill and each.fullmatch(skill):
                refusing = self._gates[index].refusing(bare)
                keys += [f"{self._sections[index]}.{key}" for key in refusing]
        return keys

    def asking(self, skill: str) -> ConfirmationRule:
        """When a person is asked before this skill runs, and who if approvers are set."""
        matched = [index for index, each in enumerate(self._patterns) if each.fullmatch(skill)]
        when = [found for index in matched if (found := self._confirms[index]) is not None]
        asked = [named for index in matched if (named := self._approvers[index]) is not None]
        peer = self._peer_of(skill)
        default = (None if peer is None else self._confirms_of[peer]) or self._confirm
        return ConfirmationRule(when[0] if when else default, *(asked[0] if asked else ()))

    @property
    def rules_with_rooms(self) -> dict[str, ConfirmationRule]:
        """The rules that name a room, by their keys."""
        found: dict[str, ConfirmationRule] = {}
        for index, named in enumerate(self._approvers):
            if named is not None and named[1] is not None and named[1].room is not None:
                rule = ConfirmationRule(self._confirms[index] or self._confirm, *named)
                found[f"policy.rules[{index}]"] = rule
        return found

    @property
    def rooms(self) -> tuple[JID, ...]:
        """The rooms that rules name, each once."""
        rooms = [rule.room.jid for rule in self.rules_with_rooms.values() if rule.room is not None]
        return tuple(dict.fromkeys(rooms))

    def _peer_of(self, skill: str) -> str | None:
        """Return the name of the peer whose skill it is; None if it is that of no peer."""
        peer, dot, _ = skill.partition(".")
        return peer if dot and peer in self._confirms_of else None

    def _find_view(self, principal: JID) -> ViewKey:
        bare = principal.bare
        number = self._peers.get(canonical_address(bare))
        if number is not None:
            return ViewKey(-1 - number)
        admitted, *rules = (gate.passes(bare) for gate in self._gates)
        passed = (admitted, bare.local is not None, *rules)
        return ViewKey(sum(bit << index for index, bit in enumerate(passed)))

    def _find_demand(self, skill: str) -> int:
        # It is asked for each skill of a list, so rules that everybody passes are left out.
        rules = sum(1 << bit for bit, each in self._restricting if each.fullmatch(skill))
        return _ADMITTED | _ACCOUNT | rules
