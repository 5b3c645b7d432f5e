"""Documents that want harm: they are refused or bounded, and requests go nowhere else."""

import copy
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.apis import openapi_operations as operations
from component.features.apis.openapi_document import OpenApiDocument, Unusable
from component.features.apis.openapi_operations import Granted, RequestBuilder
from component.features.apis.settings import OpenApi
from component.features.apis.sources import OpenApiSource
from component.http.targets import target_of
from component.skills import InvalidParam, Skill
from component.skills.errors import SkillLoadError
from tests.component.features.apis.documents import (
    PETSTORE,
    encoded,
    petstore,
    with_operation,
)

BASE = "https://api.example.com/v1"


def offered(document: Any, **more: Any) -> list[Skill]:
    usual = {"document": "x.json", "server": BASE} if "url" not in more else {}
    settings = OpenApi(**(usual | more))
    data = document if isinstance(document, bytes) else encoded(document)
    return OpenApiSource("x", settings).skills(data)


def why_not(document: dict[str, Any]) -> str:
    found = OpenApiDocument.parse(encoded(document))
    with pytest.raises(Unusable) as error:
        operations.read_operation(found, next(operations.entries_of(found)))
    return str(error.value)


def query(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"parameters": [{"name": name, "in": "query", "schema": schema} | more]}


@pytest.mark.parametrize(
    ("servers", "refused"),
    [
        ([{"url": "https://evil.example/v1"}], True),
        ([{"url": "//evil.example"}], True),
        ([{"url": "http://api.example.com/"}], True),
        ([{"url": "https://api.example.com:8443/"}], True),
        ([{"url": "https://api.example.com@evil.example/"}], True),
        ([{"url": "https://{host}/", "variables": {"host": {"default": "evil.example"}}}], True),
        ([{"url": "file:///etc/passwd"}], True),
        ([{"url": 7}], True),
        ([{"url": "https://api.example.com/v2"}], False),
        ([{"url": "v2"}], False),
        ([], False),
    ],
)
def test_a_document_of_a_url_names_no_other_server(servers: Any, refused: bool) -> None:
    document = petstore(servers=servers, security=[])
    url = "https://api.example.com/openapi.json"
    if refused:
        with pytest.raises(SkillLoadError, match="names the server"):
            offered(document, url=url)
    else:
        assert offered(document, url=url)


def test_an_operation_names_no_other_server() -> None:
    other = with_operation({"servers": [{"url": "https://evil.example"}]})
    assert offered(other) == []
    assert len(offered(with_operation({"servers": [{"url": "/v2"}]}))) == 1


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"parameters": [{"$ref": "https://evil.example/x.json"}]}, "outside the document"),
        ({"parameters": [{"$ref": "file:///etc/passwd"}]}, "outside the document"),
        ({"parameters": [{"$ref": "#/nothing"}]}, "does not exist"),
        ({"parameters": [{"$ref": "#/paths/~1x/get/parameters/0"}]}, "lead to each other"),
        (query("a", {"$ref": "../x.json"}), "outside the document"),
        ({"parameters": [7]}, "not an object"),
        ({"parameters": [{"name": "Host", "in": "header"}]}, "not permitted"),
        ({"parameters": [{"name": "A\r\nB", "in": "header"}]}, "not permitted"),
        ({"parameters": [{"name": "s", "in": "cookie", "required": True}]}, "not supported"),
        ({"parameters": [{"name": f"p{n}", "in": "query"} for n in range(101)]}, "more than 100"),
        (query("a", {}, style="matrix"), "not known"),
        ({"operationId": "---"}, "without a letter"),
    ],
)
def test_an_operation_that_cannot_be_used_says_why(operation: Any, reason: str) -> None:
    assert reason in why_not(with_operation(operation))
    assert offered(with_operation(operation)) == []


@pytest.mark.parametrize(
    "path",
    ["/../admin", "/a/./b", "/%2e%2e/x", "x", "/a?b", "/a#b", "/a b", "/a\r\nX: y", "/a\\b", "/{a"],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    assert "path" in why_not(with_operation({}, path))


def test_a_placeholder_without_a_parameter_is_refused() -> None:
    assert "'id'" in why_not(with_operation({}, "/{id}"))


def test_schemas_that_refer_to_each_other_are_bounded() -> None:
    tree = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
    cyclic = with_operation(
        query("a", {"$ref": "#/components/schemas/A"}), components={"schemas": tree}
    )
    for skill in offered(cyclic):  # either way, but soon
        assert set(skill.input_schema["$defs"]) == {"A", "B"}


@pytest.mark.parametrize(("fields", "found"), [(60, 60), (100, 100), (101, 1)])
def test_the_fields_of_a_body_are_parameters_unless_there_are_too_many(
    fields: int, found: int
) -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(fields)}}
    document = with_operation({})
    content = {"application/json": {"schema": schema}}
    posted = {"operationId": "one", "requestBody": {"content": content}}
    document["paths"] = {"/x": {"post": posted}}
    [skill] = offered(document)
    assert len(skill.input_schema["properties"]) == found


