"""Skill discovery: which skills there are for whom, and how each is used."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.tasks_iq.handlers import describe
from component.policy import Rule
from component.skills import Skill, skill
from tests.component.link.router.wire import condition, error_of
from tests.component.world import ALICE, BOB, World, all_skills, result
from xep.fluux_agent import skills as fluux
from xep.fluux_agent.errors import Malformed, UnknownSkill
from xep.fluux_agent.skills import SkillDescription, SkillsQuery
from xep.result_sets import First, ResultSet


def made(name: str, description: str = "Do nothing.", **options: Any) -> Skill:
    @skill(name=name, description=description, inline=True, **options)
    def f(text: str = "") -> str:
        return text

    return f


def query(world: World, from_: str = ALICE, **asked: Any) -> SkillsQuery:
    return result(SkillsQuery, world.ask(SkillsQuery(**asked), from_=from_))


def names(answer: SkillsQuery) -> list[str]:
    return [each.name for each in answer.skills]


def only(answer: SkillsQuery) -> SkillDescription:
    (found,) = answer.skills
    return found


# -- one skill -----------------------------------------------------------------------------------


def test_a_skill_asked_for_by_name_is_described_whole() -> None:
    @skill(
        name="report",
        version="2.1.0",
        title="Report",
        read_only=True,
        tags=("research", "text"),
        examples=("What is new?",),
        typical_duration=1.5,
        cost_usd=0.0000001,
    )
    def report(topic: str, years: list[int], style: Literal["short", "long"] = "short") -> int:
        """Write a report.

        Args:
            topic: What it is about.
            years: Which years.
        """
        return len(topic)

    answer = query(World([report, made("other")]), skill="report")
    assert answer.page == ResultSet(first=First(key="report", index=0), last="report", count=1)
    assert answer.ttl == 60
    found = only(answer)
    assert (found.name, found.version, found.tags) == ("report", "2.1.0", ("research", "text"))
    assert found.titles == (fluux.Title(text="Report", lang="en"),)
    assert found.descriptions == (fluux.Description(text="Write a report.", lang="en"),)
    assert found.examples == (fluux.Example(text="What is new?", lang="en"),)
    assert found.media == (
        fluux.Media(direction="input", type="text/plain"),
        fluux.Media(direction="input", type="application/json"),
        fluux.Media(direction="output", type="application/json"),
    )
    assert found.annotations == fluux.Annotations(
        read_only=True, destructive=False, idempotent=False, open_world=True
    )
    assert found.typical == fluux.Typical(duration_ms=1500, cost_usd=Decimal("0.0000001"))
    assert [(param.name, param.type, param.required) for param in found.params] == [
        ("topic", "string", True),
        ("years", "array", True),
        ("style", "string", False),
    ]
    assert found.params[0].descriptions == (fluux.Description(text="What it is about.", lang="en"),)


@pytest.mark.parametrize("each", [s for s in all_skills() if not s.hidden], ids=lambda s: s.name)
def test_schemas_are_valid_json(each: Skill) -> None:
    found = only(query(World(all_skills()), skill=each.name))
    schemas = {schema.direction: msgspec.json.decode(schema.json) for schema in found.schemas}
    assert schemas["input"] == each.input_schema
    assert schemas["input"]["type"] == "object"
    assert schemas.get("output") == each.output_schema


def test_a_skill_without_typical_values_says_nothing_of_them() -> None:
    found = only(query(World([made("x", description="")]), skill="x"))
    assert found.typical is None
    assert found.descriptions == ()


def test_lists_come_without_schemas() -> None:
    assert all(each.schemas == () for each in query(World(all_skills())).skills)


def test_a_skill_that_is_not_for_the_asker_is_not_there() -> None:
    world = World(
        [made("closed"), made("hidden", hidden=True)],
        rules=[Rule(("closed",), allowed_jids=("bob@b.example",))],
    )
    for name in ("closed", "hidden", "never-was", "", "x" * 1_000):
        error = error_of(world.ask(SkillsQuery(skill=name)))
        assert (error.condition, error.application) == ("item-not-found", (UnknownSkill(),))
    assert len(set(world.bench.output.sent)) == 1
    assert query(world).skills == ()
    assert only(query(world, BOB, skill="closed")).name == "closed"


# -- search --------------------------------------------------------------------------------------


def test_words_are_searched_for() -> None:
    world = World(
        [
            made("translate", "Put a text into another language.", tags=("text",)),
            made("summary", "Make a TEXT shorter."),
            made("time", "Tell the time."),
        ]
    )
    assert names(query(world, search="text")) == ["summary", "translate"]
    assert names(query(world, search="Text LANGUAGE")) == ["translate"]
    assert names(query(world, search="nothing")) == []
    assert names(query(world, search=" ")) == names(query(world)) != []
    found = query(world, search="text", page=ResultSet(max=1))
    assert (names(found), found.page and found.page.count) == (["summary"], 2)


def test_a_search_of_too_many_words_is_a_bad_request() -> None:
    error = error_of(World().ask(SkillsQuery(search=" ".join(f"w{n}" for n in range(17)))))
    assert (error.condition, error.application) == ("bad-request", (Malformed(),))
    assert "16" in error.text


# -- version -------------------------------------------------------------------------------------


def test_who_has_the_version_is_told_that_nothing_changed() -> None:
    world = World(all_skills())
    version = query(world).version
    assert version
    assert query(world, version=version) == SkillsQuery(version=version, ttl=60, unchanged=True)
    assert query(world, version=version, search="echo").unchanged
    stale = query(world, version=version[:-1])
    assert not stale.unchanged
    assert stale.version == version
    assert stale.skills


def test_the_version_is_the_same_whatever_was_asked_for() -> None:
    world = World(all_skills())
    asked: Iterable[dict[str, Any]] = (
        {"skill": "echo"},
        {"search": "echo"},
        {"page": ResultSet(max=1)},
        {"page": ResultSet(max=0)},
        {"search": "nothing at all"},
    )
    assert {query(world, **each).version for each in asked} == {query(world).version}


def test_the_version_tells_apart_who_sees_what_and_nothing_else() -> None:
    rules = [Rule(("closed",), allowed_domains=("b.example",))]
    skills = [made("open"), made("closed")]
    world = World(skills, rules=rules)
    alice, bob = query(world).version, query(world, BOB).version
    assert alice != bob
    assert query(world, "carol@a.example/x").version == alice
    # Stable: in another process, whatever the order, and whatever else is hidden.
    again = World([*reversed(skills), made("more", hidden=True)], rules=rules)
    assert (query(again).version, query(again, BOB).version) == (alice, bob)
    assert query(World([made("open")])).version == alice


@pytest.mark.parametrize(
    "changed", [made("a", "Other."), made("a", version="2.0.0"), made("a", read_only=True)]
)
def test_the_version_changes_with_a_description(changed: Skill) -> None:
    assert query(World([made("a")])).version != query(World([changed])).version


@pytest.mark.parametrize(
    "options", [{"title": "Other"}, {"read_only": True}, {"tags": ("new",)}, {"version": "2"}]
)
@pytest.mark.parametrize("asked", [{}, {"skill": "a"}, {"search": "a"}])
def test_a_new_version_comes_with_the_description_that_it_was_computed_from(
    options: dict[str, Any], asked: dict[str, Any]
) -> None:
    world = World([])
    world.registry.offer("mcp.s", [made("a", "Before.")])
    before = query(world, **asked)
    changed = made("a", "After.", **options)
    world.registry.offer("mcp.s", [changed])
    after = query(world, **asked)
    assert after.version != before.version
    shown = msgspec.structs.replace(only(after), schemas=())
    assert shown == describe(changed)


def test_what_a_source_withdraws_and_offers_again_is_described_as_it_is_then() -> None:
    world = World([])
    for text in ("first", "second", "first"):
        world.registry.offer("mcp.s", [made("a", text)])
        assert only(query(world)).descriptions[0].text == text
        world.registry.offer("mcp.s", [])
        assert query(world).skills == ()


# -- pages ---------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.sampled_from([0, 100, 2_000, 30_000, 70_000]), max_size=130),
    most=st.none() | st.integers(1, 60),
    backwards=st.booleans(),
)
def test_following_the_pages_gives_every_skill_once(
    sizes: list[int], most: int | None, backwards: bool
) -> None:
    world = World([made(f"s{n:03}", "é" * (size // 2)) for n, size in enumerate(sizes)])
    found: list[str] = []
    while len(found) < len(sizes):
        edge = (found[0] if backwards else found[-1]) if found else None
        asked = ResultSet(
            max=most,
            after=None if backwards else edge,
            before=(edge or "") if backwards else None,
        )
        answer = query(world, page=asked)
        page = names(answer)
        assert 1 <= len(page) <= min(most or 50, 50)
        # One that is larger than a page by itself still has to be seen.
        assert len(world.bench.output.sent[-1].encode()) <= 65_536 or len(page) == 1
        assert answer.page is not None
        assert answer.page.count == len(sizes)
        index = len(sizes) - len(found) - len(page) if backwards else len(found)
        assert answer.page.first == First(key=page[0], index=index)
        assert answer.page.last == page[-1]
        found = page + found if backwards else found + page
    assert found == [f"s{n:03}" for n in range(len(sizes))]


def test_a_skills_page_of_size_0_holds_only_the_count() -> None:
    answer = query(World([made("a"), made("b")]), page=ResultSet(max=0))
    assert (answer.skills, answer.page) == ((), ResultSet(count=2))


def test_a_page_that_cannot_be_is_a_bad_request() -> None:
    assert condition(World().ask(SkillsQuery(page=ResultSet(max=-1)))) == "bad-request"


def test_a_skills_query_of_type_set_is_refused() -> None:
    assert condition(World().ask(SkillsQuery(), type_="set")) == "service-unavailable"
