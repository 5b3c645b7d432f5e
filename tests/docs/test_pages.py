"""The pages of the documentation: four kinds, each listed, none too long to read at once."""

import re
from pathlib import Path

import pytest

from tests.servers.guides import DOCS

KINDS = ("tutorials", "how-to", "reference", "explanation")
PAGES = sorted(page for kind in KINDS for page in (DOCS / kind).glob("*.md"))
MOST_WORDS = 2_000
"""Except for the reference, in which nobody reads from beginning to end."""


def test_every_page_is_of_one_kind_and_listed_with_its_title() -> None:
    listed = re.findall(r"^- \[(.*?)\]\((.*?)\)$", (DOCS / "README.md").read_text(), re.MULTILINE)
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in PAGES]
    names = [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert sorted(listed) == sorted(zip(titles, names, strict=True))
    assert set(DOCS.rglob("*.md")) == {*PAGES, DOCS / "README.md"}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_can_be_read_at_once(page: Path) -> None:
    if page.parent.name != "reference":
        assert len(page.read_text().split()) <= MOST_WORDS


def test_guides_say_nothing_of_the_tests_of_this_project() -> None:
    for page in PAGES:
        if page.parent.name in ("tutorials", "how-to") and page.stem != "implementers":
            text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
            assert not re.findall(r"::test_|\bthe tests run\b", text), page.name
