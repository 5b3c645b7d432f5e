"""The registry: names, views, versions, pages and searches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from component.skills import DuplicateSkillError, Registry, SearchError, Skill, registry, skill
from component.skills.registry import BETWEEN, DIGEST_BYTES, Catalogue, ListedSkill


def made(name: str, description: str = "", **options: Any) -> Skill:
    @skill(name=name, description=description, inline=True, **options)
    def f(text: str) -> str:
        return text

    return f


def everything(_: str) -> bool:
    return True


def only(*names: str) -> Callable[[str], bool]:
    return lambda each: each in names


def listed(skills: tuple[Skill, ...]) -> list[str]:
    return [each.name for each in skills]


def test_skills_are_found_by_name_and_gone_through_in_order() -> None:
    b, a = made("b"), made("a")
    registry = Registry([b, a])
    assert registry.get("a") is a
    assert registry.get("c") is None
    assert len(registry) == 2
    assert list(registry) == [a, b]


def test_two_skills_of_one_name_are_refused() -> None:
    registry = Registry([made("a")])
    with pytest.raises(DuplicateSkillError, match=r"Two skills are named a, of .*made.*f and "):
        registry.add(made("a"))


def test_a_view_holds_what_is_visible() -> None:
    registry = Registry([made("a"), made("b"), made("c", hidden=True)])
    view = registry.view("k", only("b", "c"))
    assert view.get("a") is None
    assert view.get("b") is registry.get("b")
    assert view.get("c") is None
    assert view.get("d") is None
    assert list(view.names()) == ["b"]
    assert len(view) == 1


def test_policy_is_asked_for_names_that_are_not_there_too() -> None:
    asked: list[str] = []

    def visible(each: str) -> bool:
        asked.append(each)
        return True

    view = Registry([made("a")]).view("k", visible)
    assert view.get("nowhere") is None
    assert len(asked) == 1


def test_views_are_kept_by_key_and_bounded() -> None:
    registry = Registry([made("a")], views=2)
    one = registry.view(1, everything)
    registry.view(2, everything)
    assert registry.view(1, everything) is one
    registry.view(3, everything)  # drops 2, which was not asked for longest
    assert registry.view(1, everything) is one
    assert registry.view(2, only()).get("a") is None


def test_who_looks_again_has_the_view_of_those_with_the_same_rights() -> None:
    registry = Registry([made("a"), made("b")])
    asked: list[str] = []

    def key_of(asker: str) -> int:
        asked.append(asker)
        return len(asker)

    view = registry.viewer(key_of, lambda key, name: key == 5 or name == "a")
    assert view("romeo").get("b") is registry.get("b")
    assert view("julia") is view("romeo")
    assert view("mallory").get("b") is None
    assert view("mallory").get("a") is registry.get("a")
    assert asked == ["romeo", "julia", "mallory"]
    registry.add(made("c"))
    assert view("romeo").names() == ("a", "b", "c")
    assert view("mallory").names() == ("a",)


def test_an_added_skill_is_in_the_next_view() -> None:
    registry = Registry([made("a")])
    before = registry.view("k", everything)
    version = before.version
    registry.add(made("b"))
    after = registry.view("k", everything)
    assert list(after.names()) == ["a", "b"]
    assert after.version != version


def test_the_version_is_of_what_is_seen() -> None:
    registry = Registry([made("a"), made("b")])
    assert registry.view(1, only("a")).version == registry.view(2, only("a")).version
    assert registry.view(1, only("a")).version != registry.view(3, only("b")).version
    assert registry.view(1, only("a")).version == Registry([made("a")]).view(1, everything).version


@pytest.mark.parametrize(
    "options",
    [
        {"description": "other"},
        {"version": "2"},
        {"title": "Other"},
        {"tags": ["x"]},
        {"examples": ["x"]},
        {"read_only": True},
        {"idempotent": True},
        {"open_world": False},
        {"typical_duration": 1},
        {"cost_usd": 1},
        {"output_media_types": ["text/html"]},
    ],
)
def test_every_visible_difference_changes_the_version(options: dict[str, Any]) -> None:
    plain = Registry([made("a")]).view(1, everything).version
    assert Registry([made("a", **options)]).view(1, everything).version != plain


def test_a_parameter_more_changes_the_version() -> None:
    @skill(name="a", description="", inline=True)
    def f(text: str, more: int = 1) -> str:
        return text

    plain = Registry([made("a")]).view(1, everything).version
    assert Registry([f]).view(1, everything).version != plain


def test_the_version_is_the_same_in_every_process() -> None:
    program = (
        "from component.skills import Registry, skill\n"
        "from component.skills.conformance_fixtures import conformance_skills\n"
        "@skill\n"
        "def of_set(a: frozenset[str] | None = frozenset('abcdef')) -> None: ...\n"
        "print(Registry([of_set, *conformance_skills()]).view(1, lambda s: True).version)"
    )
    versions = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(versions) == 1


_all = [made(f"s{i}") for i in range(120)]
_names = sorted(each.name for each in _all)
_registry = Registry(_all)
_view = _registry.view("all", everything)


def test_names_are_sorted_and_asked_for_again_they_are_the_same() -> None:
    assert list(_view.names()) == _names
    assert _view.names() is _view.names()


def test_every_word_must_occur_somewhere() -> None:
    registry = Registry(
        [
            made("weather", "What the sky does in Paris.", tags=["Outdoors"]),
            made("walk", "Where to walk.", tags=["outdoors"]),
            made("secret", "Outdoors too.", hidden=True),
        ]
    )
    view = registry.view(1, everything)
    assert list(view.names("OUTDOORS")) == ["walk", "weather"]
    assert list(view.names("outdoors paris")) == ["weather"]
    assert list(view.names("outdoors rome")) == []
    assert len(view.names("")) == 2
    assert list(registry.view(2, only("walk")).names("outdoors")) == ["walk"]


def test_a_search_has_a_bounded_number_of_words() -> None:
    with pytest.raises(SearchError, match="at most 16 words, not 17"):
        _view.names(" ".join(map(str, range(17))))
    assert _view.names("a " * 1000) == ()


def test_a_ranked_search_puts_first_what_has_all_words_then_rare_words_and_names() -> None:
    registry = Registry(
        [
            made("b.report", "Write the report about the weather."),
            made("b.weather", "Say the temperature."),
            made("c.sky", "Draw the weather map."),
            made("d.thing", "Do the thing."),
            made("e.hidden", "weather map of the report"),
        ]
    )
    view = registry.view("k", everything)
    among = frozenset(view.names()) - {"e.hidden"}

    def ranked(*words: str) -> tuple[list[str], int]:
        names, whole = view.ranked(frozenset(words), among)
        return list(names), whole

    assert ranked("weather", "map") == (["c.sky", "b.weather", "b.report"], 1)
    assert ranked("weather") == (["b.weather", "b.report", "c.sky"], 3)
    assert ranked("write", "thing", "storm") == (["d.thing", "b.report"], 0)
    assert ranked("nothing", "else") == ([], 0)


def test_a_skill_that_is_removed_is_in_no_view_from_then_on() -> None:
    @skill(read_only=True)
    def one() -> str:
        """One."""
        return "1"

    registry = Registry([one])
    changes: list[int] = []
    registry.listen(lambda: changes.append(len(registry)))
    view_of = registry.viewer(lambda asker: asker, lambda _key, _name: True)
    assert view_of("ann").names() == ("one",)
    registry.remove("one")
    assert view_of("ann").names() == ()
    with pytest.raises(KeyError):
        registry.remove("one")
    registry.add(one)
    assert view_of("ann").names() == ("one",)
    assert changes == [0, 1]


class Counted(Catalogue):
    """A catalogue that counts what it makes."""

    source = "somewhere"

    def __init__(self, *names: str, release: str = "1") -> None:
        self.made: list[str] = []
        self.digests = b"".join(f"{name} {release}".ljust(DIGEST_BYTES).encode() for name in names)
        self.listed = [ListedSkill(name, number, self) for number, name in enumerate(names)]
        self.searched = BETWEEN.join([f"{name}\nabout {name}" for name in names])

    def make(self, name: str, number: int) -> Skill | None:
        assert self.listed[number].name == name
        self.made.append(name)
        return None if name == "p.bad" else made(name)

    def title(self, number: int) -> str:
        return f"The {self.listed[number].name}"


def test_a_skill_of_a_catalogue_is_made_at_its_first_look_up() -> None:
    catalogue = Counted("p.a", "p.b", "p.c")
    registry = Registry([made("own")])
    registry.offer("p", catalogue.listed)
    view = registry.view("k", everything)
    assert view.names() == ("own", "p.a", "p.b", "p.c")
    assert view.names("about p.b") == ("p.b",)
    assert len(view.version) == 32
    assert [one.name for one in view.made()] == ["own"]
    assert [one.title for one in view.entries()] == ["Own", "The p.a", "The p.b", "The p.c"]
    assert catalogue.made == []
    found = view.get("p.b")
    assert found is not None
    assert found.name == "p.b"
    assert view.get("p.b") is found
    assert registry.get("p.b") is found
    assert catalogue.made == ["p.b"]


def test_of_skills_of_catalogues_those_that_were_used_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_MADE_KEPT", 2)
    catalogue = Counted("p.a", "p.b", "p.c")
    skills = Registry()
    skills.offer("p", catalogue.listed)
    for name in ("p.a", "p.b", "p.a", "p.c", "p.a", "p.b"):
        assert skills.get(name) is not None
    assert catalogue.made == ["p.a", "p.b", "p.c", "p.b"]


def test_an_offer_touches_only_the_skills_of_its_source() -> None:
    one, other = Counted("p.a", "p.b"), Counted("q.a")
    registry = Registry()
    registry.offer("p", one.listed)
    registry.offer("q", other.listed)
    before = registry.get("q.a")
    version = registry.view("k", everything).version
    changed = Counted("p.a", "p.c", release="2")
    registry.offer("p", changed.listed)
    assert registry.names() == ("p.a", "p.c", "q.a")
    assert registry.get("q.a") is before
    assert registry.view("k", everything).version != version
    assert other.made == ["q.a"]
    registry.offer("p", ())
    assert registry.names() == ("q.a",)


def test_a_skill_that_cannot_be_made_is_not_found() -> None:
    registry = Registry()
    registry.offer("p", Counted("p.bad").listed)
    assert registry.view("k", everything).get("p.bad") is None
    assert list(registry) == []


def test_a_view_without_catalogues_has_none_of_their_skills() -> None:
    asked: list[str] = []

    def visible(name: str) -> bool:
        asked.append(name)
        return True

    registry = Registry([made("own")])
    registry.offer("p", Counted("p.a").listed)
    view = registry.view("k", visible, catalogues=False)
    assert view.names() == ("own",)
    assert view.get("p.a") is None
    assert view.entry("p.a") is None
    assert "p.a" not in asked


def test_a_catalogue_takes_no_name_of_others() -> None:
    registry = Registry([made("p.a")])
    (refused,) = registry.offer("p", Counted("p.a", "p.b").listed)
    assert refused.skill == "p.a"
    assert "and somewhere:" in str(refused)
    assert registry.names() == ("p.a", "p.b")
