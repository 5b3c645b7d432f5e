"""Service discovery: who is here, what is served, which skills there are."""

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.pubsub.handlers import FEATURES
from component.link.router.table import Host
from component.policy import Rule
from component.skills import Skill, skill
from tests.component.link.router.wire import AGENT, DOMAIN, condition, error_of
from tests.component.world import (
    ALICE,
    BOB,
    CONTACT,
    FORM,
    NODE,
    World,
    all_skills,
    result,
)
from xep import (
    caps,
    chat_markers,
    commands,
    data_forms,
    disco,
    entity_time,
    explicit_encryption,
    fluux_agent,
    message_replies,
    ping,
    reactions,
    receipts,
    result_sets,
    user_avatar,
    vcard4,
    vcard_temp,
    version,
)
from xep.fluux_agent import confirm, execute, task
from xep.fluux_agent import skills as fluux
from xep.fluux_agent.errors import Malformed
from xep.result_sets import First, ResultSet

SKILLS = fluux.NAMESPACE
HOSTS: Sequence[tuple[str, Host, str | None]] = [
    (DOMAIN, "component", None),
    (AGENT, "agent", "assistant"),
]
each_host = pytest.mark.parametrize(("to", "host", "agent"), HOSTS)


def made(name: str, title: str | None = None) -> Skill:
    @skill(name=name, title=title, inline=True)
    def f() -> None:
        """Do nothing."""

    return f


def info(
    world: World, to: str = AGENT, node: str | None = None, from_: str = ALICE
) -> disco.InfoQuery:
    return result(disco.InfoQuery, world.ask(disco.InfoQuery(node=node), to=to, from_=from_))


def items(
    world: World,
    node: str | None = SKILLS,
    page: ResultSet | None = None,
    *,
    to: str = AGENT,
    from_: str = ALICE,
) -> disco.ItemsQuery:
    asked = disco.ItemsQuery(node=node, page=page)
    ask = world.ask if node == SKILLS else world.ask_stored
    return result(disco.ItemsQuery, ask(asked, to=to, from_=from_))


def page_of(answer: disco.ItemsQuery) -> ResultSet:
    assert answer.page is not None
    return answer.page


# -- info ----------------------------------------------------------------------------------------


def test_what_the_domain_and_the_agent_are() -> None:
    world = World()
    assert info(world, DOMAIN).identities == (
        disco.Identity(category="component", type="generic", name="Service"),
        disco.Identity(category="pubsub", type="service"),
    )
    assert info(world, AGENT).identities == (
        disco.Identity(category="client", type="bot", name="Assistant"),
        disco.Identity(category="pubsub", type="pep"),
    )


@each_host
def test_the_features_are_those_that_are_served(to: str, host: Host, agent: str | None) -> None:
    world = World()
    features = [feature.var for feature in info(world, to).features]
    assert features == list(world.bench.router.table.features(host))
    assert features == sorted(set(features))
    assert set(features) == {
        disco.INFO,
        disco.ITEMS,
        result_sets.NAMESPACE,
        caps.NAMESPACE,
        ping.NAMESPACE,
        version.NAMESPACE,
        entity_time.NAMESPACE,
        message_replies.NAMESPACE,
        explicit_encryption.NAMESPACE,
        reactions.NAMESPACE,
        receipts.NAMESPACE,
        chat_markers.NAMESPACE,
        fluux_agent.NAMESPACE,
        SKILLS,
        execute.NAMESPACE,
        task.NAMESPACE,
        confirm.NAMESPACE,
        vcard_temp.NAMESPACE,
        vcard4.NAMESPACE,
        commands.NAMESPACE,
        data_forms.NAMESPACE,
    } | set(FEATURES)


