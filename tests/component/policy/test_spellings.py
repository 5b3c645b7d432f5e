"""No spelling of a refused domain gets in, and none passes for a domain that is admitted."""
# ruff: noqa: RUF001 - the look-alikes are what is tested

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.router.addresses import ComponentAddresses
from component.link.router.route_resolver import Senders
from component.policy import Policy
from xep.jid import JID

OWN = "agent.example.com"
ADMITTED = "example.com"
STOPS = (".", "\u3002", "\uff0e", "\uff61")
ENDS = ("", *STOPS)


def senders(*domains: str) -> Senders:
    return Senders(Policy(allowed_domains=domains).admits, ComponentAddresses(JID.parse(OWN)))


def spellings(domain: str) -> list[str]:
    """The same domain with every full stop, with and without one at its end, in odd letters."""
    labels = domain.split(".")
    found = []
    for stops in itertools.product(STOPS, repeat=len(labels) - 1):
        joined = labels[0] + "".join(map("".join, zip(stops, labels[1:], strict=True)))
        wide = joined.replace("e", "ｅ")
        found += [form + end for form in (joined, joined.upper(), wide) for end in ENDS]
    return found


@pytest.mark.parametrize("sender", ["{}", "alice@{}", "alice@{}/phone"])
def test_only_the_prepared_spelling_of_an_admitted_domain_is_admitted(sender: str) -> None:
    known = senders(ADMITTED)
    for spelling in spellings(ADMITTED):
        found = known.of(sender.format(spelling))
        assert found.admitted == (spelling == ADMITTED), spelling
        assert (found.jid is None) == (spelling != ADMITTED)
        assert "domainpart" in found.refusal or found.admitted


@pytest.mark.parametrize("sender", ["{}", "assistant@{}"])
def test_nobody_passes_for_us(sender: str) -> None:
    known = senders()
    for spelling in spellings(OWN):
        assert known.of(sender.format(spelling)).admitted == (spelling == OWN), spelling


def test_two_spellings_never_are_one_principal_beside_another() -> None:
    known = senders("*")
    principals = {known.of(f"alice@{spelling}").principal for spelling in spellings(ADMITTED)}
    assert principals == {None, JID("alice", ADMITTED, None)}


@given(st.text(st.characters() | st.sampled_from("exampl.cｏm。．｡@/\u00ad\u200d"), max_size=14))
def test_whatever_is_delivered_is_admitted_by_its_own_name_only(domain: str) -> None:
    found = senders(ADMITTED).of(f"alice@{domain}")
    assert not found.admitted or domain.partition("/")[0] == ADMITTED
