"""A manifest of the kind `rest` is a whole skill: the service makes its request."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.app.schema import SCHEMA
from component.features.installed_skills.commands import InstalledError
from component.skill_directories.cases import (
    Case,
    ScriptedNetwork,
    ScriptedResponse,
    read_cases,
    run_case,
)
from component.skill_directories.host_functions import Credential, Services
from component.skills import CapabilityMissing, InvalidParam, SkillUnavailable
from component.skills.manifest import ManifestError, read_manifest
from component.store import Storage
from tests.component.features.installed_skills.world import opened
from tests.component.web_server import Request, Response, as_json, redirect, serving

pytestmark = [pytest.mark.anyio, pytest.mark.ports]
ADMIN = "admin@example.com"
WEATHER = Path(__file__).parents[4] / "examples" / "skills" / "weather"
MANIFEST = """
[skill]
name = "city"
version = "1"
{more}
[skill.input_schema]
type = "object"
required = ["city"]
properties.city = {{ type = "string" }}
properties.unit = {{ type = "string" }}
[skill.request]
url = "{url}/cities/{{city}}"
query = {{ unit = "{{unit}}" }}
{request}
[skill.response]
select = "current"
output = "{{temperature}} degrees"
[skill.capabilities]
network = ["{url}"]
{capabilities}
[skill.execution]
kind = "rest"
{execution}
"""


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    """One kind of database is enough: requests have nothing to do with it."""
    async with Storage.open(SCHEMA, tmp_path / "data") as storage:
        yield storage


def install(root: Path, url: str, **parts: str) -> None:
    """Write the skill `city`, whose parts of the manifest a test adds."""
    parts = dict.fromkeys(("more", "request", "capabilities", "execution"), "") | parts
    (root / "city").mkdir(parents=True, exist_ok=True)
    (root / "city" / "skill.toml").write_text(MANIFEST.format(url=url, **parts))


def warm(request: Request) -> Response:
    return as_json({"current": {"temperature": 21, "key": request.headers.get("authorization")}})


async def test_it_is_inert_until_it_is_approved_and_revoked_at_once(
    storage: Storage, tmp_path: Path
) -> None:
    async with serving(warm) as server:
        install(tmp_path / "skills", server.url)
        async with opened(storage, tmp_path / "skills") as world:
            assert world.names() == ()
            approved = await world.directories.approve("city", ADMIN)
            assert approved.capabilities == (f"connect to {server.url}",)
            assert await world.says("city", city="São Paulo") == "21 degrees"
            assert server.requests[0].path == "/cities/S%C3%A3o%20Paulo"
            skill = world.registry.get("city")
            assert skill is not None
            assert skill.annotations.read_only
            assert skill.taint == "web"
            for wrong in ({"city": ".."}, {"city": 7}, {}):
                with pytest.raises(InvalidParam):
                    await world.call("city", **wrong)
            await world.directories.revoke("city", ADMIN)
            assert world.names() == ()
    assert len(server.requests) == 1


async def test_effects_follow_from_the_method_unless_the_manifest_says_them(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    url = "https://api.example.com"
    async with opened(storage, root) as world:
        for more, request, expected in (
            ("", 'method = "POST"', (False, True, False)),
            ("", 'method = "DELETE"', (False, True, True)),
            ("[skill.annotations]\nread_only = true", 'method = "POST"', (True, False, False)),
        ):
            install(root, url, more=more, request=request)
            await world.directories.approve("city", ADMIN)
            skill = world.registry.get("city")
            assert skill is not None
            marks = skill.annotations
            assert (marks.read_only, marks.destructive, marks.idempotent) == expected


async def test_the_host_uses_the_credential_and_nobody_sees_it(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    credentials = {
        "key": Credential(value="s3cret-key", hosts=("127.0.0.1",)),
        "other": Credential(value="s3cret-key", hosts=("api.example.com",)),
    }
    services = Services(credentials=credentials, storage=storage)
    async with (
        serving(warm) as server,
        opened(storage, root, services=services) as world,
    ):
        for name in ("key", "other", "unset"):
            install(
                root,
                server.url,
                request=f'credential = "{name}"',
                capabilities=f'credential = ["{name}"]',
            )
            await world.directories.approve("city", ADMIN)
            if name == "key":
                result = await world.call("city", city="Verona")
                assert server.requests[0].headers["authorization"] == "Bearer s3cret-key"
                assert "s3cret" not in repr(result)
                continue
            why = "not for 127.0.0.1" if name == "other" else "not set: an admin"
            with pytest.raises(SkillUnavailable, match=why):
                await world.call("city", city="Verona")
        assert len(server.requests) == 1


async def test_a_redirect_to_a_host_that_is_not_declared_ends_the_call(
    storage: Storage, tmp_path: Path
) -> None:
    async with serving(warm) as other, serving(lambda _: redirect(f"{other.url}/x")) as server:
        install(tmp_path / "skills", server.url)
        async with opened(storage, tmp_path / "skills") as world:
            await world.directories.approve("city", ADMIN)
            with pytest.raises(CapabilityMissing, match="network:"):
                await world.call("city", city="Verona")
    assert other.requests == []


async def test_a_name_that_leads_to_a_private_address_is_refused(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate of every sandbox looks at the addresses, so a name leads nowhere inside."""

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "api.example.com"
        return [(0, 0, 0, "", ("127.0.0.1", port))]

    monkeypatch.setattr(anyio, "getaddrinfo", resolve)
    async with serving(warm) as server:
        install(tmp_path / "skills", f"http://api.example.com:{server.port}")
        async with opened(storage, tmp_path / "skills") as world:
            await world.directories.approve("city", ADMIN)
            with pytest.raises(CapabilityMissing, match="private"):
                await world.call("city", city="Verona")
        assert server.requests == []


