"""The operations of an API are skills: their parameters, bodies and credentials go where the
document says, on the server that the settings permit.
"""

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import pytest
from structlog.testing import capture_logs

from component.features.apis.settings import OpenApi
from component.features.apis.sources import OpenApiSource
from component.skills import InvalidParam, Skill
from component.skills.errors import SkillLoadError
from component.store import Storage
from tests.component.features.apis.documents import encoded, petstore
from tests.component.features.installed_skills.described import ADMIN
from tests.component.features.installed_skills.described import serving as pinned
from tests.component.skill_calls import called, data_of
from tests.component.web_server import Request, Response, as_json, serving
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

CREDENTIALS = {"key": "k1", "token": "t1", "query": "q1", "basic": "ann:pw"}


def settings(**more: Any) -> OpenApi:
    usual = {"document": "pets.json", "server": "https://api.example.com/v1"}
    return OpenApi(**(({} if "url" in more else usual) | {"credentials": CREDENTIALS} | more))


def skills_of(document: Any = None, **more: Any) -> dict[str, Skill]:
    source = OpenApiSource("shop", settings(**more))
    found = source.skills(encoded(petstore() if document is None else document))
    return {each.name: each for each in found}


def echo(request: Request) -> Response:
    """Answer with the request."""
    shown = {"x-key", "authorization", "x-reason", "content-type"}
    return as_json(
        {
            "method": request.method,
            "path": urlsplit(request.path).path,
            "query": parse_qsl(urlsplit(request.path).query, keep_blank_values=True),
            "headers": {name: value for name, value in request.headers.items() if name in shown},
            "body": request.body.decode(),
        }
    )


