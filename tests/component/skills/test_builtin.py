"""The skills that every installation has, and the fixtures of the conformance kit."""

from __future__ import annotations

import datetime
import json
import sys
import zoneinfo
from collections.abc import Iterator
from typing import Any

import pytest

from component.skills import (
    Context,
    InvalidParam,
    Output,
    Registry,
    SkillResult,
    call,
    prepare,
)
from component.skills.builtin import builtin_skills
from component.skills.calling import Threads
from component.skills.conformance_fixtures import conformance_skills
from component.skills.operations import PlainHost

pytestmark = pytest.mark.anyio


@pytest.fixture
def registry() -> Registry:
    return Registry([*builtin_skills(), *conformance_skills()])


async def run(
    registry: Registry, name: str, sent: dict[str, Any] | None = None, **texts: str
) -> SkillResult:
    made = registry.get(name)
    assert made is not None
    context = Context(principal="a@b", sender="a@b/c", skill=name)
    arguments = prepare(made, texts.items(), None if sent is None else json.dumps(sent))
    return await call(made, arguments, context, Threads(1, 1).share("ann"))


@pytest.mark.parametrize("name", ["echo", "conformance.echo"])
async def test_echo_says_what_it_was_told(registry: Registry, name: str) -> None:
    assert (await run(registry, name, text=" hé\n")).outputs == (Output(" hé\n"),)


async def test_time_is_given_in_the_zone_asked_for(registry: Registry) -> None:
    for zone, hours in (("UTC", 0), ("Asia/Tokyo", 9)):
        text = (await run(registry, "time", zone=zone)).outputs[0].text
        told = datetime.datetime.fromisoformat(text)
        assert told.utcoffset() == datetime.timedelta(hours=hours)
    assert (await run(registry, "time")).outputs[0].text.endswith("+00:00")


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "Europe", "../etc/passwd", "/etc/passwd", "\0"])
async def test_an_unknown_zone_is_an_invalid_parameter(registry: Registry, zone: str) -> None:
    with pytest.raises(InvalidParam, match="zone: expected an IANA time zone"):
        await run(registry, "time", zone=zone)


@pytest.fixture
def _no_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # What has been imported of the package is found by its own name.
    for name in {"tzdata", *(each for each in sys.modules if each.startswith("tzdata."))}:
        monkeypatch.setitem(sys.modules, name, None)
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()


@pytest.mark.usefixtures("_no_zones")
async def test_a_system_without_zones_is_said_to_have_none(registry: Registry) -> None:
    result = await run(registry, "time", zone="Europe/Paris")
    assert result.is_error
    assert "install Debian's tzdata" in result.outputs[0].text


async def test_conformance_add_adds_two_integers_and_refuses_others(registry: Registry) -> None:
    result = await run(registry, "conformance.add", a="-2", b="5")
    assert result.outputs == (Output("3", "application/json"),)
    with pytest.raises(InvalidParam, match=r"^a: expected an integer$"):
        await run(registry, "conformance.add", a="x", b="1")
    with pytest.raises(InvalidParam, match="a: expected an integer <="):
        await run(registry, "conformance.add", a="9" * 4000, b="1")


async def test_types_says_what_it_understood(registry: Registry) -> None:
    texts = {"colour": "blue", "flag": "0", "ratio": "0.5", "words": "one"}
    result = await run(registry, "conformance.types", {"point": {"x": 1, "y": 2}}, **texts)
    assert json.loads(result.outputs[0].text) == {
        "colour": "blue",
        "flag": False,
        "ratio": 0.5,
        "words": ["one"],
        "note": None,
        "point": {"x": 1, "y": 2},
    }


async def test_sleep_is_bounded(registry: Registry) -> None:
    assert (await run(registry, "conformance.sleep", seconds="0")).outputs
    with pytest.raises(InvalidParam, match="seconds: expected a number <= 3600"):
        await run(registry, "conformance.sleep", seconds="3601")


async def test_count_counts_by_key_and_for_each_set_alone(registry: Registry) -> None:
    counted = [(await run(registry, "conformance.count", key=key)).outputs[0].text for key in "aab"]
    assert counted == ["1", "2", "1"]
    other = Registry(conformance_skills())
    assert (await run(other, "conformance.count", key="a")).outputs[0].text == "1"


async def test_progress_reports_every_step(registry: Registry) -> None:
    reports: list[float] = []

    async def report(fraction: float, text: str) -> None:
        reports.append(fraction)

    made = registry.get("conformance.progress")
    assert made is not None
    context = Context(principal="a@b", sender="a@b/c", skill=made.name, host=PlainHost(report))
    await call(made, prepare(made, [("steps", "4")]), context, Threads(1, 1).share("ann"))
    assert reports == [0.25, 0.5, 0.75, 1]


async def test_fail_runs_and_says_no(registry: Registry) -> None:
    result = await run(registry, "conformance.fail", message="no")
    assert result.is_error
    assert result.outputs == (Output("no"),)


async def test_big_is_as_big_as_asked_for(registry: Registry) -> None:
    result = await run(registry, "conformance.big", bytes="100000")
    assert len(result.outputs[0].text.encode()) == 100_000
    with pytest.raises(InvalidParam, match="bytes: expected an integer <= 67108864"):
        await run(registry, "conformance.big", bytes="67108865")


def test_what_is_hidden_is_in_no_view(registry: Registry) -> None:
    view = registry.view("all", lambda _: True)
    assert view.get("conformance.hidden") is None
    assert view.names("hidden") == ()
    assert registry.get("conformance.hidden") is not None


def test_annotations_say_what_the_kit_relies_on(registry: Registry) -> None:
    marks = {each.name: each.annotations for each in registry}
    assert {name for name, mark in marks.items() if mark.destructive} == {"conformance.erase"}
    assert {name for name, mark in marks.items() if not mark.repeatable} == {
        "conformance.ask",
        "conformance.say",
        "conformance.steps",
        "conformance.count",
        "conformance.erase",
    }
    assert all(not mark.open_world for mark in marks.values())


def test_every_parameter_is_described(registry: Registry) -> None:
    undescribed = [
        (each.name, param.name)
        for each in registry
        for param in each.inputs.params
        if not param.description
    ]
    assert not undescribed
    assert all(each.description for each in registry)