async def test_responses_are_limited(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    big = {"current": {"temperature": "x" * 3000}}
    async with serving(lambda _: as_json(big)) as server:
        install(root, server.url, execution="output_bytes = 2000")
        async with opened(storage, root) as world:
            await world.directories.approve("city", ADMIN)
            with pytest.raises(SkillUnavailable, match="2,000 bytes"):
                await world.call("city", city="Verona")
            text = (root / "city" / "skill.toml").read_text()
            text = text.replace("[skill.response]", "[skill.response]\nmax_bytes = 1024")
            (root / "city" / "skill.toml").write_text(text)
            await world.directories.approve("city", ADMIN)
            result = await world.call("city", city="Verona")
            assert result.is_error
            assert "1,024 bytes" in result.outputs[0].text


async def test_an_api_that_reports_errors_with_the_status_200_or_asks_to_wait(
    storage: Storage, tmp_path: Path
) -> None:
    answers = [
        as_json({"ok": False, "error": "no such city"}),
        as_json({}, 429, Retry_After="0"),
        as_json({"ok": True, "current": {"temperature": 3}}),
        *[as_json({}, 429, Retry_After="0")] * 3,
    ]
    async with serving(lambda _: answers.pop(0)) as server:
        install(tmp_path / "skills", server.url, request='method = "POST"')
        path = tmp_path / "skills" / "city" / "skill.toml"
        said = path.read_text().replace(
            'select = "current"', 'select = "current"\nerror = "!ok && error"'
        )
        path.write_text(said)
        async with opened(storage, tmp_path / "skills") as world:
            await world.directories.approve("city", ADMIN)
            refused = await world.call("city", city="Verona")
            assert refused.is_error
            assert refused.outputs[0].text == "127.0.0.1 reports an error: no such city."
            assert await world.says("city", city="Verona") == "3 degrees"
            with pytest.raises(SkillUnavailable, match="status 429"):
                await world.call("city", city="Verona")


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"request": 'headers = { A = "{town}" }'}, "placeholder in headers"),
        ({"request": "body = { a = 1 }"}, "a GET request does not send"),
        ({"request": 'headers = { "A b" = "c" }'}, "not the name of a header field"),
        ({"request": 'headers = { A = "a\\u000ab" }'}, "cannot have"),
        ({"request": 'credential = "key"'}, "credential of skill.toml lacks"),
        ({"execution": "durable = true"}, "remove durable"),
    ],
)
async def test_what_cannot_be_requested_is_refused_at_the_approval(
    storage: Storage, tmp_path: Path, parts: dict[str, str], why: str
) -> None:
    install(tmp_path / "skills", "https://api.example.com", **parts)
    async with opened(storage, tmp_path / "skills") as world:
        with pytest.raises(InstalledError, match=why):
            await world.directories.approve("city", ADMIN)
        assert world.names() == ()


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("select = ", "selekt = ", "did you mean select"),
        ('network = ["https://api.example.com"]', "", "which network of skill.toml lacks"),
        ("example.com/cities", "{city}.com/cities", "placeholder before the path"),
        ("/cities/{city}", "/cities/{city}?a=b", "write it into query"),
        ("/cities/{city}", "/cities/{city", "single {"),
        ('select = "current"', 'select = "a["', "not a JMESPath expression"),
        ("[skill.request]", "[skill.requests]", "did you mean request"),
        ('{ type = "string" }', '"text"', "parameters.city"),
    ],
)
async def test_a_mistake_in_the_manifest_is_named(
    storage: Storage, tmp_path: Path, before: str, after: str, why: str
) -> None:
    install(tmp_path / "skills", "https://api.example.com")
    path = tmp_path / "skills" / "city" / "skill.toml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    async with opened(storage, tmp_path / "skills") as world:
        with pytest.raises(InstalledError, match=why):
            await world.directories.approve("city", ADMIN)


