"""XEP-0356: what servers grant, as they write it, and privileged IQs."""

from xml.etree.ElementTree import fromstring

from hypothesis import given
from hypothesis import strategies as st

from xep import pubsub, pubsub_owner
from xep.binding import decode, encode, keep
from xep.forwarding import ForwardedIQ, as_received
from xep.privilege import NAMESPACE, Privilege, PrivilegedIQ

BOTH = {"get", "set"}


def granted(inside: str) -> dict[str, set[str]]:
    text = f"<privilege xmlns='{NAMESPACE}'>{inside}</privilege>"
    return {
        ns: set(types) for ns, types in decode(Privilege, fromstring(text)).iq_namespaces().items()
    }


def test_as_the_document_prints_it() -> None:
    text = (
        "<perm access='roster' type='both' push='true'/><perm access='message' type='none'/>"
        f"<perm access='iq'><namespace ns='{pubsub.NAMESPACE}' type='set'/></perm>"
        "<perm access='presence' type='roster'/>"
    )
    assert granted(text) == {pubsub.NAMESPACE: {"set"}}


def test_as_prosody_writes_it() -> None:
    text = (
        f"<perm access='iq'><namespace ns='{pubsub.NAMESPACE}' type='both'>"
        f"<namespace type='set' ns='{pubsub_owner.NAMESPACE}'/></namespace></perm>"
    )
    assert granted(text) == {pubsub.NAMESPACE: BOTH, pubsub_owner.NAMESPACE: {"set"}}


def test_what_is_not_for_iqs_or_unknown_grants_nothing() -> None:
    assert granted("<perm access='roster'><namespace ns='a' type='both'/></perm>") == {}
    assert granted("<perm access='iq'><namespace ns='a' type='all'/></perm>") == {}
    assert granted("<perm access='iq'><namespace ns='a'/><namespace type='both'/></perm>") == {}
    assert granted(
        "<perm access='iq'><namespace ns='a' type='get'><x xmlns='b'/></namespace></perm>"
    ) == {"a": {"get"}}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["get", "set", "both", "none", "?"]))
    ),
    st.booleans(),
)
def test_nested_or_side_by_side_is_the_same(namespaces: list[tuple[str, str]], nests: bool) -> None:
    text = ""
    for ns, type_ in reversed(namespaces):
        head = f"<namespace ns='{ns}' type='{type_}'"
        text = f"{head}>{text}</namespace>" if nests else f"{head}/>{text}"
    expected: dict[str, set[str]] = {}
    for ns, type_ in namespaces:
        types = {"both": BOTH, "get": {"get"}, "set": {"set"}}.get(type_, set())
        if types:
            expected[ns] = expected.get(ns, set()) | types
    assert granted(f"<perm access='iq'>{text}</perm>") == expected


def test_however_deep_it_is_nested() -> None:
    text = "<namespace ns='a' type='get'>" * 500 + "</namespace>" * 500
    assert granted(f"<perm access='iq'>{text}</perm>") == {"a": {"get"}}


def test_a_privileged_request_declares_the_namespace_of_stanzas() -> None:
    request = keep(pubsub.Pubsub(create=pubsub.Create(node="n")))
    iq = ForwardedIQ(type="set", id="sub_1", to="romeo@montaigu.lit", payloads=(request,))
    assert encode(PrivilegedIQ(iq=iq), "jabber:client") == (
        f"<privileged_iq xmlns='{NAMESPACE}'>"
        "<iq xmlns='jabber:client' type='set' id='sub_1' to='romeo@montaigu.lit'>"
        f"<pubsub xmlns='{pubsub.NAMESPACE}'><create node='n'/></pubsub></iq></privileged_iq>"
    )
    received = as_received(iq)
    assert (received.type, received.id, received.to) == ("set", "sub_1", "romeo@montaigu.lit")
    assert received.require(pubsub.Pubsub).create == pubsub.Create(node="n")