@each_host
def test_the_form_says_more(to: str, host: Host, agent: str | None) -> None:
    form, restrictions, contact = info(World(), to).forms
    assert contact.form_type == "http://jabber.org/network/serverinfo"
    assert [(field.var, field.values) for field in contact.fields[1:]] == [
        ("support-addresses", (CONTACT,))
    ]
    assert form.type == "result"
    assert restrictions.form_type == reactions.RESTRICTIONS
    assert [field.values for field in restrictions.fields[1:]] == [
        ("1",),
        ("\U0001f44d", "\U0001f44e"),
    ]
    assert form.form_type == fluux_agent.NAMESPACE
    fields = {field.var: field.values for field in form.fields if field.var != "FORM_TYPE"}
    name = "Service" if host == "component" else "Assistant"
    assert fields == {"agent_name": (name,)} | {var: (value,) for var, value in FORM.items()}


@each_host
def test_the_caps_of_presence_are_the_hash_of_the_answer(
    to: str, host: Host, agent: str | None
) -> None:
    world = World()
    said = world.disco.caps(host, agent)
    assert (said.hash, said.node) == ("sha-1", NODE)
    node = f"{NODE}#{said.ver}"
    answer = info(world, to, node)
    assert answer.node == node
    assert caps.verification_string(answer.identities, answer.features, answer.forms) == said.ver
    plain = info(world, to)
    assert (plain.identities, plain.features, plain.forms) == (
        answer.identities,
        answer.features,
        answer.forms,
    )


def test_domain_and_agent_have_capabilities_of_their_own() -> None:
    world = World()
    ver = world.disco.caps("component", None).ver
    assert ver != world.disco.caps("agent", "assistant").ver
    assert condition(world.ask_stored(disco.InfoQuery(node=f"{NODE}#{ver}"))) == "item-not-found"


@pytest.mark.parametrize(
    "node", ["", "x", NODE, f"{NODE}#", SKILLS + "/", SKILLS + "/no", SKILLS + "x"]
)
@pytest.mark.parametrize("query", [disco.InfoQuery, disco.ItemsQuery])
def test_there_is_nothing_at_other_nodes(
    node: str, query: type[disco.InfoQuery] | type[disco.ItemsQuery]
) -> None:
    assert condition(World(all_skills()).ask_stored(query(node=node))) == "item-not-found"


def test_skills_have_a_node_and_each_has_one_below() -> None:
    world = World([made("one", "The one")])
    above = info(world, node=SKILLS)
    assert above.node == SKILLS
    assert above.identities == (
        disco.Identity(category="hierarchy", type="branch", name="Skills"),
        disco.Identity(category="pubsub", type="leaf"),
    )
    below = info(world, node=f"{SKILLS}/one")
    assert below.node == f"{SKILLS}/one"
    assert below.identities == (disco.Identity(category="hierarchy", type="leaf", name="The one"),)


# -- items ---------------------------------------------------------------------------------------


TASKS = f"{fluux_agent.NAMESPACE}#tasks"
NODES = [TASKS, user_avatar.DATA, user_avatar.METADATA, vcard4.NODE]


def test_the_agents_and_its_nodes_belong_to_the_domain() -> None:
    answer = items(World(all_skills()), None, to=DOMAIN)
    found = [(str(item.jid), item.node, item.name) for item in answer.items]
    assert (AGENT, None, "Assistant") in found
    assert {node for jid, node, _ in found if jid == DOMAIN} == {SKILLS, *NODES}
    assert page_of(answer).count == len(found)


def test_the_nodes_of_an_agent_belong_to_it() -> None:
    answer = items(World(all_skills()), None)
    assert {str(item.jid) for item in answer.items} == {AGENT}
    assert [item.node for item in answer.items] == sorted([SKILLS, *NODES])
    assert page_of(answer).count == 5


@pytest.mark.parametrize("to", [DOMAIN, AGENT])
def test_skills_are_items_at_their_node(to: str) -> None:
    world = World(all_skills())
    answer = items(world, to=to)
    names = [each.name for each in world.registry if not each.hidden]
    assert names == sorted(names)
    assert [item.node for item in answer.items] == [f"{SKILLS}/{name}" for name in names]
    assert {str(item.jid) for item in answer.items} == {to}
    assert [item.name for item in answer.items] == [
        each.title for each in world.registry if not each.hidden
    ]
    assert answer.node == SKILLS