def test_the_request_belongs_to_the_kind() -> None:
    text = MANIFEST.format(
        url="https://a.example", more="", request="", capabilities="", execution=""
    )
    without = text[: text.index("[skill.request]")] + text[text.index("[skill.capabilities]") :]
    with pytest.raises(ManifestError, match=r"add \[skill.request\]"):
        read_manifest(without)


async def test_the_sample_asks_its_api_and_passes_its_tests(
    storage: Storage, tmp_path: Path
) -> None:
    answer = {
        "current": {"temperature_2m": 21.5, "wind_speed_10m": 7.2},
        "current_units": {"temperature_2m": "°C", "wind_speed_10m": "km/h"},
    }
    network = ScriptedNetwork()
    services = Services(storage=storage, gates=network.gate)
    async with serving(lambda _: as_json(answer)) as server:
        directory = tmp_path / "skills" / "weather"
        shutil.copytree(WEATHER, directory)
        manifest = (directory / "skill.toml").read_text()
        local = manifest.replace("https://api.open-meteo.com", server.url)
        (directory / "skill.toml").write_text(local)
        async with opened(storage, tmp_path / "skills", services=services) as world:
            await world.directories.approve("weather", ADMIN)
            skill = world.registry.get("weather")
            assert skill is not None
            text = await world.says("weather", latitude=45.44, longitude=10.99)
            assert text == "It is 21.5 °C, wind 7.2 km/h."
            asked = server.requests.pop().path
            assert asked.startswith("/v1/forecast?latitude=45.44&longitude=10.99&")
            (case, refused) = read_cases(directory)
            moved = Case(
                name=case.name,
                params=case.params,
                contains=case.contains,
                http=(ScriptedResponse(url=f"{server.url}{asked}", json=answer),),
            )
            assert await run_case(skill, moved, network) == ""
            assert await run_case(skill, refused, network) == ""
            assert server.requests == []


@pytest.mark.parametrize(
    ("http", "problem"),
    [
        ((), "there is no response to GET"),
        (
            (ScriptedResponse(url="https://api.example.com/other", json={}),),
            "expected a request to",
        ),
        ((ScriptedResponse(method="POST", json={}),), "expected a request by POST"),
        ((ScriptedResponse(body={"a": 1}, json={}),), "expected a request with"),
        (
            (ScriptedResponse(json={"current": {"temperature": 1}}), ScriptedResponse()),
            "fewer requests",
        ),
        (
            (ScriptedResponse(status=302, headers={"Location": "http://10.0.0.1/"}),),
            "not permitted",
        ),
        ((ScriptedResponse(text="x" * 2_000_000),), "too large"),
    ],
)
async def test_a_case_says_what_the_network_answers(
    storage: Storage, tmp_path: Path, http: tuple[ScriptedResponse, ...], problem: str
) -> None:
    network = ScriptedNetwork()
    services = Services(storage=storage, gates=network.gate)
    install(tmp_path / "skills", "https://api.example.com")
    async with opened(storage, tmp_path / "skills", services=services) as world:
        await world.directories.approve("city", ADMIN)
        skill = world.registry.get("city")
        assert skill is not None
        case = Case(name="one", params={"city": "Verona"}, contains="1 degrees", http=http)
        assert problem in await run_case(skill, case, network)
