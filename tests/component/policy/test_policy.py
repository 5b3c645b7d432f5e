"""The policy: who is admitted, who may use what, and which entries are refused at start."""
# ruff: noqa: RUF001 - the look-alikes are what is tested

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy import ConfirmationRule, PeerRule, Policy, PolicyError, Rule
from component.policy import policy as policy_module
from component.policy.stringprep_profiles import nodeprep
from xep.fluux_agent.confirm import Approvals, ApproverRoom
from xep.jid import JID

ALICE = JID.parse("alice@a.example")
BOB = JID.parse("bob@a.example")
CAROL = JID.parse("carol@b.example")
SERVER = JID.parse("a.example")


def admitted(policy: Policy) -> set[JID]:
    return {jid for jid in (ALICE, BOB, CAROL, SERVER) if policy.admits(jid)}


def test_allowed_domains_admit_only_addresses_of_these_domains() -> None:
    assert admitted(Policy(allowed_domains=["a.example"])) == {ALICE, BOB, SERVER}
    assert admitted(Policy(allowed_domains=["A.EXAMPLE."])) == {ALICE, BOB, SERVER}
    assert admitted(Policy(allowed_domains=["*"])) == {ALICE, BOB, CAROL, SERVER}
    assert admitted(Policy(allowed_domains=[])) == set()
    assert admitted(Policy(allowed_domains=["example"])) == set()


def test_a_sender_must_pass_both_lists() -> None:
    both = Policy(
        allowed_domains=["a.example"], allowed_jids=["Alice@a.example", "carol@b.example"]
    )
    assert admitted(both) == {ALICE}


def test_allowed_jids_admit_only_the_addresses_they_match() -> None:
    anywhere = ["*"]
    assert admitted(Policy(allowed_domains=anywhere, allowed_jids=None)) == {
        ALICE,
        BOB,
        CAROL,
        SERVER,
    }
    assert admitted(Policy(allowed_domains=anywhere, allowed_jids=["*"])) == {
        ALICE,
        BOB,
        CAROL,
        SERVER,
    }
    assert admitted(Policy(allowed_domains=anywhere, allowed_jids=[])) == set()
    assert admitted(Policy(allowed_domains=anywhere, allowed_jids=["a.example"])) == {SERVER}


def test_rules_narrow_and_all_of_them_count() -> None:
    policy = Policy(
        allowed_domains=["a.example"],
        rules=[
            Rule(skills=("report", "erase.*"), allowed_jids=("alice@a.example", "bob@a.example")),
            Rule(skills=("*.all",), allowed_jids=("bob@a.example", "carol@b.example")),
        ],
    )

    def users(skill: str) -> set[JID]:
        everybody = (ALICE, BOB, CAROL, SERVER)
        return {jid for jid in everybody if policy.may_use(policy.view_key(jid), skill)}

    assert users("echo") == {ALICE, BOB}
    assert users("report") == {ALICE, BOB}
    assert users("reports") == {ALICE, BOB}
    assert users("erase.one") == {ALICE, BOB}
    assert users("copy.all") == {BOB}
    assert users("erase.all") == {BOB}


def test_nobody_may_use_a_hidden_skill() -> None:
    policy = Policy(allowed_domains=["*"])
    assert not policy.may_use(policy.view_key(ALICE), "echo", hidden=True)


def test_equal_rights_share_a_view() -> None:
    policy = Policy(
        allowed_domains=["*"], rules=[Rule(skills=("report",), allowed_domains=("a.example",))]
    )
    assert policy.view_key(ALICE) == policy.view_key(BOB)
    assert policy.view_key(ALICE) != policy.view_key(CAROL)


def test_what_a_client_calls_itself_does_not_matter() -> None:
    policy = Policy(allowed_domains=["*"], allowed_jids=["alice@a.example"])
    assert policy.admits(ALICE.with_resource("phone"))


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("report", ["report"], ["Report", "report.x", "a.report", "report\n"]),
        ("conformance.*", ["conformance.", "conformance.echo"], ["conformance", "conformanceX"]),
        ("r?port", ["report"], ["rport", "reeport"]),
        ("[ab]", ["[ab]"], ["a", "b"]),
        ("*a*b*", ["ab", "xaxbx"], ["ba"]),
    ],
)
def test_a_rule_applies_to_the_skills_that_its_pattern_matches(
    pattern: str, matches: list[str], others: list[str]
) -> None:
    policy = Policy(
        allowed_domains=["*"],
        rules=[Rule(skills=(pattern,), allowed_jids=()), Rule(skills=("x", pattern))],
    )
    view = policy.view_key(ALICE)
    assert [name for name in matches if policy.may_use(view, name)] == []
    assert [name for name in others if not policy.may_use(view, name)] == []