async def sent(operation: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Call an operation, and return the request as the server got it."""
    document = more.pop("document", None)
    async with serving(echo) as server:
        skills = skills_of(document, server=f"{server.url}/v1", **more)
        found: dict[str, Any] = data_of(await called(skills[f"shop.{operation}"], params))
    return found


async def test_a_whole_document_is_offered_from_its_url() -> None:
    def answer(request: Request) -> Response:
        return as_json(petstore()) if request.path == "/openapi.json" else echo(request)

    async with serving(answer) as server, anyio.create_task_group() as group:
        source = OpenApiSource("shop", settings(url=f"{server.url}/openapi.json", tags=["pets"]))
        offered: list[Skill] = []
        await group.start(source.run, offered.extend)
        assert [each.name for each in offered] == [
            "shop.listPets",
            "shop.createPet",
            "shop.getPet",
        ]
        got = data_of(await called(offered[2], {"petId": "a b"}))
        assert (got["path"], got["headers"]) == ("/v1/pets/a%20b", {"x-key": "k1"})
        group.cancel_scope.cancel()


async def test_parameters_go_where_they_belong() -> None:
    got = await sent("listPets", {"limit": 3, "tag": ["a", "b&c"], "filter": {"age": 2}})
    assert (got["method"], got["path"], got["body"]) == ("GET", "/v1/pets", "")
    assert got["query"] == [["limit", "3"], ["tag", "a"], ["tag", "b&c"], ["filter[age]", "2"]]
    got = await sent("deletePet", {"petId": "7", "X-Reason": "sold"})
    assert got["headers"] == {"authorization": "Bearer t1", "x-reason": "sold"}


async def test_a_body_is_made_of_its_fields() -> None:
    got = await sent("createPet", {"name": "Rex", "tag": None, "parents": [{"name": "Bo"}]})
    assert got["body"] == '{"name":"Rex","parents":[{"name":"Bo"}]}'
    assert got["headers"]["content-type"] == "application/json"
    got = await sent("login", {"user": "ann & bo"})
    assert (got["body"], got["headers"]) == (
        "user=ann+%26+bo",
        {"content-type": "application/x-www-form-urlencoded"},
    )
    assert (await sent("login", {}))["body"] == ""


@pytest.mark.parametrize(
    ("security", "headers", "query"),
    [
        ([{"basic": []}], {"authorization": "Basic YW5uOnB3"}, []),
        ([{"query": []}], {}, [["api_key", "q1"]]),
        ([{"key": [], "token": []}], {"x-key": "k1", "authorization": "Bearer t1"}, []),
        ([{}, {"key": []}], {"x-key": "k1"}, []),
        ([{"missing": []}, {"token": ["read"]}], {"authorization": "Bearer t1"}, []),
        ([], {}, []),
    ],
)
async def test_credentials_go_where_the_document_says(
    security: Any, headers: dict[str, str], query: Any
) -> None:
    got = await sent("getPet", {"petId": "1"}, document=petstore(security=security))
    assert (got["headers"], got["query"]) == (headers, query)


def test_an_operation_without_its_credentials_is_not_offered() -> None:
    assert set(skills_of(credentials={})) == {"shop.login"}
    assert set(skills_of(credentials={"token": "t"})) == {"shop.login", "shop.deletePet"}


def test_effects_are_those_of_the_methods_unless_an_admin_says_otherwise() -> None:
    skills = skills_of(
        annotations={"create*": {"destructive": False}, "login": {"read_only": True}}
    )
    marks = {
        name.removeprefix("shop."): (each.annotations.read_only, each.annotations.destructive)
        for name, each in skills.items()
    }
    assert marks == {
        "listPets": (True, False),
        "getPet": (True, False),
        "createPet": (False, False),
        "deletePet": (False, True),
        "login": (True, False),
    }
    assert all(each.annotations.open_world for each in skills.values())
    assert all(each.taint == "web" for each in skills.values())
    assert skills["shop.login"].capabilities == ("network:api.example.com:443:https",)


def test_operations_are_chosen_by_tag_and_id() -> None:
    assert set(skills_of(tags=["writing"])) == {"shop.createPet", "shop.deletePet"}
    assert set(skills_of(operations=["get*", "list????"])) == {"shop.getPet", "shop.listPets"}
    assert set(skills_of(tags=["writing"], operations=["delete*"])) == {"shop.deletePet"}
    assert set(skills_of(operations=["login"], prefix="")) == {"login"}
    with pytest.raises(SkillLoadError, match="at most 2 are offered"):
        skills_of(max_operations=2)


def test_schemas_contain_what_they_refer_to() -> None:
    schema = skills_of()["shop.createPet"].input_schema
    assert schema["properties"]["parents"] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Pet"},
    }
    assert schema["properties"]["tag"] == {"type": ["string", "null"]}
    assert schema["required"] == ["name"]
    assert set(schema["$defs"]) == {"Pet"}
    limit = skills_of()["shop.listPets"].input_schema["properties"]["limit"]
    assert limit == {"type": "integer", "exclusiveMinimum": 0, "description": "How many."}


async def test_arguments_are_validated_against_the_resolved_schemas() -> None:
    skill = skills_of()["shop.createPet"]
    for params in (
        {"name": ""},
        {"name": "x", "parents": [{"name": 7}]},
        {"name": "x", "y": 1},
        {},
    ):
        with pytest.raises(InvalidParam):
            await called(skill, params)


async def test_an_openapi_document_in_yaml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "api.yaml"
    path.write_text(
        "openapi: 3.1.0\npaths:\n  /x:\n    get:\n      operationId: one\n"
        "      responses: {200: {description: ok}}\n      description: since 2026-01-01\n"
    )
    async with anyio.create_task_group() as group:
        offered: list[Skill] = []
        source = OpenApiSource("a", settings(document=path))
        await group.start(source.run, offered.extend)
        group.cancel_scope.cancel()
    assert [each.name for each in offered] == ["a.one"]


async def test_a_changed_document_is_offered_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "pets.json"
    path.write_bytes(encoded(petstore()))
    offers: list[int] = []

    def offer(skills: Any) -> None:
        offers.append(len(skills))

    async with anyio.create_task_group() as group:
        source = OpenApiSource("shop", settings(document=path, refresh_s=0.01))
        await group.start(source.run, offer)
        with capture_logs() as logs:
            path.write_bytes(b"{")
            await eventually(lambda: [one for one in logs if "keeps its skills" in one["event"]])
        path.write_bytes(encoded(petstore(paths={})))
        await eventually(lambda: len(offers) == 2)
        group.cancel_scope.cancel()
    assert offers == [5, 0]


def changed_list() -> dict[str, Any]:
    """The petstore, whose list of pets now is at another path."""
    document = petstore()
    document["paths"]["/admin/pets"] = document["paths"].pop("/pets")
    return document


@pytest.mark.ports
async def test_a_changed_operation_waits_for_an_approval(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "pets.json"
    path.write_bytes(encoded(petstore()))
    section = settings(document=path, server="https://api.example.com/v1")
    async with pinned(storage, OpenApiSource("clock", section)) as world:
        first = {one.name: one.description for one in world.registry}
        assert {one.described_by for one in world.registry} == {"web"}
    document = changed_list()
    document["paths"]["/new"] = {"get": {"operationId": "fresh"}}
    path.write_bytes(encoded(document))
    async with pinned(storage, OpenApiSource("clock", section)) as world:
        assert {one.name for one in world.registry} == set(first) - {
            "clock.listPets",
            "clock.createPet",
        }
        sheet = await world.descriptions.show("clock.listPets")
        assert '+    "path": "/admin/pets"' in sheet.source
        assert (await world.descriptions.show("clock.fresh")).state == "waiting"
        await world.descriptions.approve("clock.listPets", ADMIN, digest=sheet.digest)
        del first["clock.createPet"]
        await world.until(*first.values())


async def test_only_the_approved_description_is_used(tmp_path: Path) -> None:
    path = tmp_path / "pets.json"
    path.write_bytes(encoded(petstore()))
    offers: list[dict[str, Skill]] = []

    def offer(skills: Any) -> tuple[()]:
        offers.append({each.name: each for each in skills})
        return ()

    async def run(sha256: str) -> None:
        source = OpenApiSource("shop", settings(document=path, sha256=sha256))
        async with anyio.create_task_group() as group:
            await group.start(source.run, offer)
            group.cancel_scope.cancel()

    approved = hashlib.sha256(encoded(petstore())).hexdigest()
    await run(approved)
    path.write_bytes(encoded(changed_list()))
    now = hashlib.sha256(encoded(changed_list())).hexdigest()
    source = OpenApiSource("shop", settings(document=path, sha256=approved))
    with pytest.raises(SkillLoadError, match=now):
        await source.run(offer, task_status=anyio.TASK_STATUS_IGNORED)
    await run(now)
    assert ["shop.listPets" in each for each in offers] == [True, True]


async def test_a_document_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async def run(**more: Any) -> None:
        await OpenApiSource("shop", settings(**more)).run(
            lambda _: None, task_status=anyio.TASK_STATUS_IGNORED
        )

    with pytest.raises(SkillLoadError, match="not a file"):
        await run(document=tmp_path)
    path = tmp_path / "large.json"
    path.write_bytes(b" " * 5000)
    with pytest.raises(SkillLoadError, match="more than 2,048 bytes"):
        await run(document=path, max_document_bytes=2048)
    async with serving(lambda _: Response(status=404)) as server:
        with pytest.raises(SkillLoadError, match="answers 404"):
            await run(url=f"{server.url}/api.json")


def test_people_are_asked_about_an_operation_in_the_words_of_the_settings() -> None:
    skills = skills_of(questions={"create*": "May I add a pet?"})
    asked = {name for name, skill in skills.items() if skill.question}
    assert asked == {name for name in skills if name.startswith("shop.create")} != set()
