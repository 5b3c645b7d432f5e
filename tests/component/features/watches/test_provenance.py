"""What agents publish names the agents whose work has led to it."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.watches.filters import chain_of, with_chain
from component.features.watches.rows import note_chain, noted_chain
from tests.direct_database import DirectDatabase
from xep.binding import RawXML
from xep.fluux_agent.provenance import MOST, NAMESPACE
from xep.jid import JID
from xep.tree import tree_of

ONE, TWO = JID.parse("one@agent.example"), JID.parse("two@agent.example")
DAY_MS = 86_400_000

PAYLOADS = (
    "<e xmlns='urn:e'>text</e>",
    "<e xmlns='urn:e'/>",
    "<e/>",
    "<p:e xmlns:p='urn:p' a='/&gt;'/>",
    "<p:e xmlns:p='urn:p'><p:e/></p:e>",
    "<e xmlns='urn:e' a='&lt;/'>a &lt;/e&gt; b</e>",
    "<e xmlns='urn:e'\n  a='1'\n/>",
    '<json xmlns=\'urn:xmpp:json:0\'>{"a":"&lt;/json>"}</json>',
)
AGENTS = [JID.parse(f"agent{number}@agent.example") for number in range(MOST + 3)]
CHAINS = st.integers(0, len(AGENTS)).map(lambda length: AGENTS[:length])


@pytest.mark.parametrize("payload", PAYLOADS)
@given(chain=CHAINS)
def test_a_chain_is_read_as_it_was_written(payload: str, chain: list[JID]) -> None:
    written = with_chain(RawXML(payload), ONE, [str(one) for one in chain])
    expected = [*map(str, chain), str(ONE)][-MOST:]
    assert list(chain_of(tree_of(written))) == expected
    element = ET.fromstring(written.text)
    inside = element.findall(f"{{{NAMESPACE}}}provenance")
    assert len(inside) == 1
    element.remove(inside[0])
    assert canonical(ET.tostring(element, "unicode")) == canonical(payload)


def canonical(xml: str) -> str:
    return ET.canonicalize(xml, rewrite_prefixes=True)


def test_the_chain_grows_by_each_agent() -> None:
    first = with_chain(RawXML("<e xmlns='urn:e'/>"), ONE, ())
    assert chain_of(tree_of(first)) == (str(ONE),)
    second = with_chain(RawXML("<e xmlns='urn:e'/>"), TWO, chain_of(tree_of(first)))
    assert chain_of(tree_of(second)) == (str(ONE), str(TWO))


@given(st.lists(st.text(max_size=20)))
def test_what_outsiders_have_written_is_read_and_passed_on(texts: list[str]) -> None:
    """A chain that comes from elsewhere may hold anything; it never raises."""
    provenance = ET.Element(f"{{{NAMESPACE}}}provenance")
    for text in texts:
        ET.SubElement(provenance, f"{{{NAMESPACE}}}via").text = "".join(
            each for each in text if each.isprintable()
        )
    element = ET.Element("{urn:e}e")
    element.append(provenance)
    found = chain_of(tree_of(RawXML(ET.tostring(element, "unicode"))))
    assert all(each == each.strip() and each for each in found)
    again = chain_of(tree_of(with_chain(RawXML("<e xmlns='urn:e'/>"), ONE, found)))
    assert again[-1] == str(ONE)
    assert len(again) <= len(found) + 1


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "<e xmlns='urn:e'/>",
        "<e xmlns='urn:e'><provenance><via>a@b</via></provenance></e>",
        f"<e xmlns='urn:e'><provenance xmlns='{NAMESPACE}'/></e>",
        f"<e xmlns='urn:e'><provenance xmlns='{NAMESPACE}'><to>a@b</to></provenance></e>",
    ],
)
def test_without_a_chain_there_is_none(payload: str | None) -> None:
    assert chain_of(None if payload is None else tree_of(RawXML(payload))) == ()


def test_the_chain_of_work_is_noted_replaced_and_forgotten() -> None:
    database = DirectDatabase(DAY_MS)
    assert noted_chain(database, "watch a") == ()
    note_chain(database, "watch a", [str(ONE), str(TWO)])
    note_chain(database, "watch b", [str(ONE)])
    assert noted_chain(database, "watch a") == (str(ONE), str(TWO))
    database.jumps(400 * DAY_MS)
    note_chain(database, "watch c", [str(TWO)])
    assert noted_chain(database, "watch b") == (str(ONE),), "a wall clock that jumps forgets none"
    note_chain(database, "watch a", ())
    assert noted_chain(database, "watch a") == ()
    database.passes(8 * DAY_MS)
    note_chain(database, "watch d", [str(ONE)])
    assert noted_chain(database, "watch b") == ()
    assert noted_chain(database, "watch d") == (str(ONE),)
