"""The specification as HTML: well-formed, whole, and with links that lead somewhere."""

from xml.etree import ElementTree as ET

from docs.specification import SOURCE, read, render, with_schemas
from tests.xep.protoxep.document import document, examples, sentences

PAGE = render(read(SOURCE.read_text("utf-8")))
HTML = ET.fromstring(PAGE.removeprefix("<!DOCTYPE html>"))


def test_ids_are_unique_and_every_link_resolves() -> None:
    ids = [one.get("id") for one in HTML.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    for link in HTML.iter("a"):
        href = link.get("href", "")
        assert href.startswith("https://") or href.removeprefix("#") in ids, href


def test_nothing_is_left_out() -> None:
    spans = {one.get("id"): one for one in HTML.iter("span") if one.get("id")}
    for id_, _, text in sentences(document()):
        shown = " ".join("".join(spans[id_].itertext()).split())
        assert shown == f"{text}{id_}"
    listings = [("".join(pre.itertext())).strip() for pre in HTML.iter("pre")]
    for _, text in examples():
        assert text.strip() in listings
    root = document()
    cells = sum(1 for one in root.iter() if one.tag in ("td", "th"))
    assert cells == sum(1 for one in HTML.iter() if one.tag in ("td", "th"))
    for section in root.iter():
        if section.tag.startswith("section"):
            assert f'id="{section.get("anchor")}"' in PAGE


def test_what_is_empty_is_written_so_that_browsers_take_it_for_empty() -> None:
    void = {"meta"}
    for one in HTML.iter():
        assert one.tag in void or len(one) or one.text, one.tag


def test_the_schemas_are_put_in() -> None:
    text = SOURCE.read_text("utf-8")
    assert with_schemas(text) == text
    spoilt = text.replace("<xs:element name='malformed' ", "<xs:element name='mal' ")
    assert spoilt != text
    assert with_schemas(spoilt) == text
