"""Sources: they change their skills while calls are under way, and one that fails is run again."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from hypothesis import given
from hypothesis import strategies as st

from component.skills import Registry, Skill, skill, sources
from component.skills.errors import SkillLoadError
from component.skills.inputs import schema_inputs
from component.skills.sources import FromSettings, Offer, SkillSources
from component.skills.spec import Annotations

pytestmark = pytest.mark.anyio


def made(name: str, version: str = "1.0.0") -> Skill:
    @skill(name=name, version=version, read_only=True)
    def each() -> str:
        """Do something."""
        return version

    return each


class Scripted:
    """A source that does what a test says."""

    name = "scripted"

    def __init__(self, *runs: Callable[[Offer, TaskStatus[None]], Any]) -> None:
        self.runs = list(runs)
        self.offers: list[Offer] = []

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        self.offers.append(offer)
        await self.runs.pop(0)(offer, task_status)


async def offers_one(offer: Offer, started: TaskStatus[None]) -> None:
    offer([made("one")])
    started.started()
    await anyio.sleep_forever()


async def fails(offer: Offer, started: TaskStatus[None]) -> None:
    raise SkillLoadError("The server cannot be reached.")


async def breaks(offer: Offer, started: TaskStatus[None]) -> None:
    raise RuntimeError("a fault")


async def test_skills_of_a_source_are_there_when_it_has_started() -> None:
    registry = Registry([made("own")])
    async with anyio.create_task_group() as group:
        await group.start(SkillSources(registry, [Scripted(offers_one)]).run)
        assert registry.names() == ("one", "own")
        group.cancel_scope.cancel()


@pytest.mark.parametrize("first", [fails, breaks])
async def test_a_source_that_fails_twice_offers_its_skills_at_the_third_run(
    first: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_FIRST_WAIT_S", 0.001)
    registry = Registry()
    source = Scripted(first, first, offers_one)
    there = anyio.Event()
    registry.listen(there.set)
    async with anyio.create_task_group() as group:
        await group.start(SkillSources(registry, [source]).run)
        with anyio.fail_after(120):
            await there.wait()
        group.cancel_scope.cancel()
    assert registry.names() == ("one",)


async def test_the_service_does_not_wait_for_a_slow_source_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hangs(offer: Offer, started: TaskStatus[None]) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(sources, "START_S", 0.01)
    registry = Registry()
    slow, quick = Scripted(hangs), Scripted(offers_one)
    slow.name = "slow"
    async with anyio.create_task_group() as group:
        with anyio.fail_after(120):
            await group.start(SkillSources(registry, [slow, quick]).run)
        group.cancel_scope.cancel()
    assert registry.names() == ("one",)


def test_a_new_version_replaces_the_old_one_and_a_call_keeps_its_own() -> None:
    registry = Registry()
    registry.offer("a", [made("one", "1.0.0")])
    view = registry.view("all", lambda _: True)
    under_way = view.get("one")
    registry.offer("a", [made("one", "2.0.0")])
    now = registry.view("all", lambda _: True).get("one")
    assert under_way is not None
    assert under_way.version == "1.0.0"
    assert now is not None
    assert now.version == "2.0.0"


def test_who_discovers_is_told_only_of_changes() -> None:
    registry = Registry()
    changes: list[int] = []
    registry.listen(lambda: changes.append(len(registry)))
    one = made("one")
    registry.offer("a", [one])
    registry.offer("a", [one])
    registry.offer("a", [])
    assert changes == [1, 0]


_NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.lists(_NAMES, max_size=4)), max_size=12))
def test_a_name_stays_with_the_source_that_had_it_first(
    offers: Sequence[tuple[str, list[str]]],
) -> None:
    registry = Registry([made("a")])
    owners: dict[str, str] = {"a": ""}
    for source, names in offers:
        refused = registry.offer(source, [made(name) for name in names])
        owners = {name: owner for name, owner in owners.items() if owner != source}
        taken = 0
        for name in names:
            if name in owners:
                taken += 1
            else:
                owners[name] = source
        assert len(refused) == taken
        assert registry.names() == tuple(sorted(owners))
        for each in registry:
            assert registry.get(each.name) is each


def described(version: str = "1.2.0", **fields: Any) -> Skill:
    schema = {"type": "object", "properties": fields.pop("properties", {})}
    given: dict[str, Any] = {"name": "a", "version": version, "input_schema": schema, **fields}
    return Skill(
        inputs=schema_inputs(schema),
        kind="inline",
        wants_context=False,
        invoke=lambda _arguments, _context: "",
        versioned_by_content=True,
        **given,
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"description": "Other."},
        {"title": "Other"},
        {"properties": {"text": {"type": "string"}}},
        {"annotations": Annotations(read_only=True, destructive=False)},
        {"output_schema": {"type": "object"}},
        {"examples": ("More",)},
        {"version": "1.3.0"},
    ],
)
def test_a_skill_of_a_source_has_another_version_when_it_changes(changed: dict[str, Any]) -> None:
    assert described().version.startswith("1.2.0+sha256.")
    assert described().version == described().version
    assert described(**changed).version != described().version


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64))
def test_a_copy_of_a_skill_has_the_version_of_its_content(version: str) -> None:
    one = described(version)
    assert dataclasses.replace(one).version == one.version
    other = dataclasses.replace(one, description="Other.")
    assert other.version != one.version
    assert dataclasses.replace(other, description="").version == one.version


class Declared(FromSettings):
    """A source of settings, which says when it is started and stopped."""

    def __init__(self, told: list[str], name: str, *offered: str) -> None:
        self.name = name
        self._told = told
        self._offered = offered

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        self._told.append(f"{self.name} started")
        offer([made(name) for name in self._offered])
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            self._told.append(f"{self.name} stopped")


async def test_of_other_sources_only_those_that_differ_are_stopped_and_started() -> None:
    told: list[str] = []
    source = partial(Declared, told)
    registry = Registry()
    async with anyio.create_task_group() as group:
        found = SkillSources(
            registry, [source("same", "a"), source("changed", "b"), source("gone", "c")]
        )
        await group.start(found.run)
        assert registry.names() == ("a", "b", "c")
        told.clear()
        await found.replace([source("same", "a"), source("changed", "d"), source("new", "e")])
        assert registry.names() == ("a", "d", "e")
        assert sorted(told) == ["changed started", "changed stopped", "gone stopped", "new started"]
        assert told.index("changed stopped") < told.index("changed started")
        group.cancel_scope.cancel()


async def test_the_skills_of_a_source_that_has_changed_stay_until_it_offers_others() -> None:
    async def comes_later(offer: Offer, started: TaskStatus[None]) -> None:
        assert registry.names() == ("one",)
        offer([made("two")])
        started.started()

    registry = Registry()
    async with anyio.create_task_group() as group:
        found = SkillSources(registry, [Scripted(offers_one)])
        await group.start(found.run)
        await found.replace([Scripted(comes_later)])
        assert registry.names() == ("two",)
        group.cancel_scope.cancel()