BAD_JIDS = {
    "alice@a.example/phone": "Write 'alice@a.example'",
    "fußball@a.example": "Write 'fussball@a.example'",
    "ΣΑΣ@a.example": "Write 'σασ@a.example'",
    "ς@a.example": "Write 'σ@a.example'",
    "☃@a.example": "not an address",
    "alice@straße.example": "Write 'strasse.example'",
    "\u10d0\u1c91@a.example": "do not agree on how to read",
    "*@a.example": '"*" means all, but only',
    "": "not an address",
    "\ud800@a.example": "not an address",
}
BAD_DOMAINS = {
    "alice@a.example": "Write 'a.example'",
    "a.example/x": "Write 'a.example'",
    "*.example": '"*" means all, but only',
    "straße.example": "Write 'strasse.example'",
    "xn--strae-oqa.example": "Write 'strasse.example'",
    "\u2d30.example": "do not agree on how to read",  # Tifinagh came with Unicode 4.1
    "a example": "not an address",
}


@pytest.mark.parametrize(("entry", "mend"), BAD_JIDS.items())
def test_jids_refused_at_start(entry: str, mend: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(allowed_domains=["*"], allowed_jids=[entry])
    (bad,) = caught.value.entries
    assert (bad.key, bad.entry) == ("agent.allowed_jids", entry)
    assert mend in bad.why


@pytest.mark.parametrize(("entry", "mend"), BAD_DOMAINS.items())
def test_domains_refused_at_start(entry: str, mend: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(allowed_domains=[entry])
    (bad,) = caught.value.entries
    assert (bad.key, bad.entry) == ("agent.allowed_domains", entry)
    assert mend in bad.why


def test_all_bad_entries_are_named_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(
            allowed_domains=["a b", "good.example"],
            allowed_jids=["*", "x@y"],
            rules=[
                Rule(skills=("a",), allowed_jids=("good@a.example",)),
                Rule(skills=("b",), allowed_jids=("ß@b",), allowed_domains=("@",)),
            ],
        )
    named = [(bad.key, bad.entry) for bad in caught.value.entries]
    assert named == [
        ("agent.allowed_jids", "*"),
        ("agent.allowed_domains", "a b"),
        ("policy.rules[1].allowed_jids", "ß@b"),
        ("policy.rules[1].allowed_domains", "@"),
    ]
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


def test_good_international_entries() -> None:
    policy = Policy(
        allowed_domains=["xn--bcher-kva.example", "日本.example"],
        allowed_jids=["Café@bücher.example", "дмитрий@日本.example"],
    )
    assert policy.admits(JID.parse("cafe\u0301@BÜCHER.example"))
    assert policy.admits(JID.parse("дмитрий@日本.example"))


_locals = st.text(st.characters() | st.sampled_from("aZßΣςſİǅ＠\u0301\u00adא1"), max_size=4)


@given(_locals)
def test_an_accepted_account_is_the_one_that_servers_hand_on(local: str) -> None:
    entry = f"{local}@a.example"
    try:
        policy = Policy(allowed_domains=["*"], allowed_jids=[entry])
    except PolicyError:
        return
    if not local:
        return
    served = nodeprep(local)
    assert served is not None
    assert policy.admits(JID(served, "a.example"))
    assert policy.admits(JID.parse(f"{served}@a.example"))


@given(st.text(max_size=12) | _locals.map("{}@b".format), st.booleans())
def test_nothing_but_policy_errors(entry: str, as_domain: bool) -> None:
    with contextlib.suppress(PolicyError):
        if as_domain:
            Policy(allowed_domains=[entry])
        else:
            Policy(allowed_domains=["*"], allowed_jids=[entry])


# A naive model over a small world, where lists meet often.
_names = ["a", "b"]
_domains = ["x", "y"]
_world = [JID(local, domain) for local in (None, *_names) for domain in _domains]
_skills = ["echo", "report", "report.all", "erase"]
_jid_lists = st.none() | st.just(("*",)) | st.lists(st.sampled_from(_world).map(str)).map(tuple)
_domain_lists = st.just(("*",)) | st.lists(st.sampled_from(_domains)).map(tuple)
_rules = st.builds(
    Rule,
    skills=st.lists(st.sampled_from([*_skills, "*", "report*", "e*", "????"]), min_size=1).map(
        tuple
    ),
    allowed_jids=_jid_lists,
    allowed_domains=st.none() | _domain_lists,
)


def _passes(jid: JID, jids: tuple[str, ...] | None, domains: tuple[str, ...] | None) -> bool:
    return (jids is None or jids == ("*",) or str(jid) in jids) and (
        domains is None or domains == ("*",) or jid.domain in domains
    )


def _matches(skill: str, patterns: tuple[str, ...]) -> bool:
    def match(text: str, pattern: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(match(text[i:], pattern[1:]) for i in range(len(text) + 1))
        return bool(text) and pattern[0] in ("?", text[0]) and match(text[1:], pattern[1:])

    return any(match(skill, pattern) for pattern in patterns)


@given(_jid_lists, _domain_lists, st.lists(_rules, max_size=4))
def test_the_policy_agrees_with_a_naive_model(
    jids: tuple[str, ...] | None, domains: tuple[str, ...], rules: list[Rule]
) -> None:
    policy = Policy(allowed_domains=domains, allowed_jids=jids, rules=rules)
    rights: dict[object, list[bool]] = {}
    for jid in _world:
        admitted = _passes(jid, jids, domains)
        assert policy.admits(jid) == admitted
        view = policy.view_key(jid)
        uses = []
        for skill in _skills:
            expected = (
                admitted
                and jid.local is not None
                and all(
                    _passes(jid, rule.allowed_jids, rule.allowed_domains)
                    for rule in rules
                    if _matches(skill, rule.skills)
                )
            )
            assert policy.may_use(view, skill) == expected
            uses.append(expected)
        assert rights.setdefault(view, uses) == uses


PEER = JID.parse("agent.b.example")


def test_a_peer_may_use_what_it_is_offered_and_nothing_else() -> None:
    offers = PeerRule("other", "assistant@agent.b.example", ("report", "peer.*", "other.*"))
    policy = Policy(
        allowed_domains=["a.example"],
        rules=[Rule(("report",), allowed_jids=())],
        peers=[PeerRule("peer", "bot@a.example"), offers],
    )
    for address in (PEER, JID.parse("assistant@agent.b.example/x")):
        assert policy.admits(address)
        assert policy.is_peer(address)
        view = policy.view_key(address)
        assert policy.may_use(view, "report")
        for name in ("echo", "peer.report", "other.report"):
            assert not policy.may_use(view, name), name
    silent = JID.parse("bot@a.example")
    assert not policy.may_use(policy.view_key(silent), "echo"), "not even as an account"


def test_a_service_that_is_not_a_peer_may_use_nothing() -> None:
    policy = Policy(allowed_domains=["b.example", "agent.b.example"])
    assert policy.admits(PEER)
    assert not policy.may_use(policy.view_key(PEER), "echo")


def test_a_peer_speaks_for_the_people_of_its_domains_only() -> None:
    policy = Policy(
        allowed_domains=["a.example"],
        peers=[PeerRule("other", str(PEER), ("*",), ("b.example", "c.example"))],
    )
    assert policy.believes(PEER, CAROL)
    assert not policy.believes(PEER, ALICE)
    assert policy.believes(ALICE, BOB)
    assert not policy.believes(ALICE, CAROL)


def test_an_origin_restricts_only_if_the_lists_say_who_of_its_domain_may_use_what() -> None:
    policy = Policy(
        allowed_domains=["a.example"],
        allowed_jids=[str(ALICE), str(PEER)],
        rules=[Rule(("report",), allowed_jids=(str(BOB),))],
    )
    assert policy.may_profit(ALICE, "echo")
    assert not policy.may_profit(ALICE, "report")
    assert not policy.may_profit(BOB, "echo")
    assert policy.may_profit(CAROL, "report")


def test_the_caches_of_a_policy_are_bounded() -> None:
    policy = Policy(allowed_domains=["*"])
    view = policy.view_key(ALICE)
    for number in range(policy_module._CACHE_ENTRIES + 10):
        policy.admits(JID(f"user{number}", "a.example"))
        policy.may_use(view, f"skill{number}")
    policy.may_use(view, "x" * 300)
    for cache in (policy._view, policy._demand):
        assert cache.cache_info().currsize == policy_module._CACHE_ENTRIES
    assert policy._demand.cache_info().misses == policy_module._CACHE_ENTRIES + 10


# -- who is asked first --------------------------------------------------------------------------


def test_destructive_skills_are_confirmed_unless_something_else_is_said() -> None:
    policy = Policy(allowed_domains=["a.example"])
    assert policy.asking("anything") == ConfirmationRule("destructive")
    assert Policy(allowed_domains=["*"], confirm="never").asking("x") == ConfirmationRule("never")


def test_the_first_rule_that_matches_and_says_it_counts() -> None:
    boss, other = JID.parse("boss@a.example"), JID.parse("other@a.example")
    policy = Policy(
        allowed_domains=["a.example"],
        rules=[
            Rule(("mail.*",), allowed_jids=("*",)),
            Rule(("mail.erase",), confirm="always"),
            Rule(("mail.*",), confirm="never", approvers=("boss@a.example", "other@a.example")),
            Rule(("*",), approvers=("other@a.example",)),
        ],
        confirm="destructive",
    )
    assert policy.asking("mail.erase") == ConfirmationRule("always", (boss, other))
    assert policy.asking("mail.read") == ConfirmationRule("never", (boss, other))
    assert policy.asking("pay") == ConfirmationRule("destructive", (other,))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("*", "everybody"),
        ("a.example", "domain"),
        ("boss@a.example/desk", "resource"),
        ("boss@elsewhere.example", "admitted"),
        ("boss@@", "address"),
    ],
)
def test_approvers_that_could_never_answer_are_refused(entry: str, why: str) -> None:
    with pytest.raises(PolicyError) as refused:
        Policy(allowed_domains=["a.example"], rules=[Rule(("x",), approvers=(entry,))])
    (bad,) = refused.value.entries
    assert (bad.key, bad.entry) == ("policy.rules[0].approvers", entry)
    assert why in bad.why


def test_a_rule_names_a_room_and_how_many_have_to_approve() -> None:
    policy = Policy(
        allowed_domains=["a.example"],
        rules=[
            Rule(
                ("pay",),
                approvers=("room:Ops@Rooms.example", "bob@a.example"),
                affiliation="admin",
                hat="urn:x:oncall",
                need=2,
                not_requester=True,
            ),
            Rule(("wipe",), approvers=("alice@a.example", "bob@a.example"), need=2),
        ],
    )
    room = ApproverRoom(jid=JID.parse("ops@rooms.example"), affiliation="admin", hat="urn:x:oncall")
    rule = policy.asking("pay")
    assert rule.approvers == (BOB,)
    assert rule.approvals == Approvals(need=2, requester=False, room=room)
    assert rule.description == (
        "2 of bob@a.example, the admins and owners with the hat urn:x:oncall of ops@rooms.example,"
        " not the requester"
    )
    assert policy.rooms == (room.jid,)
    assert list(policy.rules_with_rooms) == ["policy.rules[0]"]
    assert policy.asking("wipe").approvals == Approvals(need=2)
    assert policy.asking("wipe").description == "2 of alice@a.example, bob@a.example"


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (("room:rooms.example",), "service of rooms"),
        (("room:ops@rooms.example/x",), "resource"),
        (("room:",), "address"),
        (("room:ops@rooms.example", "room:lab@rooms.example"), "one room"),
    ],
)
def test_a_room_that_could_not_decide_is_refused(entries: tuple[str, ...], why: str) -> None:
    with pytest.raises(PolicyError) as refused:
        Policy(allowed_domains=["a.example"], rules=[Rule(("x",), approvers=entries)])
    (bad,) = refused.value.entries
    assert bad.key == "policy.rules[0].approvers"
    assert bad.entry == entries[-1]
    assert why in bad.why


@given(
    st.lists(st.sampled_from(["alice@a.example", "bob@a.example"]), max_size=3),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)
def test_what_a_rule_demands_is_what_it_says(
    accounts: list[str], room: bool, need: int, not_requester: bool
) -> None:
    entries = (*accounts, *(["room:ops@rooms.example"] if room else []))
    rule = Rule(("x",), approvers=entries, need=need, not_requester=not_requester)
    found = Policy(allowed_domains=["a.example"], rules=[rule]).asking("x")
    assert found.approvers == tuple(JID.parse(one) for one in dict.fromkeys(accounts))
    assert (found.room is not None) == room
    assert found.has_approvers == bool(entries)
    is_plain = not room and need == 1 and not not_requester
    assert (found.approvals is None) == is_plain
    if found.approvals is not None:
        assert (found.approvals.need, found.approvals.requester) == (need, not not_requester)