def test_each_sees_its_own_skills() -> None:
    def make() -> World:
        rules = [Rule(("closed",), allowed_domains=("b.example",))]
        return World([made("open"), made("closed")], rules=rules)

    world = make()
    seen = {who: [item.name for item in items(world, from_=who).items] for who in (ALICE, BOB)}
    assert seen == {ALICE: ["Open"], BOB: ["Closed", "Open"]}
    assert page_of(items(world, from_=ALICE)).count == 1
    # What is not seen is not there: the same bytes as for a name that never was.
    replies = [
        make().ask_stored(disco.InfoQuery(node=f"{SKILLS}/{name}")) for name in ("closed", "absent")
    ]
    assert [list(map(ElementTree.tostring, reply)) for reply in replies[:1]] == [
        list(map(ElementTree.tostring, reply)) for reply in replies[1:]
    ]
    assert info(world, node=f"{SKILLS}/closed", from_=BOB).node == f"{SKILLS}/closed"


# -- pages ---------------------------------------------------------------------------------------

_NAMES = [f"s{n:03}" for n in range(120)]
_WORLD = World([made(name) for name in _NAMES])


def names_of(answer: disco.ItemsQuery) -> list[str]:
    return [(item.node or "").removeprefix(f"{SKILLS}/") for item in answer.items]


@given(size=st.none() | st.integers(1, 200))
def test_following_the_disco_pages_gives_every_skill_once(size: int | None) -> None:
    forwards: list[str] = []
    while True:
        answer = items(_WORLD, page=ResultSet(max=size, after=forwards[-1] if forwards else None))
        found = names_of(answer)
        if not found:
            break
        page = page_of(answer)
        assert page.count == len(_NAMES)
        assert page.first == First(key=found[0], index=len(forwards))
        assert page.last == found[-1]
        assert len(found) <= min(size or 50, 50)
        forwards += found
    backwards: list[str] = []
    while found := names_of(
        items(_WORLD, page=ResultSet(max=size, before=backwards[0] if backwards else ""))
    ):
        backwards = found + backwards
    assert forwards == backwards == _NAMES


@given(index=st.integers(0, 200), size=st.none() | st.integers(0, 100))
def test_a_page_can_be_asked_for_by_its_place(index: int, size: int | None) -> None:
    answer = items(_WORLD, page=ResultSet(index=index, max=size))
    assert names_of(answer) == _NAMES[index : index + min(50 if size is None else size, 50)]
    assert page_of(answer).count == len(_NAMES)


def test_a_client_without_paging_gets_every_entry_that_fits() -> None:
    answer = items(_WORLD)
    assert names_of(answer) == _NAMES
    assert page_of(answer) == ResultSet(
        first=First(key=_NAMES[0], index=0), last=_NAMES[-1], count=len(_NAMES)
    )


def test_a_disco_page_of_size_0_holds_only_the_count() -> None:
    answer = items(_WORLD, page=ResultSet(max=0))
    assert answer.items == ()
    assert page_of(answer) == ResultSet(count=len(_NAMES))


@pytest.mark.parametrize(
    "page", [ResultSet(max=-1), ResultSet(index=-1), ResultSet(index=1, after="s001")]
)
@pytest.mark.parametrize("node", [None, SKILLS])
def test_an_invalid_disco_page_is_a_bad_request(page: ResultSet, node: str | None) -> None:
    error = error_of(_WORLD.ask(disco.ItemsQuery(node=node, page=page), to=DOMAIN))
    assert (error.condition, error.application) == ("bad-request", (Malformed(),))


def test_a_page_is_no_larger_than_anybody_has_to_take() -> None:
    names = [f"s{n:02}" for n in range(60)]
    world = World([made(name, title="é" * 4_000) for name in names])
    for before in (False, True):
        found: list[str] = []
        while len(found) < len(names):
            edge = (found[0] if before else found[-1]) if found else None
            asked = ResultSet(before=edge or "") if before else ResultSet(after=edge)
            page = names_of(items(world, page=asked))
            assert page
            assert len(world.bench.output.sent[-1].encode()) <= 65_536
            found = page + found if before else found + page
        assert found == names
