"""The help text has groups that people can take in, whatever features are on."""

import pkgutil
from collections import Counter
from importlib import import_module

import component.features
from component.commands import GROUPS, AnyOutline, Outline


def outlines() -> list[AnyOutline]:
    """The commands of all features."""
    found: dict[int, AnyOutline] = {}
    for module in pkgutil.walk_packages(component.features.__path__, "component.features."):
        if module.name.endswith("commands"):
            values = vars(import_module(module.name)).values()
            found.update((id(one), one) for one in values if isinstance(one, Outline))
    return list(found.values())


def test_each_group_has_at_most_seven_commands() -> None:
    names = {(one.group, one.name) for one in outlines()}
    assert len(names) > 40, "all of them are found"
    counts = Counter(group for group, _ in names)
    assert max(counts.values()) <= 7, counts
    assert set(counts) == set(GROUPS)


def test_a_command_for_admins_in_the_place_of_another_is_for_other_things() -> None:
    """A list of one's own that admins also have stays where it is; `/status` is of the service."""
    by_name: dict[str, set[str]] = {}
    for one in outlines():
        by_name.setdefault(one.name, set()).add(one.group)
    assert {name for name, groups in by_name.items() if len(groups) > 1} == {"status"}