@pytest.mark.parametrize("kind", ["wide", "deep", "chain", "bomb"])
def test_a_huge_schema_is_refused_in_bounded_time(kind: str) -> None:
    schemas: dict[str, Any] = {}
    schema: Any = {"$ref": "#/components/schemas/s0"}
    if kind == "wide":
        schema = {"type": "object", "properties": {f"p{n}": {} for n in range(50_000)}}
    elif kind == "deep":
        schema = {}
        for _ in range(150):
            schema = {"items": schema}
    elif kind == "chain":
        schemas = {f"s{n}": {"$ref": f"#/components/schemas/s{n + 1}"} for n in range(5000)}
    else:
        for n in range(60):
            both = {"$ref": f"#/components/schemas/s{n + 1}"}
            schemas[f"s{n}"] = {"allOf": [both] * 40}
        schemas["s60"] = {"type": "string"}
    document = with_operation(query("a", schema), components={"schemas": schemas})
    began = time.process_time()
    assert "too large" in why_not(document)
    assert offered(document) == []
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"openapi": "2.0", "paths": {}}',
        b'{"openapi": "3.0.0"}',
        b'{"openapi": "3.0.0", "paths": []}',
        b"[" * 100_000,
        b"{" * 100_000,
        b'{"a":' * 50_000,
        b"a: &a [x]\nb: [*a, *a]\n",
        b"openapi: !!python/object/apply:os.system ['true']\n",
        b"\xff\xfe\x00",
        b"a: b: c",
    ],
)
def test_what_is_no_description_is_refused(data: bytes) -> None:
    with pytest.raises(SkillLoadError):
        offered(data)


def test_a_pattern_that_cannot_be_bounded_costs_one_operation() -> None:
    document = petstore(security=[])
    document["paths"]["/pets/{petId}"]["parameters"][0]["schema"]["pattern"] = "("
    assert {each.name for each in offered(document)} == {"x.listPets", "x.createPet", "x.login"}


def test_a_description_with_characters_that_xml_forbids() -> None:
    found = offered(with_operation({"description": "a\0b" * 2000, "summary": "x\x1b[31m\ny"}))
    assert len(found) == 1
    assert len(found[0].description) <= 1000


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """The description with one part replaced by something else."""
    document = copy.deepcopy(PETSTORE)
    here: Any = document
    for _ in range(draw(st.integers(0, 7))):
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or not here[key]:
            break
        here = here[key]
    keys = list(here) if isinstance(here, dict) else list(range(len(here)))
    if keys:
        here[draw(st.sampled_from(keys))] = draw(junk)
    return document


@given(damaged())
def test_a_damaged_description_gives_skills_or_a_sentence(document: Any) -> None:
    try:
        found = offered(document, credentials={"key": "k", "token": "t"})
    except SkillLoadError:
        return
    assert all(each.capabilities == ("network:api.example.com:443:https",) for each in found)


WIDE = with_operation(
    {
        "parameters": [
            {"name": "id", "in": "path", "required": True},
            {"name": "more", "in": "path", "required": True},
            {"name": "list", "in": "query", "style": "pipeDelimited"},
            {"name": "deep", "in": "query", "style": "deepObject"},
            {"name": "form", "in": "query"},
            {"name": "json", "in": "query", "content": {"application/json": {}}},
            {"name": "X-Mark", "in": "header"},
        ]
    },
    "/a/{id}.{more}/b",
)
parsed = OpenApiDocument.parse(encoded(WIDE))
BUILDER = RequestBuilder(
    BASE,
    operations.read_operation(parsed, next(operations.entries_of(parsed))),
    Granted(query=(("api_key", "secret"),)),
)
names = st.sampled_from(["id", "more", "list", "deep", "form", "json", "X-Mark"])
words = st.text() | st.sampled_from(
    [".", "..", "../x", "%2e", "a\r\nb", "//evil.example", "api_key"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner) | st.dictionaries(words, inner),
    max_leaves=6,
)


@given(st.dictionaries(names, values) | st.fixed_dictionaries({"id": words, "more": words}))
def test_no_argument_changes_where_a_request_goes(arguments: dict[str, Any]) -> None:
    try:
        request = BUILDER.request(arguments)
    except InvalidParam:
        return
    target = target_of(request.url)
    assert target.origin == "https://api.example.com:443"
    segments = urlsplit(request.url).path.split("/")
    assert [segments[1], segments[2], segments[4]] == ["v1", "a", "b"]
    assert len(segments) == 5
    assert unquote(unquote(segments[3])) not in {".", ".."}
    pairs = urlsplit(request.url).query.split("&")
    assert [each for each in pairs if each.startswith("api_key=")] == ["api_key=secret"]
    h11.Request(
        method=request.method,
        target=target.path,
        headers=[("Host", target.authority), *request.headers, *request.secret_headers],
    )
