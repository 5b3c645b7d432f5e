"""Which addresses are ours: those of a domain, or one account."""

import pytest

from component.link.router.addresses import AccountAddresses, Addresses, ComponentAddresses, online
from component.link.router.table import Host
from xep.jid import JID

DOMAIN = "agent.example.com"
ACCOUNT = "helper@example.com"
COMPONENT = ComponentAddresses(JID.parse(DOMAIN), frozenset(("assistant",)))
CLIENT = AccountAddresses(JID.parse(ACCOUNT))


@pytest.mark.parametrize(
    ("text", "iq", "host"),
    [
        (None, True, "component"),
        (DOMAIN, True, "component"),
        (f"assistant@{DOMAIN}", True, "agent"),
        (f"assistant@{DOMAIN}/x", False, "agent"),
        (f"assistant@{DOMAIN}/x", True, None),
        (f"other@{DOMAIN}", False, None),
        ("assistant@example.com", False, None),
        ("@", False, None),
    ],
)
def test_a_component_has_a_domain(text: str | None, iq: bool, host: Host | None) -> None:
    to, found = COMPONENT.find(text, iq=iq)
    assert found == host
    if text not in (None, "@"):
        assert str(to) == text, "it keeps a resource, from which a message is answered"


def test_an_iq_to_the_resource_that_is_online_is_one_to_the_bare_address() -> None:
    for bare in (JID.parse(DOMAIN), JID.parse(f"assistant@{DOMAIN}")):
        to, host = COMPONENT.find(str(online(bare)), iq=True)
        assert to == bare
        assert host is not None


def test_all_addresses_are_the_domain_and_those_of_agents_or_the_account() -> None:
    domain = JID.parse(DOMAIN)
    several = ComponentAddresses(domain, frozenset(("second", "assistant")))
    agents = [JID.parse(f"{name}@{DOMAIN}") for name in ("assistant", "second")]
    assert several.all() == (domain, *agents)
    assert CLIENT.all() == (JID.parse(ACCOUNT),)


@pytest.mark.parametrize("iq", [True, False])
@pytest.mark.parametrize(
    ("text", "host"),
    [
        (None, "agent"),
        (ACCOUNT, "agent"),
        (f"{ACCOUNT}/agent", "agent"),
        ("example.com", None),
        ("other@example.com/agent", None),
        ("@", None),
    ],
)
def test_a_client_has_one_account(text: str | None, iq: bool, host: Host | None) -> None:
    to, found = CLIENT.find(text, iq=iq)
    assert found == host
    if host is not None:
        assert str(to) == ACCOUNT, "whatever resource the server has given"


@pytest.mark.parametrize(
    ("ours", "own", "other"),
    [
        (COMPONENT, f"any@{DOMAIN}", "any@example.com"),
        (CLIENT, f"{ACCOUNT}/phone", "other@example.com"),
    ],
)
def test_what_only_we_can_have_sent(ours: Addresses, own: str, other: str) -> None:
    assert ours.is_own(JID.parse(own))
    assert not ours.is_own(JID.parse(other))
    assert ours.is_own(ours.default)


def test_the_agent_at_an_address() -> None:
    assert COMPONENT.agent_at(JID.parse(f"researcher@{DOMAIN}")) == "researcher"
    assert COMPONENT.agent_at(JID.parse(DOMAIN)) == "assistant"
    assert CLIENT.agent_at(JID.parse(ACCOUNT)) == "assistant"
