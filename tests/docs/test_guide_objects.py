"""The guide to objects: its calls work one after another, and its tables are complete."""

import json
import re
from typing import Any

import msgspec
import pytest

from component.app.features import make_settings
from component.features.objects.filters import _ABOUT_MEMBERS, _ABOUT_OBJECTS, filter_of
from component.features.objects.settings import LIMITS, ObjectLimits
from component.features.objects.skills import object_skills
from component.features.objects.stored import ObjectSheet
from tests.component.features.objects.test_object_skills import result, value
from tests.component.features.objects.test_objects import opened
from tests.servers.guides import DOCS

pytestmark = pytest.mark.anyio

TEXT = (DOCS / "how-to" / "objects.md").read_text()
CALLS = re.findall(r"`(object_\w+)`[^`]*(?:`null`)?:\n\n```json\n(.*?)```", TEXT, re.DOTALL)


async def test_the_calls_of_the_guide_work_one_after_another() -> None:
    objects = opened()
    skills = {one.name: one for one in object_skills(lambda: objects)}
    assert len(CALLS) == TEXT.count("```json")
    answers: list[Any] = []
    for number, (name, params) in enumerate(CALLS):
        found = await result(skills, name, json.loads(params), key=str(number))
        answers.append(value(found) if name != "object_schema" else None)
    stored, merged, sheet, query, *_ = answers
    assert (stored["version"], merged["version"]) == (1, 2)
    title = {"title": "Write the report", "status": "done", "effort": {"hours": 5}}
    assert (sheet["data"], sheet["tags"]) == (title, ["work"])
    assert query == {"objects": [], "total": 0}


def test_the_table_of_operators_has_all_and_each_filter_can_be_used() -> None:
    table = TEXT[TEXT.index("| operator |") :].partition("\n\n")[0]
    filters = [json.loads(each) for each in re.findall(r"`(\{.*?\})`[ ,|]", table)]
    assert len(filters) == table.count("\n") - 1
    for each in filters:
        filter_of(each)
    assert set(re.findall(r"\$\w+", table)) == {*_ABOUT_MEMBERS, *_ABOUT_OBJECTS}


def test_the_members_of_an_object_and_the_limits_are_told() -> None:
    members = TEXT[TEXT.index("| member |") :].partition("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in members.split("\n"))))
    assert told == {field.name for field in msgspec.structs.fields(ObjectSheet)}
    limits = TEXT[TEXT.index("| setting of") :].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", limits, re.MULTILINE) == list(ObjectLimits.model_fields)


def test_the_settings_of_the_guide_can_be_used() -> None:
    import tomllib

    blocks = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    agent = {"component_domain": "agent.example.com", "component_secret": "x"}
    settings = make_settings(
        server=agent,
        llm={"provider": "vllm", "model": "m", "base_url": "http://m"},
        **tomllib.loads("\n".join(blocks)),
    )
    assert settings[LIMITS] == ObjectLimits()
