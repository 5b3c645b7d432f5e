"""Trees of elements that nobody declared, and their digests."""

from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xep.binding import ContentError, RawXML
from xep.tree import tree_and_digest, tree_of

NAMES = st.sampled_from(["a", "b", "{urn:one}a", "{urn:two}a", "{urn:one}b"])
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5)


@st.composite
def elements(draw: st.DrawFn, depth: int = 2) -> ET.Element:
    element = ET.Element(draw(NAMES), draw(st.dictionaries(NAMES, TEXT, max_size=3)))
    element.text = draw(TEXT)
    if depth:
        for child in draw(st.lists(elements(depth=depth - 1), max_size=3)):
            child.tail = draw(TEXT)
            element.append(child)
    return element


def digest(element: ET.Element | str) -> str:
    text = element if isinstance(element, str) else ET.tostring(element, "unicode")
    return tree_and_digest(RawXML(text))[1]


def rewritten(element: ET.Element) -> ET.Element:
    """The same content with its attributes in another order."""
    copy = ET.Element(element.tag, dict(reversed(element.attrib.items())))
    copy.text, copy.tail = element.text, element.tail
    copy.extend(map(rewritten, element))
    return copy


@given(elements())
def test_the_digest_does_not_depend_on_how_content_is_written(element: ET.Element) -> None:
    expected = digest(element)
    assert digest(rewritten(element)) == expected
    assert digest(ET.canonicalize(ET.tostring(element, "unicode"))) == expected


@given(elements(), elements())
def test_different_content_has_different_digests(one: ET.Element, two: ET.Element) -> None:
    alike = (
        ET.canonicalize(ET.tostring(each, "unicode"), rewrite_prefixes=True) for each in (one, two)
    )
    assert (digest(one) == digest(two)) == (len(set(alike)) == 1)


def test_prefixes_do_not_count() -> None:
    assert digest("<n:a xmlns:n='urn:one'><n:b/></n:a>") == digest("<a xmlns='urn:one'><b/></a>")


DIFFERENT = (
    "<a/>",
    "<a xmlns='urn:one'/>",
    "<a>x</a>",
    "<a>x<b/></a>",
    "<a><b/>x</a>",
    "<a><b>x</b></a>",
    "<a><b/></a>",
    "<a><b/><b/></a>",
    "<a><b><b/></b></a>",
    "<a x='1'/>",
    "<a x='2'/>",
    "<a x='1' y='2'/>",
    "<a xmlns:n='urn:one' n:x='1'/>",
    "<a> </a>",
)


@pytest.mark.parametrize(("one", "two"), list(combinations(DIFFERENT, 2)))
def test_each_part_counts(one: str, two: str) -> None:
    assert digest(one) != digest(two)


@given(elements())
def test_the_tree_is_that_of_the_element(element: ET.Element) -> None:
    raw = RawXML(ET.tostring(element, "unicode"))
    tree, _ = tree_and_digest(raw)
    assert tree == tree_of(raw)
    assert [each.local for each in tree.walk()] == [
        each.tag.rpartition("}")[2] for each in element.iter()
    ]


@pytest.mark.parametrize("text", ["", "text", "<a>", "<a/><a/>"])
def test_text_that_is_not_xml_is_refused(text: str) -> None:
    with pytest.raises(ContentError, match="not XML"):
        tree_and_digest(RawXML(text))
