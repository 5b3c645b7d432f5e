"""Selects the checks to run: all of them, or those of some profiles, requirements or names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.model import Check
from conformance.requirements import Specification


class SelectionError(ValueError):
    """A word selects nothing; the sentence lists what can be selected."""


@dataclass(frozen=True)
class Selection:
    """The selected requirements and checks.

    Attributes:
        ids: the requirements that get a verdict.
        checks: the checks that observe at least one of them.
    """

    ids: frozenset[str]
    checks: tuple[Check, ...]


def select(
    words: Iterable[str], specification: Specification, checks: Sequence[Check]
) -> Selection:
    """Parse words such as ``EXE-012``, ``EXE``, ``confirm`` or ``execute.arrays``.

    Without words everything is selected.

    Raises:
        SelectionError: a word selects nothing.
    """
    ids: set[str] = set()
    chosen: set[str] = set()
    for word in words:
        named = {one.name: set(one.observes) for one in checks if one.name == word.lower()}
        found = _ids(word, specification)
        if not named and not found:
            profiles = ", ".join(one.name for one in specification.profiles)
            raise SelectionError(
                f"{word!r} is no profile ({profiles}), no requirement such as EXE-012, no family"
                " of them such as EXE, no section such as params, and no check such as"
                " execute.arrays. See --list."
            )
        ids |= found.union(*named.values())
        chosen |= set(named) or {one.name for one in checks if found & set(one.observes)}
    if not ids:
        return Selection(frozenset(specification.by_id), tuple(checks))
    return Selection(frozenset(ids), tuple([one for one in checks if one.name in chosen]))


def _ids(word: str, specification: Specification) -> set[str]:
    upper, lower = word.upper(), word.lower()
    return {
        one.id
        for one in specification.requirements
        if one.id == upper
        or one.id.partition("-")[0] == upper
        or lower in (one.profile, one.section)
    }
