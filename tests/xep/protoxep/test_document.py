"""The specification is a document of the XSF's format, whole and in agreement with itself."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree

import protocol_schemas
from tests.xep.protoxep.document import (
    ID,
    KEYWORD,
    PATH,
    document,
    elsewhere,
    requirements,
    sentences,
)
from xep.fluux_agent import errors
from xep.stanza_error import DEFAULT_TYPES

ROOT = PATH.parents[2]
# A checkout of the XSF's repository; its DTD is not ours to keep.
CHECKOUT = os.environ.get("XSF_XEPS", "")


def by_our_grammar(folder: Path) -> None:
    grammar = etree.RelaxNG(file=str(Path(__file__).with_name("xep-document.rng")))
    copy = folder / PATH.name
    # The legal notice is the XSF's own text, which only a checkout of theirs has.
    copy.write_text(PATH.read_text("utf-8").replace("&LEGALNOTICE;", "<legal/>"), "utf-8")
    parser = etree.XMLParser(load_dtd=False, no_network=True, remove_comments=True)
    assert grammar.validate(etree.parse(str(copy), parser)), str(grammar.error_log)


def by_the_dtd_of_the_xsf(folder: Path) -> None:
    for name in ("xep.dtd", "xep.ent"):
        shutil.copy(Path(CHECKOUT) / name, folder / name)
    copy = folder / PATH.name
    shutil.copy(PATH, copy)
    parser = etree.XMLParser(dtd_validation=True, load_dtd=True, no_network=True)
    root = etree.parse(str(copy), parser).getroot()
    assert root.find("header/legal/copyright") is not None


@pytest.mark.parametrize(
    "judge", [by_our_grammar, by_the_dtd_of_the_xsf] if CHECKOUT else [by_our_grammar]
)
def test_the_specification_is_a_valid_document(
    judge: Callable[[Path], None], tmp_path: Path
) -> None:
    judge(tmp_path)


def test_every_link_of_the_specification_has_a_target() -> None:
    root = document()
    anchors = [one.get("anchor") for one in root.iter() if one.get("anchor")]
    assert len(anchors) == len(set(anchors))
    for link in root.iter("link"):
        url = link.get("url", "")
        assert url.startswith("https://") or url.removeprefix("#") in anchors, url


def test_every_table_has_rows_as_wide_as_its_head() -> None:
    for table in document().iter("table"):
        widths = {len(row) for row in table}
        assert len(widths) == 1, table.get("caption")


def test_the_schemas_in_it_are_those_that_are_shipped() -> None:
    shown = {
        code.get("caption"): (code.text or "").lstrip("\n")
        for code in document().iter("code")
        if code.get("caption", "").endswith((".xsd", ".json"))
    }
    folder = Path(protocol_schemas.__file__).parent
    paths = (*folder.glob("*.xsd"), folder / "plan.schema.json")
    assert shown == {path.name: path.read_text("utf-8") for path in paths}


# -- normative sentences -------------------------------------------------------------------------


def test_every_sentence_has_its_row_and_every_row_its_sentence() -> None:
    written = [(id_, section, text) for id_, section, text in sentences(document())]
    listed = [(row["id"], row["section"], row["sentence"]) for row in requirements()]
    assert listed == written
    assert len({id_ for id_, _, _ in written}) == len(written)


def test_every_sentence_says_one_thing_in_capitals_and_nothing_else_does() -> None:
    for row in requirements():
        assert KEYWORD.findall(row["sentence"]) == [row["level"]], row["id"]
        assert ID.fullmatch(row["id"])
        assert row["sentence"].endswith((".", ":")), row["id"]
    for text in elsewhere(document()):
        assert KEYWORD.search(text) is None, text


def test_every_row_names_what_observes_it_or_why_nothing_can() -> None:
    for row in requirements():
        assert set(row) in (
            {"id", "section", "level", "sentence", "check"},
            {"id", "section", "level", "sentence", "check", "test"},
            {"id", "section", "level", "sentence", "unobservable"},
        ), row["id"]
        _assert_is_there(row.get("test"))
        check = row.get("check")
        if check is None:
            assert row["unobservable"].endswith(".")
        elif "::" in check:
            _assert_is_there(check)
        else:
            assert re.fullmatch(r"[a-z0-9]+(\.[a-z0-9-]+)+", check), check


def _assert_is_there(test: str | None) -> None:
    if test is not None:
        path, _, name = test.partition("::")
        source = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), test


# -- the table of errors -------------------------------------------------------------------------


def _rows(caption: str) -> list[list[str]]:
    (table,) = [one for one in document().iter("table") if one.get("caption") == caption]
    return [["".join(cell.itertext()) for cell in row] for row in list(table)[1:]]


MADE = [
    errors.malformed("x"),
    errors.invalid_param("a", "x"),
    errors.unknown_skill(),
    errors.unknown_task(),
    errors.unknown_input(),
    errors.unknown_confirmation(),
    errors.forbidden("x"),
    errors.mode_unavailable("async"),
    errors.delegation_unavailable(),
    errors.grant_required(),
    errors.invalid_grant("expired", "x"),
    errors.confirmation_unavailable(),
    errors.denied(),
    errors.confirmation_expired(),
    errors.input_expired(),
    errors.expired(),
    errors.deadline_expired(),
    errors.conflict("x"),
    errors.busy(1),
    errors.over_quota(1),
    errors.budget_exhausted(),
    errors.too_big(1),
    errors.loop(),
    errors.hops_exceeded(),
    errors.timed_out(repeatable=False),
    errors.remote_failure(repeatable=False),
    errors.outcome_unknown(),
    errors.internal(),
]


def test_the_table_of_failures_is_the_one_that_is_served() -> None:
    listed = [(row[1].split(",")[0], row[2].split(",")[0]) for row in _rows("Failures")]
    made = [(error.condition, error.application[0].xml.local) for error in MADE]
    without = ("service-unavailable", "jid-malformed", "feature-not-implemented")
    assert listed == [*made, *((condition, "none") for condition in without)]
    assert {type(error.application[0]) for error in MADE} == set(errors.CONDITIONS)
    for error, row in zip(MADE, _rows("Failures"), strict=False):
        assert error.type == DEFAULT_TYPES[error.condition] or "of type" in row[1]
