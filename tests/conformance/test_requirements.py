"""The frozen set, its profiles, and the checks that it names."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from conformance import cli
from conformance.checks import all_checks
from conformance.requirements import VERSIONS, Specification, fingerprint, load
from conformance.runner import ONE_ANSWER
from conformance.selection import SelectionError, select
from conformance.watches import TABLE, watches
from tests.xep.protoxep.document import document

SPECIFICATION = load()
CHECKS = all_checks()
OBSERVERS: list[Any] = [*CHECKS, *watches(0)]


def observers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"RUL-004": {ONE_ANSWER}}
    for name, observes in [(one.name, one.observes) for one in OBSERVERS]:
        for id_ in observes:
            found.setdefault(id_, set()).add(name)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_set_is_changed_on_purpose_or_not_at_all(version: str) -> None:
    specification = load(version)
    assert specification.version == version
    assert fingerprint(specification) == specification.frozen, (
        f"The sentences, levels or profiles of version {version} are others than those that were"
        f" frozen. Is that meant? Then conformance/versions/{version}.toml has to say so."
    )


def test_any_change_of_a_set_is_seen() -> None:
    first, *rest = SPECIFICATION.requirements
    for changed in (
        [*rest],
        [replace(first, level="MAY"), *rest],
        [replace(first, sentence=first.sentence + " "), *rest],
        [replace(first, profile="tasks"), *rest],
    ):
        other = replace(SPECIFICATION, requirements=tuple(changed))
        assert fingerprint(other) != SPECIFICATION.frozen


def test_versions_can_be_chosen() -> None:
    assert cli.VERSIONS == VERSIONS
    with pytest.raises(ValueError, match="There is no version 1; there are 0"):
        load("1")


def test_each_requirement_is_in_one_profile() -> None:
    assert Counter(one.profile for one in SPECIFICATION.requirements).keys() == {
        profile.name for profile in SPECIFICATION.profiles
    }


def test_what_the_checks_observe_are_requirements_that_can_be_observed() -> None:
    for id_ in observers():
        assert SPECIFICATION.by_id[id_].unobservable == "", id_


def test_each_row_names_a_check_that_observes_it() -> None:
    for id_, names in observers().items():
        assert SPECIFICATION.by_id[id_].check in names, id_


def test_every_requirement_has_a_check_or_a_reason_why_it_has_none() -> None:
    written = observers()
    for one in SPECIFICATION.requirements:
        assert bool(one.check) != bool(one.unobservable), one.id
        assert one.unobservable or "::" in one.check or one.id in written, one.id


def test_checks_have_names_and_titles_of_their_own() -> None:
    names = [one.name for one in OBSERVERS]
    assert len(names) == len(set(names))
    for one in CHECKS:
        assert re.fullmatch(r"[a-z0-9]+(\.[a-z0-9-]+)+", one.name)
        assert one.title
        assert one.observes
        assert not one.title.endswith(".")


def test_the_table_of_errors_is_that_of_the_specification() -> None:
    (table,) = [one for one in document().iter("table") if one.get("caption") == "Failures"]
    rows = [["".join(cell.itertext()) for cell in row] for row in list(table)[1:]]
    written = {
        re.split(r"[, ]", row[2])[0]: re.split(r"[, ]", row[1])[0]
        for row in rows
        if row[2] != "none"
    }
    assert dict(TABLE) == written


@pytest.mark.parametrize(
    ("word", "contains", "leaves_out"),
    [
        ("EXE-003", "EXE-003", "EXE-004"),
        ("EXE", "EXE-004", "RPL-001"),
        ("exe-003", "EXE-003", "EXE-004"),
        ("params", "EXE-005", "EXE-009"),
        ("confirm", "CNF-001", "EXE-009"),
        ("execute.arrays", "EXE-003", "EXE-004"),
    ],
)
def test_words_select_requirements_and_checks(word: str, contains: str, leaves_out: str) -> None:
    found = select([word], SPECIFICATION, CHECKS)
    assert contains in found.ids
    assert leaves_out not in found.ids
    assert all(set(one.observes) & found.ids for one in found.checks)


def test_no_word_selects_everything() -> None:
    found = select([], SPECIFICATION, CHECKS)
    assert found.checks == CHECKS
    assert found.ids == {one.id for one in SPECIFICATION.requirements}


def test_a_word_that_names_nothing_is_said() -> None:
    with pytest.raises(SelectionError, match="'nonsense' is no profile"):
        select(["nonsense"], SPECIFICATION, CHECKS)


def test_the_specification_is_linked_by_the_sentence() -> None:
    assert isinstance(SPECIFICATION, Specification)
    assert SPECIFICATION.anchor(SPECIFICATION.by_id["EXE-012"]).endswith("#EXE-012")
