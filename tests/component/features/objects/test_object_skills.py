"""The skills about objects: what they pass on of a call, and what they say of its parameters."""

from typing import Any

import msgspec
import pytest

from component.features.objects.skills import object_skills
from component.skills import Context, InvalidParam, Skill, call, prepare
from component.skills.calling import Threads
from component.skills.operations import PlainHost
from component.skills.outputs import Output, SkillResult
from tests.component.features.objects.test_objects import opened

pytestmark = pytest.mark.anyio


async def result(
    skills: dict[str, Skill], name: str, params: Any, *, key: str = "call", **more: Any
) -> SkillResult:
    host = PlainHost()
    host.key = key
    context = Context(
        principal="ann@example.com",
        sender="ann@example.com/x",
        skill=name,
        agent="assistant/helper-1",
        host=host,
        **more,
    )
    arguments = prepare(skills[name], (), msgspec.json.encode(params))
    return await call(skills[name], arguments, context, Threads(1, 1).share("ann"))


def value(result: SkillResult) -> Any:
    (output,) = result.outputs
    assert isinstance(output, Output)
    return msgspec.json.decode(output.text)


async def test_what_a_model_stores_keeps_what_it_has_read_and_who_it_is() -> None:
    objects = opened()
    skills = {one.name: one for one in object_skills(lambda: objects)}
    new = {"type": "task", "data": {"title": "Write"}}
    for _ in range(2):  # an interrupted call is run again
        put = await result(skills, "object_put", new, taints=("web",), trace="turn 1")
    assert (put.taints, value(put)["version"]) == ((), 1)
    found = await result(skills, "object_query", {"filter": {"title": "Write"}})
    (sheet,) = value(found)["objects"]
    assert (sheet["created_by"], sheet["created_via"]) == ("ann@example.com", "assistant/helper-1")
    assert found.taints == ("web",)
    assert (await result(skills, "object_types", {})).taints == ("web",)
    got = await result(skills, "object_get", {"type": "task", "id": sheet["id"]})
    assert (value(got), got.taints) == (sheet, ("web",))


@pytest.mark.parametrize(
    ("name", "params", "param"),
    [
        ("object_query", {"filter": {"$foo": 1}}, "filter"),
        ("object_query", {"order": "due"}, "order"),
        ("object_query", {"cursor": "x"}, "cursor"),
        ("object_query", {"select": ["a..b"]}, "select"),
        ("object_get", {"type": "task", "id": "t1"}, "id"),
        ("object_put", {"type": "task", "data": {}, "scope": "garden"}, "scope"),
        ("object_put", {"type": "task", "data": {}, "if_version": 1}, "if_version"),
        ("object_schema", {"type": "task", "schema": {"type": "array"}}, "schema"),
    ],
)
async def test_an_error_names_the_parameter(name: str, params: Any, param: str) -> None:
    objects = opened()
    skills = {one.name: one for one in object_skills(lambda: objects)}
    with pytest.raises(InvalidParam) as raised:
        await result(skills, name, params)
    assert raised.value.name == param
